//! TryLock.

use anyhow::ensure;
use futures_util::future::join_all;

use crate::{
    case::Cases,
    expect::Expect as _,
    feature::Feature,
    grant::Ask,
    reason::Reason,
    waiter::WATCH,
    words::Readable,
    world::{World, hold, must_be_held, secs},
};

pub(crate) fn tests(cases: &mut Cases) {
    cases.core("a free resource is granted", granted);
    cases.core("a held resource is refused with ABORTED and RESOURCE_LOCKED", refused);
    cases.core("a refusal names the holder by its label", names_holder);
    cases.core("after a hand-over a refusal names the new holder", names_next_holder);
    cases.core("a refusal shows neither the lock ID nor the request ID", keeps_secrets);
    cases.core("a held resource is refused at once, without waiting", at_once);
    cases.core("the holder's own second try is refused", not_reentrant);
    // Trap: all 2
    cases.core("of fifty tries at once on a free resource exactly one is granted", one_of_many);
    cases.core("different resources are held independently", independent);
    // Trap: all 29
    cases.core("names that differ little are different resources", injective);
    cases.core("a refused try leaves the grant alone", leaves_grant);
    // Trap: all 2
    cases.core("refused tries leave nothing in the way of the next grant", no_litter);
    // Trap: all 12
    cases.core("a refused try is never granted later", never_later);
}

async fn granted(world: World) -> anyhow::Result<()> {
    hold(&world.store(), &Ask::of(&world.resource())).await.map(drop)
}

async fn refused(world: World) -> anyhow::Result<()> {
    let ask = Ask::of(&world.resource());
    hold(&world.store(), &ask).await?;
    world.store().try_lock(&ask).await.refused(Reason::ResourceLocked).map(drop)
}

async fn names_holder(world: World) -> anyhow::Result<()> {
    let ask = Ask::of(&world.resource());
    hold(&world.store(), &ask.clone().holder("first of all")).await?;
    let tried = world.store().try_lock(&ask.holder("second")).await;
    let refusal = tried.refused(Reason::ResourceLocked)?;
    let holder = refusal.metadata("holder")?;
    ensure!(holder == "first of all", "the metadata `holder` is \"{holder}\"");
    Ok(())
}

async fn names_next_holder(world: World) -> anyhow::Result<()> {
    let (store, ask) = (world.store(), Ask::of(&world.resource()));
    let first = hold(&store, &ask.clone().holder("first")).await?;
    let waiter = store.queue(&ask.clone().holder("second").within(secs(60))).await?;
    store.release(&first).await.or_fail("Unlock")?;
    waiter.granted().await?;
    let refusal = store.try_lock(&ask).await.refused(Reason::ResourceLocked)?;
    let holder = refusal.metadata("holder")?;
    ensure!(holder == "second", "the metadata `holder` is \"{holder}\"");
    Ok(())
}

async fn keeps_secrets(world: World) -> anyhow::Result<()> {
    let (ask, request_id) = (Ask::of(&world.resource()), World::secret());
    let first = ask.clone();
    let first =
        if world.declares(Feature::Replay) { first.request_id(&request_id) } else { first };
    let grant = hold(&world.store(), &first).await?;
    let refusal = world.store().try_lock(&ask).await.refused(Reason::ResourceLocked)?;
    refusal.keeps_secret(&grant.lock_id)?;
    refusal.keeps_secret(&request_id)
}

async fn at_once(world: World) -> anyhow::Result<()> {
    let ask = Ask::of(&world.resource());
    let grant = hold(&world.store(), &ask.clone().ttl(secs(30))).await?;
    must_be_held(&world.store(), &ask.request.resource_id, "a held resource").await?;
    let took = grant.answered_at.elapsed();
    ensure!(took < secs(10), "the refusal took {}", Readable(took));
    Ok(())
}

async fn not_reentrant(world: World) -> anyhow::Result<()> {
    let ask = Ask::of(&world.resource()).holder("same");
    hold(&world.store(), &ask).await?;
    world.store().try_lock(&ask).await.refused(Reason::ResourceLocked).map(drop)
}

async fn one_of_many(world: World) -> anyhow::Result<()> {
    let (store, ask) = (world.store(), Ask::of(&world.resource()));
    let answers = join_all((0..50).map(|_| store.try_lock(&ask))).await;
    let mut granted_count = 0;
    for answer in answers {
        match answer {
            Ok(_) => granted_count += 1,
            refused => drop(refused.refused(Reason::ResourceLocked)?),
        }
    }
    ensure!(granted_count == 1, "{granted_count} of 50 tries were granted");
    Ok(())
}

async fn independent(world: World) -> anyhow::Result<()> {
    let (first, second) = (Ask::of(&world.resource()), Ask::of(&world.resource()));
    let grant = hold(&world.store(), &first).await?;
    hold(&world.store(), &second).await?;
    world.store().release(&grant).await.or_fail("Unlock of the first")?;
    must_be_held(&world.store(), &second.request.resource_id, "the second resource").await
}

async fn injective(world: World) -> anyhow::Result<()> {
    let base = world.resource();
    // Some look alike, some are equal after Unicode normalisation or a change of case, some
    // are equal in a URL.
    let suffixes = [
        "", "/", "//", "/a", "/a/b", "%2Fa", "/A", " ", "  ", " a", "  a", ":", "*", "{a}",
        "\u{e9}", "e\u{301}", "\u{c9}", "\u{a0}", "\u{200b}", "\u{fb01}", "fi", "\u{df}", "ss",
        "\u{212a}", "k", "+a", "%20a", "?a", "#a", "%", "_", "1", "01",
    ];
    let names = suffixes.iter().map(|suffix| format!("{base}{suffix}"));
    for name in names.chain([format!(" {base}")]) {
        let tried = world.store().try_lock(&Ask::of(&name)).await;
        tried.or_fail(&format!("`{name}` was refused after its neighbours were granted"))?;
    }
    Ok(())
}

async fn leaves_grant(world: World) -> anyhow::Result<()> {
    let ask = Ask::of(&world.resource());
    let grant = hold(&world.store(), &ask).await?;
    world.store().try_lock(&ask).await.refused(Reason::ResourceLocked)?;
    world.store().release(&grant).await.or_fail("the holder's Unlock after a refused try")
}

async fn no_litter(world: World) -> anyhow::Result<()> {
    let (store, ask) = (world.store(), Ask::of(&world.resource()));
    let grant = hold(&store, &ask).await?;
    for _ in 0..30 {
        store.try_lock(&ask).await.refused(Reason::ResourceLocked)?;
    }
    store.release(&grant).await.or_fail("Unlock")?;
    store.try_lock(&ask).await.or_fail("a try right after the Unlock").map(drop)
}

async fn never_later(world: World) -> anyhow::Result<()> {
    let (store, ask) = (world.store(), Ask::of(&world.resource()));
    let grant = hold(&store, &ask).await?;
    store.try_lock(&ask).await.refused(Reason::ResourceLocked)?;
    store.release(&grant).await.or_fail("Unlock")?;
    tokio::time::sleep(WATCH).await;
    store.try_lock(&ask).await.or_fail("a try some time after the Unlock").map(drop)
}

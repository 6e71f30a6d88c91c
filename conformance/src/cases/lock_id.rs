//! Lock IDs, which are the only proof of ownership.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use futures_util::future::try_join_all;

use super::invalid::NAME_BYTES_MAX;
use crate::{
    case::Cases,
    expect::Expect as _,
    grant::Ask,
    reason::Reason,
    store::Store,
    words::listed,
    world::{World, hold, secs},
};

const SAMPLE_COUNT: usize = 64;

pub(crate) fn tests(cases: &mut Cases) {
    cases.core("a grant of a caller that brought none has a lock ID", not_empty);
    cases.core("the store's lock IDs are distinct", distinct);
    cases.core("the store's lock IDs cannot be guessed from one another", unguessable);
    cases.core("a caller's own lock ID is the one granted, by TryLock", own_by_try);
    cases.core("a caller's own lock ID is the one granted, by Lock", own_by_lock);
    cases.core("a caller's own lock ID unlocks its grant", own_unlocks);
    cases.core("the same lock ID on a held resource is refused", same_refused);
    cases.core("a lock ID proves nothing on another resource", elsewhere);
    cases.core("a lock ID that only resembles the holder's proves nothing", resembling);
    cases.core("a caller's own lock ID is the one granted, by a Lock that waits", own_by_wait);
    cases.core("a waiter's lock ID proves nothing before its turn", before_turn);
    cases.core("one lock ID may hold two resources", two_resources);
}

async fn not_empty(world: World) -> anyhow::Result<()> {
    let grant = hold(&world.store(), &Ask::of(&world.resource())).await?;
    ensure!(!grant.lock_id.is_empty(), "the lock ID is empty");
    Ok(())
}

async fn sample(store: &Store, resource: &str) -> anyhow::Result<Vec<String>> {
    let mut ids = Vec::new();
    for _ in 0..SAMPLE_COUNT {
        let grant = hold(store, &Ask::of(resource)).await?;
        store.release(&grant).await.or_fail("Unlock")?;
        ids.push(grant.lock_id);
    }
    Ok(ids)
}

async fn distinct(world: World) -> anyhow::Result<()> {
    let (one, two) = (world.resource(), world.resource());
    let store = world.store();
    let ids = try_join_all([sample(&store, &one), sample(&store, &two)]).await?.concat();
    let count = ids.iter().collect::<BTreeSet<_>>().len();
    ensure!(count == ids.len(), "only {count} of {} lock IDs are distinct", ids.len());
    Ok(())
}

async fn unguessable(world: World) -> anyhow::Result<()> {
    let ids = sample(&world.store(), &world.resource()).await?;
    let length = ids.iter().map(String::len).min().unwrap_or(0);
    // A rough estimate of the entropy: a position with d different characters among the
    // samples counts log2(d) bits. Sixteen random bytes give more than 100; a counter or the
    // time gives less than 40.
    let bits: f64 = (0..length)
        .map(|position| ids.iter().map(|id| id.as_bytes()[position]).collect::<BTreeSet<_>>())
        .map(|seen| f64::from(u32::try_from(seen.len()).unwrap_or(u32::MAX)).log2())
        .sum();
    ensure!(
        bits >= 64.0,
        "{SAMPLE_COUNT} lock IDs differ in only about {bits:.0} bits: {}",
        listed(&ids)
    );
    Ok(())
}

async fn own_by_try(world: World) -> anyhow::Result<()> {
    let own = World::secret();
    let grant = hold(&world.store(), &Ask::of(&world.resource()).lock_id(&own)).await?;
    ensure!(grant.lock_id == own, "asked with {own}, granted {}", grant.lock_id);
    Ok(())
}

async fn own_by_lock(world: World) -> anyhow::Result<()> {
    let own = World::secret();
    let ask = Ask::of(&world.resource()).lock_id(&own).within(secs(5));
    let grant = world.store().lock(&ask).await.or_fail("Lock of a free resource")?;
    ensure!(grant.lock_id == own, "asked with {own}, granted {}", grant.lock_id);
    Ok(())
}

async fn own_unlocks(world: World) -> anyhow::Result<()> {
    let (resource, own) = (world.resource(), World::secret());
    hold(&world.store(), &Ask::of(&resource).lock_id(&own)).await?;
    world.store().unlock(&resource, &own).await.or_fail("Unlock with the caller's own lock ID")
}

async fn same_refused(world: World) -> anyhow::Result<()> {
    let ask = Ask::of(&world.resource()).lock_id(&World::secret());
    hold(&world.store(), &ask).await?;
    world.store().try_lock(&ask).await.refused(Reason::ResourceLocked).map(drop)
}

async fn elsewhere(world: World) -> anyhow::Result<()> {
    let (store, other) = (world.store(), world.resource());
    let grant = hold(&store, &Ask::of(&world.resource())).await?;
    hold(&store, &Ask::of(&other)).await?;
    store.unlock(&other, &grant.lock_id).await.refused(Reason::LockNotFound).map(drop)
}

async fn resembling(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let own = format!("Lock{}{}", World::secret(), "x".repeat(NAME_BYTES_MAX - 41));
    hold(&store, &Ask::of(&resource).lock_id(&own)).await?;
    for other in [
        own.to_lowercase(),
        own.to_uppercase(),
        own[..4].to_owned(),
        own[..own.len() - 1].to_owned(),
        format!("{}y", &own[..own.len() - 1]),
        own[1..].to_owned(),
        format!("{own}x"),
        format!("{own} "),
        format!(" {own}"),
        "*".to_owned(),
        "%".to_owned(),
    ] {
        let context = || format!("the holder's is `{own}`, not `{other}`");
        let unlocked = store.unlock(&resource, &other).await;
        unlocked.refused(Reason::LockNotFound).with_context(context)?;
        if !world.lacks().renewal {
            let renewed = store.renew(&resource, &other, secs(60)).await;
            renewed.refused(Reason::LockNotFound).with_context(context)?;
        }
    }
    Ok(())
}

async fn own_by_wait(world: World) -> anyhow::Result<()> {
    let (store, ask, own) = (world.store(), Ask::of(&world.resource()), World::secret());
    let first = hold(&store, &ask).await?;
    let waiter = store.queue(&ask.lock_id(&own).within(secs(60))).await?;
    store.release(&first).await.or_fail("Unlock")?;
    let grant = waiter.granted().await?;
    ensure!(grant.lock_id == own, "asked with {own}, granted {}", grant.lock_id);
    store.release(&grant).await.or_fail("Unlock with the waiter's own lock ID")
}

async fn before_turn(world: World) -> anyhow::Result<()> {
    let (store, resource, own) = (world.store(), world.resource(), World::secret());
    hold(&store, &Ask::of(&resource)).await?;
    let _waiter = store.queue(&Ask::of(&resource).lock_id(&own).within(secs(60))).await?;
    store.renew(&resource, &own, secs(60)).await.refused(Reason::LockNotFound)?;
    store.unlock(&resource, &own).await.refused(Reason::LockNotFound).map(drop)
}

async fn two_resources(world: World) -> anyhow::Result<()> {
    let own = World::secret();
    hold(&world.store(), &Ask::of(&world.resource()).lock_id(&own)).await?;
    hold(&world.store(), &Ask::of(&world.resource()).lock_id(&own)).await.map(drop)
}

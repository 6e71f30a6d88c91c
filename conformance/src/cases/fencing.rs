//! FENCING: tokens that rise with every grant of a resource.

use anyhow::ensure;

use crate::{
    case::{Cases, Demand},
    expect::Expect as _,
    feature::Feature,
    grant::{Ask, Grant},
    reason::Reason,
    world::{EXPIRY_SLACK, World, hold, hold_by, ms, secs},
};

const FENCING: Demand = Demand::Features(&[Feature::Fencing]);
const RESTART: Demand = Demand::Restart(&[Feature::Fencing]);

/// Integers below this are exact as doubles, which JSON parsers use.
const TOKEN_BOUND: i64 = 1 << 53;

pub(crate) fn tests(cases: &mut Cases) {
    cases.add(FENCING, "a token is positive and below 2^53", in_range);
    cases.add(FENCING, "a token is greater than that of the grant released before", released);
    cases.add(FENCING, "a token is greater than that of the grant expired before", expired);
    cases.add(FENCING, "a waiter's token is greater than the releaser's", handed_over);
    cases.add(FENCING, "a waiter's token is greater than the expired holder's", taken_over);
    // Trap: all 26
    cases.add(FENCING, "tokens rise over a hundred grants", rise);
    cases.add(FENCING, "tokens rise though the lock ID is the same", same_lock_id);
    cases.add(FENCING, "tokens rise across an Init", across_init);
    // Trap: all 25
    cases.add(FENCING, "a refused TryLock shows no token", refused_try);
    // Trap: all 25
    cases.add(FENCING, "a refused RenewLock shows no token", refused_renewal);
    cases.add(
        Demand::Features(&[Feature::Fencing, Feature::ForceUnlock]),
        "a token is greater than that of the grant forced away before",
        forced,
    );
    // Trap: all 27
    cases.add(
        Demand::Features(&[Feature::Fencing, Feature::Replay]),
        "a token is the same after a hundred renewals",
        renewed,
    );
}

/// The cases across a restart of the store, which come last.
pub(crate) fn restart_tests(cases: &mut Cases) {
    cases.add(RESTART, "a token is greater than those of before the restart", restarted);
    cases.alone();
}

async fn restarted(world: World) -> anyhow::Result<()> {
    let released = Ask::of(&world.resource());
    let held = Ask::of(&world.resource()).ttl(secs(2));
    let before = [hold(&world.store(), &released).await?, hold(&world.store(), &held).await?];
    world.store().release(&before[0]).await.or_fail("Unlock")?;
    world.restart().await?;
    let deadline = before[1].lives_until() + EXPIRY_SLACK;
    for (ask, earlier) in [released, held].iter().zip(&before) {
        rises(earlier, &hold_by(&world.fresh(), ask, deadline, "after the restart").await?)?;
    }
    Ok(())
}

fn rises(earlier: &Grant, later: &Grant) -> anyhow::Result<()> {
    let (earlier, later) = (earlier.token, later.token);
    ensure!(later > earlier, "the token {later} came after {earlier}");
    Ok(())
}

async fn in_range(world: World) -> anyhow::Result<()> {
    let token = hold(&world.store(), &Ask::of(&world.resource())).await?.token;
    ensure!((1..TOKEN_BOUND).contains(&token), "the token is {token}");
    Ok(())
}

async fn released(world: World) -> anyhow::Result<()> {
    let (store, ask) = (world.store(), Ask::of(&world.resource()));
    let first = hold(&store, &ask).await?;
    store.release(&first).await.or_fail("Unlock")?;
    rises(&first, &hold(&store, &ask).await?)
}

async fn expired(world: World) -> anyhow::Result<()> {
    let (store, ask) = (world.store(), Ask::of(&world.resource()));
    let first = hold(&store, &ask.clone().ttl(ms(200))).await?;
    let deadline = first.lives_until() + EXPIRY_SLACK;
    rises(&first, &hold_by(&store, &ask, deadline, "after the TTL").await?)
}

async fn handed_over(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let first = hold(&store, &Ask::of(&resource)).await?;
    let waiter = store.queue(&Ask::of(&resource).within(secs(60))).await?;
    store.release(&first).await.or_fail("Unlock")?;
    rises(&first, &waiter.granted().await?)
}

async fn taken_over(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let first = hold(&store, &Ask::of(&resource).ttl(secs(3))).await?;
    let waiter = store.queue(&Ask::of(&resource).within(secs(60))).await?;
    let taken = waiter.answer_within(first.ttl + EXPIRY_SLACK).await?;
    rises(&first, &taken.or_fail("the waiter")?)
}

async fn rise(world: World) -> anyhow::Result<()> {
    let (store, ask) = (world.store(), Ask::of(&world.resource()));
    let mut last = hold(&store, &ask).await?;
    for _ in 1..100 {
        store.release(&last).await.or_fail("Unlock")?;
        let next = hold(&store, &ask).await?;
        rises(&last, &next)?;
        last = next;
    }
    Ok(())
}

async fn same_lock_id(world: World) -> anyhow::Result<()> {
    let (store, ask) = (world.store(), Ask::of(&world.resource()).lock_id(&World::secret()));
    let first = hold(&store, &ask).await?;
    store.release(&first).await.or_fail("Unlock")?;
    rises(&first, &hold(&store, &ask).await?)
}

async fn across_init(world: World) -> anyhow::Result<()> {
    let (store, ask) = (world.new_instance()?, Ask::of(&world.resource()));
    store.init(world.properties()).await.or_fail("the first Init")?;
    let first = hold(&store, &ask).await?;
    store.release(&first).await.or_fail("Unlock")?;
    store.init(world.properties()).await.or_fail("the second Init")?;
    rises(&first, &hold(&store, &ask).await?)
}

async fn refused_try(world: World) -> anyhow::Result<()> {
    let (store, ask) = (world.store(), Ask::of(&world.resource()));
    let grant = hold(&store, &ask).await?;
    let refusal = store.try_lock(&ask).await.refused(Reason::ResourceLocked)?;
    has_no_token(&refusal, &grant)
}

async fn refused_renewal(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let grant = hold(&store, &Ask::of(&resource)).await?;
    let renewed = store.renew(&resource, &World::secret(), secs(60)).await;
    has_no_token(&renewed.refused(Reason::LockNotFound)?, &grant)
}

fn has_no_token(refusal: &crate::expect::Refusal, grant: &Grant) -> anyhow::Result<()> {
    let token = grant.token.to_string();
    let words =
        |text: &str| text.split(|c: char| !c.is_ascii_digit()).any(|word| word == token);
    // The resource's name may contain the digits of the token.
    let message = refusal.message.replace(&grant.resource, "");
    ensure!(!words(&message), "the message contains the token: \"{}\"", refusal.message);
    for (key, value) in &refusal.metadata {
        let value = value.replace(&grant.resource, "");
        ensure!(!words(&value), "the metadata `{key}` contains the token: \"{value}\"");
    }
    Ok(())
}

async fn forced(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let first = hold(&store, &Ask::of(&resource)).await?;
    store.force(&resource).await.or_fail("Unlock by force")?;
    rises(&first, &hold(&store, &Ask::of(&resource)).await?)
}

async fn renewed(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let ask = Ask::of(&resource).request_id(&World::secret());
    let first = hold(&store, &ask).await?;
    for number in 0..100 {
        let renewed = store.renew(&resource, &first.lock_id, secs(60 + number % 2)).await;
        renewed.or_fail("RenewLock")?;
    }
    let found = store.try_lock(&ask).await.or_fail("the repeated TryLock")?;
    ensure!(found.token == first.token, "granted {}, now {}", first.token, found.token);
    Ok(())
}

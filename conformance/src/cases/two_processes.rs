//! Two processes on one backend.

use anyhow::ensure;

use super::{
    exclusion::{locks, never_together, run, tokens_follow},
    fair::serve_in_order,
};
use crate::{
    case::{Cases, Demand},
    expect::{Expect as _, not_before, not_shorter},
    feature::Feature,
    grant::Ask,
    reason::Reason,
    world::{EXPIRY_SLACK, World, hold, hold_by, hold_soon, ms, secs},
};

const TWO: Demand = Demand::TwoProcesses(&[]);

pub(crate) fn tests(cases: &mut Cases) {
    cases.add(TWO, "what one granted the other refuses", refuses);
    cases.add(TWO, "what one granted the other renews", renews);
    cases.add(TWO, "what one granted the other unlocks", unlocks);
    cases.add(TWO, "what one granted the other does not unlock with a wrong lock ID", wrong_id);
    cases.add(TWO, "what one granted the other frees no earlier than its TTL", not_early);
    cases.add(TWO, "a release at one serves a waiter at the other", hands_over);
    cases.add(TWO, "an expiry serves a waiter at the other", expiry);
    cases.add(TWO, "a wait cancelled at one holds up nobody at the other", cancelled);
    cases.add(TWO, "a wait cut off at one holds up nobody at the other", cut);
    cases.add(TWO, "callers at both never hold a resource together", together);
    cases.alone();
    cases.add(
        Demand::TwoProcesses(&[Feature::Fencing]),
        "tokens rise in the order in which callers at both held the resource",
        tokens,
    );
    cases.add(
        Demand::TwoProcesses(&[Feature::Fair]),
        "waiters at both are served in the order of their coming",
        in_order,
    );
    cases.add(
        Demand::TwoProcesses(&[Feature::Fair]),
        "a TryLock at one does not overtake a waiter at the other",
        no_overtaking,
    );
    cases.add(
        Demand::TwoProcesses(&[Feature::ForceUnlock]),
        "force at one ends a grant of the other",
        force,
    );
    cases.add(
        Demand::TwoProcesses(&[Feature::Replay]),
        "a request repeated at the other finds its grant",
        replay,
    );
}

fn lock(resource: &str) -> Ask {
    Ask::of(resource).within(secs(60))
}

async fn refuses(world: World) -> anyhow::Result<()> {
    let ask = Ask::of(&world.resource());
    hold(&world.store(), &ask).await?;
    world.second()?.try_lock(&ask).await.refused(Reason::ResourceLocked).map(drop)
}

async fn renews(world: World) -> anyhow::Result<()> {
    let resource = world.resource();
    let grant = hold(&world.store(), &Ask::of(&resource)).await?;
    let renewed = world.second()?.renew(&resource, &grant.lock_id, secs(90)).await;
    not_shorter(renewed.or_fail("RenewLock at the other")?.ttl, secs(90))
}

async fn unlocks(world: World) -> anyhow::Result<()> {
    let ask = Ask::of(&world.resource());
    let grant = hold(&world.store(), &ask).await?;
    world.second()?.release(&grant).await.or_fail("Unlock at the other")?;
    world.store().try_lock(&ask).await.or_fail("a TryLock after it").map(drop)
}

async fn wrong_id(world: World) -> anyhow::Result<()> {
    let resource = world.resource();
    hold(&world.store(), &Ask::of(&resource)).await?;
    let unlocked = world.second()?.unlock(&resource, &World::secret()).await;
    unlocked.refused(Reason::LockNotFound)?.held_is(true)
}

async fn not_early(world: World) -> anyhow::Result<()> {
    let resource = world.resource();
    let grant = hold(&world.store(), &Ask::of(&resource).ttl(ms(800))).await?;
    let deadline = grant.lives_until() + EXPIRY_SLACK;
    let next =
        hold_by(&world.second()?, &Ask::of(&resource), deadline, "after the TTL").await?;
    not_before(next.answered_at, grant.lives_until(), "the other granted the resource")
}

async fn hands_over(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let grant = hold(&store, &Ask::of(&resource)).await?;
    let waiter = world.second()?.queue(&lock(&resource)).await?;
    store.release(&grant).await.or_fail("Unlock")?;
    waiter.granted().await.map(drop)
}

async fn expiry(world: World) -> anyhow::Result<()> {
    let resource = world.resource();
    let grant = hold(&world.store(), &Ask::of(&resource).ttl(secs(3))).await?;
    let waiter = world.second()?.queue(&lock(&resource)).await?;
    waiter.answer_within(grant.ttl + EXPIRY_SLACK).await?.or_fail("the waiter").map(drop)
}

async fn cancelled(world: World) -> anyhow::Result<()> {
    let (store, second, resource) = (world.store(), world.second()?, world.resource());
    let grant = hold(&store, &Ask::of(&resource)).await?;
    second.queue(&lock(&resource)).await?.cancel().await;
    second.ping().await.or_fail("Ping behind the cancel")?;
    store.release(&grant).await.or_fail("Unlock")?;
    hold_soon(&store, &Ask::of(&resource), "the only waiter was cancelled").await.map(drop)
}

async fn cut(world: World) -> anyhow::Result<()> {
    let (store, second, resource) = (world.store(), world.second()?, world.resource());
    let grant = hold(&store, &Ask::of(&resource)).await?;
    let _first = second.queue(&lock(&resource)).await?;
    let waiter = store.queue(&lock(&resource)).await?;
    second.cut().await;
    store.release(&grant).await.or_fail("Unlock")?;
    waiter.granted().await.map(drop)
}

async fn together(world: World) -> anyhow::Result<()> {
    let stores = [world.fresh(), world.second()?, world.fresh(), world.second()?];
    never_together(&run(&stores, &world.resource(), locks).await?)
}

async fn tokens(world: World) -> anyhow::Result<()> {
    let stores = [world.fresh(), world.second()?, world.fresh(), world.second()?];
    tokens_follow(&run(&stores, &world.resource(), locks).await?)
}

async fn in_order(world: World) -> anyhow::Result<()> {
    let (store, second, resource) = (world.store(), world.second()?, world.resource());
    let grant = hold(&store, &Ask::of(&resource)).await?;
    let mut waiters = Vec::new();
    for at in [&second, &store, &store, &second, &store, &second] {
        waiters.push(at.queue(&lock(&resource)).await?);
    }
    store.release(&grant).await.or_fail("Unlock")?;
    serve_in_order(&store, waiters).await
}

async fn no_overtaking(world: World) -> anyhow::Result<()> {
    let (store, second, resource) = (world.store(), world.second()?, world.resource());
    let grant = hold(&store, &Ask::of(&resource)).await?;
    let waiter = store.queue(&lock(&resource)).await?;
    let tries = async {
        for _ in 0..100 {
            let tried = second.try_lock(&Ask::of(&resource)).await;
            tried.refused(Reason::ResourceLocked)?;
        }
        anyhow::Ok(())
    };
    // Released through the other process: a store that hands over within its own memory
    // would mostly be too fast for the tries.
    let (tried, released) = tokio::join!(tries, second.release(&grant));
    released.or_fail("Unlock")?;
    tried?;
    waiter.granted().await.map(drop)
}

async fn force(world: World) -> anyhow::Result<()> {
    let ask = Ask::of(&world.resource());
    hold(&world.store(), &ask).await?;
    world.second()?.force(&ask.request.resource_id).await.or_fail("force at the other")?;
    world.store().try_lock(&ask).await.or_fail("a TryLock after it").map(drop)
}

async fn replay(world: World) -> anyhow::Result<()> {
    let ask = Ask::of(&world.resource()).request_id(&World::secret());
    let grant = hold(&world.store(), &ask).await?;
    let again = world.second()?.try_lock(&ask).await.or_fail("the request repeated")?;
    ensure!(again.lock_id == grant.lock_id, "the other made a second grant");
    Ok(())
}

//! REPLAY: a repeated request finds its own grant again.

use anyhow::{Context as _, ensure};
use leasehold_proto::components::LockMode;

use super::fair::serve_in_order;
use crate::{
    case::{Cases, Demand},
    expect::{Expect as _, not_before},
    feature::Feature,
    grant::{Ask, Grant},
    reason::Reason,
    world::{EXPIRY_SLACK, World, hold, hold_by, ms, must_be_held, secs},
};

const REPLAY: Demand = Demand::Features(&[Feature::Replay]);

pub(crate) fn tests(cases: &mut Cases) {
    cases.add(REPLAY, "a repeated TryLock returns the live grant", try_again);
    cases.add(REPLAY, "a repeated Lock returns the live grant", lock_again);
    cases.add(
        REPLAY,
        "a Lock finds the grant of a TryLock with its request ID",
        lock_after_try,
    );
    // Trap: all 23
    cases.add(REPLAY, "one Unlock frees a grant that was repeated", one_unlock);
    cases.add(REPLAY, "a repeated request starts the TTL again", restarts_ttl);
    cases.add(REPLAY, "a repeated request finds the grant of a waiter", after_wait);
    cases.add(
        REPLAY,
        "a repeated request with the same lock ID returns the grant",
        same_lock_id,
    );
    cases.add(REPLAY, "with another lock ID it is INVALID_REQUEST for lock_id", other_lock_id);
    cases.add(REPLAY, "with another mode it is refused", other_mode);
    cases.add(
        REPLAY,
        "another request ID is refused while the resource is held",
        other_request,
    );
    cases.add(REPLAY, "no request ID is no replay", none);
    cases.add(REPLAY, "the request ID of an unlocked grant makes a new one", ended);
    cases.add(REPLAY, "the request ID of an expired grant makes a new one", expired);
    cases.add(REPLAY, "the request ID of an ended grant does not find the next holder's", next);
    cases.add(REPLAY, "one request ID on two resources makes two grants", two_resources);
    cases.add(REPLAY, "a repeated Lock joins its own open wait", joins);
    cases.add(
        Demand::Features(&[Feature::Replay, Feature::Fair]),
        "a repeated Lock has the place of its open wait",
        joins_in_place,
    );
    cases.add(
        Demand::Features(&[Feature::Replay, Feature::Fair]),
        "after a disconnect the place is gone",
        place_is_gone,
    );
    cases.add(
        Demand::Features(&[Feature::Replay, Feature::Fencing]),
        "a repeated request returns the same token",
        same_token,
    );
}

fn same_grant(first: &Grant, second: &Grant) -> anyhow::Result<()> {
    let (first, second) = (&first.lock_id, &second.lock_id);
    ensure!(first == second, "first granted the lock ID {first}, then {second}");
    Ok(())
}

/// A request for a new resource with a new request ID.
fn ask(world: &World) -> Ask {
    Ask::of(&world.resource()).request_id(&World::secret())
}

async fn try_again(world: World) -> anyhow::Result<()> {
    let (store, ask) = (world.store(), ask(&world));
    let first = hold(&store, &ask).await?;
    same_grant(&first, &store.try_lock(&ask).await.or_fail("the repeated TryLock")?)
}

async fn lock_again(world: World) -> anyhow::Result<()> {
    let (store, ask) = (world.store(), ask(&world).within(secs(5)));
    let first = store.lock(&ask).await.or_fail("Lock")?;
    same_grant(&first, &store.lock(&ask).await.or_fail("the repeated Lock")?)
}

async fn lock_after_try(world: World) -> anyhow::Result<()> {
    let (store, ask) = (world.store(), ask(&world).within(secs(5)));
    let first = hold(&store, &ask).await?;
    same_grant(&first, &store.lock(&ask).await.or_fail("Lock")?)
}

async fn one_unlock(world: World) -> anyhow::Result<()> {
    let (store, ask) = (world.store(), ask(&world));
    let grant = hold(&store, &ask).await?;
    store.try_lock(&ask).await.or_fail("the repeated TryLock")?;
    store.release(&grant).await.or_fail("Unlock")?;
    let other = Ask::of(&ask.request.resource_id);
    store.try_lock(&other).await.or_fail("a TryLock after the Unlock").map(drop)
}

async fn restarts_ttl(world: World) -> anyhow::Result<()> {
    let (store, ask) = (world.store(), ask(&world).ttl(secs(2)));
    let first = hold(&store, &ask).await?;
    tokio::time::sleep(first.ttl / 2).await;
    let again = store.try_lock(&ask).await.or_fail("the repeated TryLock")?;
    let other = Ask::of(&ask.request.resource_id);
    let deadline = again.lives_until() + EXPIRY_SLACK;
    let next = hold_by(&store, &other, deadline, "after the TTL").await?;
    not_before(next.answered_at, again.asked_at + again.ttl, "another was granted the resource")
}

async fn after_wait(world: World) -> anyhow::Result<()> {
    let (store, ask) = (world.store(), ask(&world).within(secs(60)));
    let holder = hold(&store, &Ask::of(&ask.request.resource_id)).await?;
    let waiter = store.queue(&ask).await?;
    store.release(&holder).await.or_fail("Unlock")?;
    let grant = waiter.granted().await?;
    same_grant(&grant, &store.try_lock(&ask).await.or_fail("the repeated request")?)
}

async fn same_lock_id(world: World) -> anyhow::Result<()> {
    let (store, ask) = (world.store(), ask(&world).lock_id(&World::secret()));
    let first = hold(&store, &ask).await?;
    same_grant(&first, &store.try_lock(&ask).await.or_fail("the repeated TryLock")?)
}

async fn other_lock_id(world: World) -> anyhow::Result<()> {
    let (store, ask) = (world.store(), ask(&world));
    hold(&store, &ask).await?;
    let other = ask.lock_id(&World::secret());
    store.try_lock(&other).await.refused(Reason::InvalidRequest)?.names(&["lock_id"])
}

async fn other_mode(world: World) -> anyhow::Result<()> {
    let (store, ask) = (world.store(), ask(&world));
    hold(&store, &ask).await?;
    let again = store.try_lock(&ask.mode(LockMode::Shared)).await;
    let reason = if world.declares(Feature::Shared) {
        Reason::InvalidRequest
    } else {
        Reason::Unsupported
    };
    again.refused(reason).map(drop)
}

async fn other_request(world: World) -> anyhow::Result<()> {
    let (store, ask) = (world.store(), ask(&world));
    hold(&store, &ask).await?;
    let other = ask.request_id(&World::secret());
    store.try_lock(&other).await.refused(Reason::ResourceLocked).map(drop)
}

async fn none(world: World) -> anyhow::Result<()> {
    let (store, ask) = (world.store(), Ask::of(&world.resource()));
    hold(&store, &ask).await?;
    store.try_lock(&ask.request_id("")).await.refused(Reason::ResourceLocked).map(drop)
}

async fn ended(world: World) -> anyhow::Result<()> {
    let (store, ask) = (world.store(), ask(&world));
    let first = hold(&store, &ask).await?;
    store.release(&first).await.or_fail("Unlock")?;
    let second = hold(&store, &ask).await?;
    ensure!(first.lock_id != second.lock_id, "the old lock ID was granted again");
    Ok(())
}

async fn expired(world: World) -> anyhow::Result<()> {
    let (store, ask) = (world.store(), ask(&world).ttl(ms(200)));
    let first = hold(&store, &ask).await?;
    let other = Ask::of(&ask.request.resource_id);
    let deadline = first.lives_until() + EXPIRY_SLACK;
    let next = hold_by(&store, &other, deadline, "after the TTL").await?;
    store.release(&next).await.or_fail("Unlock")?;
    let second = hold(&store, &ask).await?;
    ensure!(first.lock_id != second.lock_id, "the old lock ID was granted again");
    Ok(())
}

async fn next(world: World) -> anyhow::Result<()> {
    let (store, ask) = (world.store(), ask(&world));
    let first = hold(&store, &ask).await?;
    store.release(&first).await.or_fail("Unlock")?;
    hold(&store, &Ask::of(&ask.request.resource_id)).await?;
    store.try_lock(&ask).await.refused(Reason::ResourceLocked).map(drop)
}

async fn two_resources(world: World) -> anyhow::Result<()> {
    let (store, ask) = (world.store(), ask(&world));
    let first = hold(&store, &ask).await?;
    let elsewhere = Ask::of(&world.resource()).request_id(&ask.request.request_id);
    let second = hold(&store, &elsewhere).await?;
    ensure!(first.lock_id != second.lock_id, "the grant of another resource was returned");
    Ok(())
}

async fn joins(world: World) -> anyhow::Result<()> {
    let (store, ask) = (world.store(), ask(&world).within(secs(60)));
    let resource = ask.request.resource_id.clone();
    let holder = hold(&store, &Ask::of(&resource)).await?;
    let first = store.queue(&ask).await?;
    let again = store.start(&ask);
    // The store may answer the first call now, since the repeated one took its place.
    tokio::time::sleep(ms(150)).await;
    store.release(&holder).await.or_fail("Unlock")?;
    let grant = again.granted().await.context("the repeated Lock")?;
    must_be_held(&store, &resource, "the repeated Lock was granted").await?;
    store.release(&grant).await.or_fail("Unlock of what the repeated Lock was granted")?;
    if let Ok(answered) = first.answer().await? {
        same_grant(&grant, &answered)?;
    }
    let tried = store.try_lock(&Ask::of(&resource)).await;
    tried.or_fail("a TryLock after the one Unlock").map(drop)
}

async fn joins_in_place(world: World) -> anyhow::Result<()> {
    let (store, ask) = (world.store(), ask(&world).within(secs(60)));
    let resource = ask.request.resource_id.clone();
    let holder = hold(&store, &Ask::of(&resource)).await?;
    let _first = store.queue(&ask).await?;
    let behind = store.queue(&Ask::of(&resource).within(secs(60))).await?;
    let again = store.start(&ask);
    tokio::time::sleep(ms(150)).await;
    store.release(&holder).await.or_fail("Unlock")?;
    serve_in_order(&store, vec![again, behind]).await
}

async fn place_is_gone(world: World) -> anyhow::Result<()> {
    let (store, gone, ask) = (world.store(), world.fresh(), ask(&world).within(secs(60)));
    let resource = ask.request.resource_id.clone();
    let holder = hold(&store, &Ask::of(&resource)).await?;
    let _cut_off = gone.queue(&ask).await?;
    let behind = store.queue(&Ask::of(&resource).within(secs(60))).await?;
    gone.cut().await;
    let again = store.queue(&ask).await?;
    store.release(&holder).await.or_fail("Unlock")?;
    serve_in_order(&store, vec![behind, again]).await
}

async fn same_token(world: World) -> anyhow::Result<()> {
    let (store, ask) = (world.store(), ask(&world));
    let first = hold(&store, &ask).await?.token;
    let again = store.try_lock(&ask).await.or_fail("the repeated TryLock")?.token;
    ensure!(first == again, "first the token {first}, then {again}");
    Ok(())
}

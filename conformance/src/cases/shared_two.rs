//! SHARED at two processes on one backend.

use anyhow::{Context as _, ensure};

use super::{
    shared::{hold_shared, reader, writer},
    shared_queue::{all_granted, release_all},
};
use crate::{
    case::{Cases, Demand},
    expect::Expect as _,
    feature::Feature,
    reason::Reason,
    waiter::HAND_OVER_MAX,
    world::{EXPIRY_SLACK, World, hold, hold_by, hold_soon, must_be_held, secs},
};

const TWO: Demand = Demand::TwoProcesses(&[Feature::Shared]);
const FAIR: Demand = Demand::TwoProcesses(&[Feature::Shared, Feature::Fair]);

pub(crate) fn tests(cases: &mut Cases) {
    cases.add(TWO, "readers at both hold a resource together", together);
    cases.add(TWO, "a reader at one is refused while a writer at the other holds", refused);
    cases.add(TWO, "a writer at one waits for the readers at both", waits_for_both);
    cases.add(TWO, "readers that wait at both are let in together", barrier);
    cases.add(TWO, "a shared grant of one is renewed and unlocked at the other", other_process);
    cases.add(TWO, "a renewal at one leaves the readers of the other alone", renew_one);
    cases.add(TWO, "the expiry of a reader at one lets a writer at the other in", expiry);
    // Trap: all 57
    cases.add(FAIR, "a writer that waits at one keeps later readers at the other out", late);
    cases.add(
        FAIR,
        "a writer that is cancelled at one lets readers behind it at the other in",
        cancelled,
    );
    cases.add(
        FAIR,
        "a writer that is cut off at one lets readers behind it at the other in",
        cut,
    );
    cases.add(
        FAIR,
        "after the only waiter, a writer at one, is cancelled readers at the other may try",
        only_writer,
    );
    cases.add(
        Demand::TwoProcesses(&[Feature::Shared, Feature::Replay]),
        "a shared request repeated at the other finds its grant among others",
        replay,
    );
    cases.add(
        Demand::TwoProcesses(&[Feature::Shared, Feature::ForceUnlock]),
        "force at one ends the shared grants of both",
        force,
    );
}

async fn together(world: World) -> anyhow::Result<()> {
    let (store, second, resource) = (world.store(), world.second()?, world.resource());
    let mut readers = hold_shared(&store, &resource, 2).await?;
    readers.extend(hold_shared(&second, &resource, 2).await.context("at the other")?);
    for (nth, grant) in readers.iter().enumerate() {
        let is_new = readers[..nth].iter().all(|other| other.lock_id != grant.lock_id);
        ensure!(is_new, "two grants have the lock ID {}", grant.lock_id);
    }
    release_all(&second, &readers[..3]).await?;
    for at in [&store, &second] {
        must_be_held(at, &resource, "one reader holds the resource").await?;
    }
    release_all(&store, &readers[3..]).await?;
    hold(&store, &writer(&resource)).await.map(drop)
}

async fn refused(world: World) -> anyhow::Result<()> {
    let (second, resource) = (world.second()?, world.resource());
    hold(&world.store(), &writer(&resource)).await?;
    second.try_lock(&reader(&resource)).await.refused(Reason::ResourceLocked).map(drop)
}

async fn waits_for_both(world: World) -> anyhow::Result<()> {
    let (store, second, resource) = (world.store(), world.second()?, world.resource());
    let here = hold_shared(&store, &resource, 1).await?;
    let there = hold_shared(&second, &resource, 1).await?;
    let mut waiter = second.queue_writer(&writer(&resource)).await?;
    release_all(&second, &there).await?;
    waiter.stays("a reader at the other holds the resource").await?;
    release_all(&store, &here).await?;
    waiter.granted().await.map(drop)
}

async fn barrier(world: World) -> anyhow::Result<()> {
    let resource = world.resource();
    let stores = [world.store(), world.second()?];
    for round in 1..=4 {
        let held = hold(&stores[round % 2], &writer(&resource)).await?;
        let early = stores.iter().cycle().take(7).map(|store| store.start(&reader(&resource)));
        let mut waiters: Vec<_> = early.collect();
        waiters.push(stores[1].queue(&reader(&resource)).await?);
        stores[0].release(&held).await.or_fail("the writer's Unlock")?;
        // None of them unlocks before all are granted.
        let readers = all_granted(waiters, secs(10)).await;
        release_all(&stores[0], &readers.with_context(|| format!("round {round}"))?).await?;
    }
    Ok(())
}

async fn other_process(world: World) -> anyhow::Result<()> {
    let (second, resource) = (world.second()?, world.resource());
    let readers = hold_shared(&world.store(), &resource, 2).await?;
    for grant in &readers {
        let renewed = second.renew(&resource, &grant.lock_id, secs(60)).await;
        renewed.or_fail("RenewLock at the other")?;
    }
    release_all(&second, &readers).await?;
    hold(&world.store(), &writer(&resource)).await.map(drop)
}

async fn renew_one(world: World) -> anyhow::Result<()> {
    let (store, second, resource) = (world.store(), world.second()?, world.resource());
    let short = hold(&second, &reader(&resource).ttl(secs(2))).await?;
    let renewed = hold(&store, &reader(&resource)).await?;
    let renewal = store.renew(&resource, &renewed.lock_id, secs(60)).await;
    renewal.or_fail("RenewLock by a reader")?;
    // While its grant lives, its lock ID is refused.
    let again = reader(&resource).lock_id(&short.lock_id);
    let deadline = short.lives_until() + EXPIRY_SLACK;
    let again = hold_by(&store, &again, deadline, "the other reader's TTL has passed").await?;
    release_all(&store, &[again, renewed]).await
}

async fn expiry(world: World) -> anyhow::Result<()> {
    let (store, second, resource) = (world.store(), world.second()?, world.resource());
    let short = hold(&store, &reader(&resource).ttl(secs(1))).await?;
    let long = hold_shared(&second, &resource, 1).await?;
    let waiter = second.queue_writer(&writer(&resource)).await?;
    release_all(&second, &long).await?;
    let granted = waiter.answer_within(short.ttl + EXPIRY_SLACK).await?;
    granted.or_fail("the waiting writer").map(drop)
}

async fn late(world: World) -> anyhow::Result<()> {
    let (store, second, resource) = (world.store(), world.second()?, world.resource());
    let readers = hold_shared(&second, &resource, 1).await?;
    let waiter = store.queue_writer(&writer(&resource)).await?;
    second.try_lock(&reader(&resource)).await.refused(Reason::ResourceLocked)?;
    let mut late = second.queue(&reader(&resource)).await?;
    late.stays("a writer at the other waits before it").await?;
    release_all(&second, &readers).await?;
    let held = waiter.granted().await.context("the writer")?;
    late.stays("the writer holds the resource").await?;
    store.release(&held).await.or_fail("the writer's Unlock")?;
    late.granted().await.context("the reader behind the writer").map(drop)
}

async fn cancelled(world: World) -> anyhow::Result<()> {
    let (store, second, resource) = (world.store(), world.second()?, world.resource());
    hold_shared(&store, &resource, 1).await?;
    let waiter = store.queue_writer(&writer(&resource)).await?;
    let behind =
        vec![second.queue(&reader(&resource)).await?, store.queue(&reader(&resource)).await?];
    waiter.cancel().await;
    all_granted(behind, HAND_OVER_MAX).await.map(drop)
}

async fn cut(world: World) -> anyhow::Result<()> {
    let (store, second, resource) = (world.fresh(), world.second()?, world.resource());
    hold_shared(&second, &resource, 1).await?;
    let _waiter = store.queue_writer(&writer(&resource)).await?;
    let behind = vec![second.queue(&reader(&resource)).await?];
    store.cut().await;
    all_granted(behind, HAND_OVER_MAX).await.map(drop)
}

async fn only_writer(world: World) -> anyhow::Result<()> {
    let (store, second, resource) = (world.store(), world.second()?, world.resource());
    hold_shared(&second, &resource, 1).await?;
    store.queue_writer(&writer(&resource)).await?.cancel().await;
    hold_soon(&second, &reader(&resource), "the only waiter was cancelled").await.map(drop)
}

async fn replay(world: World) -> anyhow::Result<()> {
    let (store, second, resource) = (world.store(), world.second()?, world.resource());
    hold_shared(&second, &resource, 3).await?;
    let ask = reader(&resource).request_id(&World::secret());
    let grant = hold(&store, &ask).await?;
    let again = second.try_lock(&ask).await.or_fail("the request repeated")?;
    ensure!(again.lock_id == grant.lock_id, "the other made a second grant");
    Ok(())
}

async fn force(world: World) -> anyhow::Result<()> {
    let (store, second, resource) = (world.store(), world.second()?, world.resource());
    let mut readers = hold_shared(&store, &resource, 2).await?;
    readers.extend(hold_shared(&second, &resource, 2).await?);
    second.force(&resource).await.or_fail("Unlock by force")?;
    hold_soon(&store, &writer(&resource), "after the force").await?;
    for grant in &readers {
        store.release(grant).await.refused(Reason::LockNotFound)?;
    }
    Ok(())
}

//! SHARED and FAIR: one queue for readers and writers, first come, first served.

use std::time::Duration;

use anyhow::Context as _;
use futures_util::future::join_all;

use super::shared::{hold_shared, reader, writer};
use crate::{
    case::{Cases, Demand},
    expect::{Expect as _, wait_ended},
    feature::Feature,
    grant::Grant,
    reason::Reason,
    store::Store,
    waiter::{HAND_OVER_MAX, Waiter},
    world::{EXPIRY_SLACK, World, hold, hold_soon, must_be_held, secs},
};

const SHARED: Demand = Demand::Features(&[Feature::Shared]);
const FAIR: Demand = Demand::Features(&[Feature::Shared, Feature::Fair]);

pub(crate) fn tests(cases: &mut Cases) {
    cases.add(SHARED, "a writer waits until the last reader has unlocked", last_reader);
    cases.add(SHARED, "a waiting writer is granted when the last reader expires", expiry);
    // Trap: all 58
    cases.add(SHARED, "readers that wait for each other are all let in", barrier);
    cases.add(SHARED, "a reader that is cancelled while it waits is never granted", cancelled);
    cases.add(SHARED, "a reader's wait ends with WAIT_DEADLINE while a writer holds", deadline);
    // Trap: all 57
    cases.add(FAIR, "tries of both modes are refused while a writer waits", tries);
    // Trap: all 57
    cases.add(
        FAIR,
        "a reader that comes later does not overtake a waiting writer",
        late_reader,
    );
    cases.add(
        FAIR,
        "readers in a row are let in together, and nobody behind a writer",
        in_rows,
    );
    // Trap: all 58
    cases.add(FAIR, "a cancelled writer lets the readers behind it in", writer_cancelled);
    // Trap: all 58
    cases.add(FAIR, "a writer that was cut off lets the readers behind it in", writer_cut);
    // Trap: all 58
    cases.add(
        FAIR,
        "a writer whose deadline passed lets the readers behind it in",
        writer_deadline,
    );
    // Trap: all 58
    cases.add(
        FAIR,
        "after the only waiter, a writer, is cancelled readers may try",
        only_writer,
    );
    cases.add(FAIR, "a cancelled writer behind another lets nobody in", second_writer);
    cases.add(FAIR, "a cancelled reader in the middle changes no other's turn", middle_reader);
}

/// Expects all of these waiters to be granted while all others hold on to their grants.
pub(crate) async fn all_granted(
    waiters: Vec<Waiter>,
    within: Duration,
) -> anyhow::Result<Vec<Grant>> {
    let count = waiters.len();
    let answers = waiters.into_iter().enumerate().map(|(nth, waiter)| async move {
        let answer = waiter.answer_within(within).await?;
        let what = || format!("reader {} of {count}, that should be let in", nth + 1);
        answer.or_fail("Lock").with_context(what)
    });
    join_all(answers).await.into_iter().collect()
}

pub(crate) async fn release_all(store: &Store, grants: &[Grant]) -> anyhow::Result<()> {
    for grant in grants {
        store.release(grant).await.or_fail("a reader's Unlock")?;
    }
    Ok(())
}

async fn last_reader(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let readers = hold_shared(&store, &resource, 3).await?;
    let mut waiter = store.queue_writer(&writer(&resource)).await?;
    release_all(&store, &readers[..2]).await?;
    waiter.stays("a reader holds the resource").await?;
    release_all(&store, &readers[2..]).await?;
    waiter.granted().await.map(drop)
}

async fn expiry(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let short = hold(&store, &reader(&resource).ttl(secs(1))).await?;
    let long = hold(&store, &reader(&resource).ttl(secs(4))).await?;
    let waiter = store.queue_writer(&writer(&resource)).await?;
    let granted = waiter.answer_within(long.ttl.max(short.ttl) + EXPIRY_SLACK).await?;
    granted.or_fail("the waiting writer").map(drop)
}

async fn barrier(world: World) -> anyhow::Result<()> {
    let resource = world.resource();
    let stores = [world.store(), world.fresh(), world.fresh()];
    for round in 1..=4 {
        let held = hold(&stores[0], &writer(&resource)).await?;
        let early = stores.iter().cycle().take(7).map(|store| store.start(&reader(&resource)));
        let mut waiters: Vec<_> = early.collect();
        waiters.push(stores[0].queue(&reader(&resource)).await?);
        stores[0].release(&held).await.or_fail("the writer's Unlock")?;
        // None of them unlocks before all are granted.
        let readers = all_granted(waiters, secs(10)).await;
        release_all(&stores[0], &readers.with_context(|| format!("round {round}"))?).await?;
    }
    Ok(())
}

async fn cancelled(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let held = hold(&store, &writer(&resource)).await?;
    store.queue(&reader(&resource)).await?.cancel().await;
    store.ping().await.or_fail("Ping behind the cancel")?;
    store.release(&held).await.or_fail("the writer's Unlock")?;
    hold_soon(&store, &writer(&resource), "the only waiter was cancelled").await.map(drop)
}

async fn deadline(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let held = hold(&store, &writer(&resource)).await?;
    wait_ended(store.lock(&reader(&resource).within(secs(5))).await)?;
    store.release(&held).await.or_fail("the writer's Unlock")?;
    hold_soon(&store, &writer(&resource), "the only wait has ended").await.map(drop)
}

async fn tries(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let readers = hold_shared(&store, &resource, 1).await?;
    let waiter = store.queue_writer(&writer(&resource)).await?;
    store.try_lock(&reader(&resource)).await.refused(Reason::ResourceLocked)?;
    store.try_lock(&writer(&resource)).await.refused(Reason::ResourceLocked)?;
    release_all(&store, &readers).await?;
    waiter.granted().await.map(drop)
}

async fn late_reader(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let readers = hold_shared(&store, &resource, 1).await?;
    let waiter = store.queue_writer(&writer(&resource)).await?;
    let mut late = store.queue(&reader(&resource)).await?;
    late.stays("a writer waits before it").await?;
    release_all(&store, &readers).await?;
    let held = waiter.granted().await.context("the writer")?;
    late.stays("the writer holds the resource").await?;
    store.release(&held).await.or_fail("the writer's Unlock")?;
    late.granted().await.context("the reader behind the writer").map(drop)
}

async fn in_rows(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let held = hold(&store, &writer(&resource)).await?;
    let mut first_row = Vec::new();
    for _ in 0..3 {
        first_row.push(store.queue(&reader(&resource)).await?);
    }
    let mut waiter = store.queue_writer(&writer(&resource)).await?;
    let mut last = store.queue(&reader(&resource)).await?;
    store.release(&held).await.or_fail("the writer's Unlock")?;
    let readers = all_granted(first_row, secs(5)).await?;
    waiter.stays("readers hold the resource").await?;
    last.stays("a writer waits before it").await?;
    release_all(&store, &readers[..2]).await?;
    waiter.stays("one reader holds the resource").await?;
    release_all(&store, &readers[2..]).await?;
    let held = waiter.granted().await.context("the writer")?;
    last.stays("the writer holds the resource").await?;
    store.release(&held).await.or_fail("the writer's Unlock")?;
    last.granted().await.context("the last reader").map(drop)
}

/// A reader holds, and two readers wait behind a writer at `at`.
async fn readers_behind_a_writer(
    store: &Store,
    at: &Store,
    resource: &str,
    within: Duration,
) -> anyhow::Result<(Waiter, Vec<Waiter>)> {
    hold_shared(store, resource, 1).await?;
    let waiter = at.queue_writer(&writer(resource).within(within)).await?;
    let readers =
        vec![store.queue(&reader(resource)).await?, store.queue(&reader(resource)).await?];
    Ok((waiter, readers))
}

async fn writer_cancelled(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let (waiter, readers) =
        readers_behind_a_writer(&store, &store, &resource, secs(90)).await?;
    waiter.cancel().await;
    all_granted(readers, HAND_OVER_MAX).await?;
    must_be_held(&store, &resource, "three readers hold the resource").await
}

async fn writer_cut(world: World) -> anyhow::Result<()> {
    let (store, gone, resource) = (world.store(), world.fresh(), world.resource());
    let (_waiter, readers) =
        readers_behind_a_writer(&store, &gone, &resource, secs(90)).await?;
    gone.cut().await;
    all_granted(readers, HAND_OVER_MAX).await.map(drop)
}

async fn writer_deadline(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let (waiter, readers) = readers_behind_a_writer(&store, &store, &resource, secs(5)).await?;
    wait_ended(waiter.answer_within(secs(10)).await?)?;
    all_granted(readers, HAND_OVER_MAX).await.map(drop)
}

async fn only_writer(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    hold_shared(&store, &resource, 1).await?;
    store.queue_writer(&writer(&resource)).await?.cancel().await;
    hold_soon(&store, &reader(&resource), "the only waiter was cancelled").await.map(drop)
}

async fn second_writer(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let readers = hold_shared(&store, &resource, 1).await?;
    let first = store.queue_writer(&writer(&resource)).await?;
    let second = store.queue_writer(&writer(&resource)).await?;
    let mut last = store.queue(&reader(&resource)).await?;
    second.cancel().await;
    last.stays("a writer waits before it").await?;
    release_all(&store, &readers).await?;
    first.granted().await.context("the first writer").map(drop)
}

async fn middle_reader(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let held = hold(&store, &writer(&resource)).await?;
    let first = store.queue(&reader(&resource)).await?;
    let gone = store.queue(&reader(&resource)).await?;
    let second = store.queue(&reader(&resource)).await?;
    let mut waiter = store.queue_writer(&writer(&resource)).await?;
    gone.cancel().await;
    store.ping().await.or_fail("Ping behind the cancel")?;
    store.release(&held).await.or_fail("the writer's Unlock")?;
    let readers = all_granted(vec![first, second], secs(5)).await?;
    waiter.stays("readers hold the resource").await?;
    release_all(&store, &readers).await?;
    waiter.granted().await.context("the writer").map(drop)
}

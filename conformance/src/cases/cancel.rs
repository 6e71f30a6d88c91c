//! Callers that go away.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures_util::future::join_all;
use tokio::time::Instant;

use super::hand_over::serve_all;
use crate::{
    case::Cases,
    expect::Expect as _,
    grant::Ask,
    world::{EXPIRY_SLACK, World, hold, hold_by, hold_soon, secs},
};

/// How often a cancel is raced with a grant. Each race of a round has its own connection.
const RACE_ROUNDS: usize = 4;
const RACES_AT_ONCE: u64 = 50;

const RACE_TTL: Duration = Duration::from_secs(3);

pub(crate) fn tests(cases: &mut Cases) {
    cases.core("a cancelled wait is never granted", cancelled);
    cases.core("a wait whose connection is cut is never granted", cut);
    cases.core("a cancelled wait does not hold up the next waiter", cancelled_next);
    cases.core("a wait whose connection is cut does not hold up the next waiter", cut_next);
    cases.core("waits cancelled between others leave those in the queue", cancelled_between);
    // Trap: all 5
    cases.core("when waits before it are cancelled, a waiter still waits", still_waits);
    cases.core("a holder's grant outlives its connection", grant_outlives);
    // Trap: component 10
    cases.core("a wait cancelled just before its turn is never granted", cancel_first);
    cases.core("a grant that meets a cancel ends with its TTL at the latest", cancel_race);
    cases.alone();
    cases.core("a grant of a cancelled TryLock ends with its TTL at the latest", cancelled_try);
}

/// A Lock with a TTL that is longer than any case waits.
fn lock(resource: &str) -> Ask {
    Ask::of(resource).within(secs(60)).ttl(secs(60))
}

async fn cancelled(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let grant = hold(&store, &Ask::of(&resource)).await?;
    store.queue(&lock(&resource)).await?.cancel().await;
    store.ping().await.or_fail("Ping behind the cancel")?;
    store.release(&grant).await.or_fail("Unlock")?;
    hold_soon(&store, &Ask::of(&resource), "the only waiter was cancelled").await.map(drop)
}

async fn cut(world: World) -> anyhow::Result<()> {
    let (store, gone, resource) = (world.store(), world.fresh(), world.resource());
    let grant = hold(&store, &Ask::of(&resource)).await?;
    let waiter = gone.queue(&lock(&resource)).await?;
    gone.cut().await;
    ensure!(waiter.answer().await?.is_err(), "the Lock was granted over a connection cut");
    store.release(&grant).await.or_fail("Unlock")?;
    hold_soon(&store, &Ask::of(&resource), "the only waiter was cut off").await.map(drop)
}

async fn cancelled_next(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let grant = hold(&store, &Ask::of(&resource)).await?;
    let first = store.queue(&lock(&resource)).await?;
    let second = store.queue(&lock(&resource)).await?;
    first.cancel().await;
    store.release(&grant).await.or_fail("Unlock")?;
    second.granted().await.map(drop)
}

async fn cancelled_between(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let grant = hold(&store, &Ask::of(&resource)).await?;
    let first = store.queue(&lock(&resource)).await?;
    let gone = [(); 3].map(|()| store.start(&lock(&resource)));
    let last = store.queue(&lock(&resource)).await?;
    let behind = store.queue(&lock(&resource)).await?;
    for waiter in gone.into_iter().chain([behind]) {
        waiter.cancel().await;
    }
    store.ping().await.or_fail("Ping behind the cancels")?;
    store.release(&grant).await.or_fail("Unlock")?;
    serve_all(&store, [first, last]).await
}

async fn cut_next(world: World) -> anyhow::Result<()> {
    let (store, gone, resource) = (world.store(), world.fresh(), world.resource());
    let grant = hold(&store, &Ask::of(&resource)).await?;
    let _first = gone.queue(&lock(&resource)).await?;
    let second = store.queue(&lock(&resource)).await?;
    gone.cut().await;
    store.release(&grant).await.or_fail("Unlock")?;
    second.granted().await.map(drop)
}

async fn still_waits(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    hold(&store, &Ask::of(&resource)).await?;
    let first = store.queue(&lock(&resource)).await?;
    let second = store.queue(&lock(&resource)).await?;
    let mut third = store.queue(&lock(&resource)).await?;
    first.cancel().await;
    second.cancel().await;
    third.stays("the holder still lives").await
}

async fn grant_outlives(world: World) -> anyhow::Result<()> {
    let (store, gone, resource) = (world.store(), world.fresh(), world.resource());
    let grant = hold(&gone, &Ask::of(&resource)).await?;
    gone.cut().await;
    store.release(&grant).await.or_fail("Unlock over another connection than the grant's")
}

/// The store has received the cancel before the Unlock is sent, so it must know of it.
async fn cancel_first(world: World) -> anyhow::Result<()> {
    let races = (0..RACES_AT_ONCE).map(|_| async {
        let (store, waiting, resource) = (world.store(), world.fresh(), world.resource());
        let grant = hold(&store, &Ask::of(&resource)).await?;
        waiting.queue(&lock(&resource)).await?.cancel().await;
        // The answer shows that the store has read the cancel, which came before.
        waiting.ping().await.or_fail("Ping behind the cancel")?;
        store.release(&grant).await.or_fail("Unlock")?;
        hold_soon(&store, &Ask::of(&resource), "the only waiter was cancelled").await.map(drop)
    });
    join_all(races).await.into_iter().collect()
}

async fn cancel_race(world: World) -> anyhow::Result<()> {
    for round in 0..RACE_ROUNDS {
        let races = (0..RACES_AT_ONCE)
            .map(|number| race_cancel(&world, Duration::from_micros(number * 60)));
        for (number, raced) in join_all(races).await.into_iter().enumerate() {
            raced.with_context(|| format!("round {round}, race {number}"))?;
        }
    }
    Ok(())
}

/// Cancels a wait while the resource is being released. The store may have handed its answer to
/// a transport that then dropped it silently, so the grant may last until its TTL ends, but no
/// longer.
async fn race_cancel(world: &World, cancel_after: Duration) -> anyhow::Result<()> {
    let (store, waiting, resource) = (world.store(), world.fresh(), world.resource());
    let grant = hold(&store, &Ask::of(&resource)).await?;
    let waiter = waiting.queue(&lock(&resource).ttl(RACE_TTL)).await?;
    let cancel = async {
        tokio::time::sleep(cancel_after).await;
        waiter.cancel().await
    };
    let (answer, released) = tokio::join!(cancel, store.release(&grant));
    released.or_fail("Unlock")?;
    let deadline = Instant::now() + RACE_TTL + EXPIRY_SLACK;
    if let Some(Ok(granted)) = answer {
        store.release(&granted).await.or_fail("Unlock of the grant that came first")?;
    }
    let what = "the wait was cancelled as it was granted, and its TTL has passed";
    hold_by(&store, &Ask::of(&resource), deadline, what).await.map(drop)
}

async fn cancelled_try(world: World) -> anyhow::Result<()> {
    let cut_off = (0..20_u64).map(|number| {
        let (store, gone, resource) = (world.store(), world.fresh(), world.resource());
        async move {
            let ask = Ask::of(&resource).ttl(secs(2));
            gone.ping().await.or_fail("Ping")?;
            let call = gone.try_lock(&ask);
            let _ = tokio::time::timeout(Duration::from_micros(number * 40), call).await;
            let deadline = Instant::now() + secs(2) + EXPIRY_SLACK;
            let what = "the TTL of a TryLock that was cancelled has passed";
            hold_by(&store, &ask, deadline, what).await.map(drop)
        }
    });
    join_all(cut_off).await.into_iter().collect()
}

//! Lock: whose turn it is, and what it is granted.

use std::time::Duration;

use anyhow::ensure;
use futures_util::future::try_join_all;
use tokio::time::Instant;

use crate::{
    case::Cases,
    expect::Expect as _,
    grant::Ask,
    store::Store,
    waiter::{WATCH, Waiter},
    words::Readable,
    world::{EXPIRY_SLACK, World, hold, ms, secs},
};

/// How often a Lock is raced with the release.
const RACES: u64 = 100;

pub(crate) fn tests(cases: &mut Cases) {
    cases.core("a waiter's TTL is its own, not that of the holder before it", own_ttl);
    cases.core("the end of the TTL before it leaves a waiter's grant alone", outlives);
    cases.core("a Lock with the holder's own label or lock ID is not granted", not_reentrant);
    cases.core("two waiters with the same label are both served", same_label);
    cases.core("an expiry serves one waiter only", one_by_expiry);
    cases.core("a Lock that meets the release is served", meets_release);
    cases.alone();
}

fn lock(resource: &str) -> Ask {
    Ask::of(resource).within(secs(60))
}

async fn own_ttl(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let mut holder = hold(&store, &Ask::of(&resource).ttl(secs(60))).await?;
    for asked in [secs(120), secs(30)] {
        let waiter = store.queue(&lock(&resource).ttl(asked)).await?;
        store.release(&holder).await.or_fail("Unlock")?;
        holder = waiter.granted().await?;
        let ttl = holder.ttl;
        ensure!(
            (asked..asked + secs(16)).contains(&ttl),
            "asked for {}, granted {}",
            Readable(asked),
            Readable(ttl)
        );
    }
    Ok(())
}

/// See the case of Unlock whose next grant is made by a TryLock.
async fn outlives(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let first = hold(&store, &Ask::of(&resource).ttl(secs(4))).await?;
    let waiter = store.queue(&lock(&resource)).await?;
    store.release(&first).await.or_fail("Unlock")?;
    let second = waiter.granted().await?;
    tokio::time::sleep_until(first.lives_until() + ms(500)).await;
    store.release(&second).await.or_fail("Unlock after the end of the first grant's TTL")
}

async fn not_reentrant(world: World) -> anyhow::Result<()> {
    let (store, ask) = (world.store(), lock(&world.resource()).holder("same"));
    let grant = hold(&store, &ask).await?;
    for ask in [ask.clone(), ask.lock_id(&grant.lock_id)] {
        let waiter = store.start(&ask);
        tokio::time::sleep(ms(300)).await;
        let answer = waiter.cancel().await;
        ensure!(
            !matches!(answer, Some(Ok(_))),
            "the holder was granted its own resource again"
        );
    }
    Ok(())
}

async fn same_label(world: World) -> anyhow::Result<()> {
    let (store, ask) = (world.store(), lock(&world.resource()).holder("same"));
    let grant = hold(&store, &ask).await?;
    let waiters = [store.queue(&ask).await?, store.queue(&ask).await?];
    store.release(&grant).await.or_fail("Unlock")?;
    serve_all(&store, waiters).await
}

async fn one_by_expiry(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let grant = hold(&store, &Ask::of(&resource).ttl(secs(1))).await?;
    let waiters = [(); 3].map(|()| store.start(&lock(&resource)));
    let served = || waiters.iter().filter(|waiter| waiter.is_answered()).count();
    while served() == 0 {
        ensure!(Instant::now() < grant.lives_until() + EXPIRY_SLACK, "no waiter was served");
        tokio::time::sleep(ms(10)).await;
    }
    tokio::time::sleep(WATCH).await;
    ensure!(served() == 1, "{} waiters were served", served());
    Ok(())
}

/// A Lock that finds the resource held must not miss the release that comes right after.
async fn meets_release(world: World) -> anyhow::Result<()> {
    let races = (0..RACES).map(|number| {
        let (store, other, resource) = (world.store(), world.fresh(), world.resource());
        async move {
            let grant = hold(&store, &Ask::of(&resource)).await?;
            other.ping().await.or_fail("Ping")?;
            let waiter = other.start(&lock(&resource));
            tokio::time::sleep(Duration::from_micros(number * 100)).await;
            store.release(&grant).await.or_fail("Unlock")?;
            waiter.granted().await.map(drop)
        }
    });
    try_join_all(races).await.map(drop)
}

/// Unlocks the grant of each waiter, in whatever order they are served.
pub(super) async fn serve_all<const N: usize>(
    store: &Store,
    waiters: [Waiter; N],
) -> anyhow::Result<()> {
    let served = waiters.map(|waiter| async {
        store.release(&waiter.granted().await?).await.or_fail("a waiter's Unlock")
    });
    try_join_all(served).await.map(drop)
}

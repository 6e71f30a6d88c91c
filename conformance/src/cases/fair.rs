//! FAIR: waiters are served first come, first served.

use std::collections::VecDeque;

use anyhow::{Context as _, bail, ensure};
use futures_util::future::join_all;

use crate::{
    case::{Cases, Demand},
    expect::{Expect as _, wait_ended},
    feature::Feature,
    grant::Ask,
    reason::Reason,
    store::Store,
    waiter::Waiter,
    world::{EXPIRY_SLACK, World, hold, secs},
};

const FAIR: Demand = Demand::Features(&[Feature::Fair]);

pub(crate) fn tests(cases: &mut Cases) {
    cases.add(FAIR, "six waiters are served in the order of their coming", in_order);
    cases.add(FAIR, "waiters on several connections are served in order", over_connections);
    cases.add(FAIR, "one release wakes one waiter", one_release_one_waiter);
    cases.add(FAIR, "an expiry serves the first waiter, and only it", expiry);
    cases.add(FAIR, "a TryLock does not overtake a waiter", no_overtaking);
    cases.alone();
    cases.add(FAIR, "a later Lock does not overtake a waiter", lock_does_not_overtake);
    cases.add(FAIR, "a waiter that was cut off is passed over", passed_over);
    // Trap: all 5
    cases.add(FAIR, "a cancelled waiter in the middle changes no other's turn", middle);
    cases.add(FAIR, "a waiter whose deadline passed changes no other's turn", deadline);
    cases.add(FAIR, "a waiter that was cancelled and asks again stands at the end", at_the_end);
}

fn lock(resource: &str) -> Ask {
    Ask::of(resource).within(secs(90))
}

/// Starts waiters one after the other, on each store in turn.
async fn queue(stores: &[Store], resource: &str, count: usize) -> anyhow::Result<Vec<Waiter>> {
    let mut waiters = Vec::with_capacity(count);
    for store in stores.iter().cycle().take(count) {
        waiters.push(store.queue(&lock(resource)).await?);
    }
    Ok(waiters)
}

/// Expects the waiters to be granted in this order, and releases each grant.
pub(crate) async fn serve_in_order(store: &Store, waiters: Vec<Waiter>) -> anyhow::Result<()> {
    let mut waiters = VecDeque::from(waiters);
    let count = waiters.len();
    while let Some(waiter) = waiters.pop_front() {
        let number = count - waiters.len();
        let grant = waiter.granted().await.with_context(|| format!("waiter {number}"))?;
        let early =
            waiters.iter().position(Waiter::is_answered).map(|index| number + 1 + index);
        if let Some(early) = early {
            bail!("waiter {early} was answered in the turn of waiter {number}");
        }
        store.release(&grant).await.or_fail("a waiter's Unlock")?;
    }
    Ok(())
}

async fn in_order(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let grant = hold(&store, &Ask::of(&resource)).await?;
    let waiters = queue(std::slice::from_ref(&store), &resource, 6).await?;
    store.release(&grant).await.or_fail("Unlock")?;
    serve_in_order(&store, waiters).await
}

async fn over_connections(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let grant = hold(&store, &Ask::of(&resource)).await?;
    let stores = [world.fresh(), world.fresh(), world.fresh()];
    let waiters = queue(&stores, &resource, 6).await?;
    store.release(&grant).await.or_fail("Unlock")?;
    serve_in_order(&store, waiters).await
}

async fn one_release_one_waiter(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let grant = hold(&store, &Ask::of(&resource)).await?;
    let first = store.queue(&lock(&resource)).await?;
    let mut second = store.queue(&lock(&resource)).await?;
    store.release(&grant).await.or_fail("Unlock")?;
    first.granted().await?;
    second.stays("the first waiter holds the resource").await
}

async fn expiry(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let grant = hold(&store, &Ask::of(&resource).ttl(secs(4))).await?;
    let first = store.queue(&lock(&resource)).await?;
    let mut second = store.queue(&lock(&resource)).await?;
    first.answer_within(grant.ttl + EXPIRY_SLACK).await?.or_fail("the first waiter")?;
    second.stays("the first waiter holds the resource").await
}

async fn no_overtaking(world: World) -> anyhow::Result<()> {
    for _ in 0..10 {
        let (store, resource) = (world.store(), world.resource());
        let grant = hold(&store, &Ask::of(&resource)).await?;
        let waiter = store.queue(&lock(&resource)).await?;
        // The waiter keeps its grant until the end of the case, so any try that is granted
        // has overtaken it.
        let tries = join_all((0..8).map(|_| async {
            for _ in 0..40 {
                let tried = store.try_lock(&Ask::of(&resource)).await;
                tried.refused(Reason::ResourceLocked).context("a try beside a waiter")?;
            }
            anyhow::Ok(())
        }));
        let (tried, released) = tokio::join!(tries, store.release(&grant));
        released.or_fail("Unlock")?;
        tried.into_iter().collect::<anyhow::Result<()>>()?;
        waiter.granted().await?;
    }
    Ok(())
}

async fn lock_does_not_overtake(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let grant = hold(&store, &Ask::of(&resource)).await?;
    let first = store.queue(&lock(&resource)).await?;
    let later = (0..20).map(|_| store.start(&lock(&resource))).collect::<Vec<_>>();
    store.release(&grant).await.or_fail("Unlock")?;
    first.granted().await?;
    let answered_count = later.iter().filter(|waiter| waiter.is_answered()).count();
    ensure!(answered_count == 0, "{answered_count} later waiters were answered first");
    Ok(())
}

async fn passed_over(world: World) -> anyhow::Result<()> {
    let (store, gone, resource) = (world.store(), world.fresh(), world.resource());
    let grant = hold(&store, &Ask::of(&resource)).await?;
    let _first = gone.queue(&lock(&resource)).await?;
    let waiters = queue(std::slice::from_ref(&store), &resource, 2).await?;
    gone.cut().await;
    store.release(&grant).await.or_fail("Unlock")?;
    serve_in_order(&store, waiters).await
}

async fn middle(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let grant = hold(&store, &Ask::of(&resource)).await?;
    let mut waiters = queue(std::slice::from_ref(&store), &resource, 4).await?;
    waiters.remove(1).cancel().await;
    store.release(&grant).await.or_fail("Unlock")?;
    serve_in_order(&store, waiters).await
}

async fn deadline(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let grant = hold(&store, &Ask::of(&resource)).await?;
    let first = store.queue(&lock(&resource)).await?;
    let short = store.queue(&lock(&resource).within(secs(5))).await?;
    let last = store.queue(&lock(&resource)).await?;
    wait_ended(short.answer_within(secs(10)).await?)?;
    store.release(&grant).await.or_fail("Unlock")?;
    serve_in_order(&store, vec![first, last]).await
}

async fn at_the_end(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let grant = hold(&store, &Ask::of(&resource)).await?;
    let gone = store.queue(&lock(&resource)).await?;
    let next = store.queue(&lock(&resource)).await?;
    gone.cancel().await;
    let again = store.queue(&lock(&resource)).await?;
    store.release(&grant).await.or_fail("Unlock")?;
    serve_in_order(&store, vec![next, again]).await
}

//! RenewLock while others wait, and as the grant ends.

use std::time::Duration;

use anyhow::ensure;
use futures_util::future::try_join_all;

use crate::{
    case::Cases,
    expect::{Expect as _, not_before},
    grant::Ask,
    reason::Reason,
    world::{EXPIRY_SLACK, World, hold, hold_soon, ms, secs},
};

/// How often a renewal is raced with the end of its grant.
const RACES: u64 = 50;

pub(crate) fn tests(cases: &mut Cases) {
    cases.core("a renewal keeps a waiter out past the first TTL", keeps_out);
    cases.core("a shortening renewal lets a waiter in when its TTL ends", lets_in);
    cases.core("a renewal that meets the Unlock brings nothing back", meets_unlock);
    cases.core("a renewal that meets the expiry keeps the waiter out or fails", meets_expiry);
}

/// A waiter must not rely on the end of the TTL that it saw when it came.
async fn keeps_out(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let grant = hold(&store, &Ask::of(&resource).ttl(secs(4))).await?;
    let mut waiter = store.queue(&Ask::of(&resource).within(secs(60))).await?;
    store.renew(&resource, &grant.lock_id, secs(60)).await.or_fail("RenewLock")?;
    tokio::time::sleep_until(grant.lives_until()).await;
    waiter.stays("the grant was renewed before its first TTL ended").await
}

async fn lets_in(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let grant = hold(&store, &Ask::of(&resource)).await?;
    let waiter = store.queue(&Ask::of(&resource).within(secs(60))).await?;
    let renewal = store.renew(&resource, &grant.lock_id, ms(500)).await.or_fail("RenewLock")?;
    let next = waiter.answer_within(renewal.ttl + EXPIRY_SLACK).await?.or_fail("the waiter")?;
    not_before(next.answered_at, renewal.lives_until(), "the waiter was granted the resource")
}

/// A store that reads a grant and then writes it back must not do so after the Unlock.
async fn meets_unlock(world: World) -> anyhow::Result<()> {
    let races = (0..RACES).map(|number| {
        let (store, other, resource) = (world.store(), world.fresh(), world.resource());
        async move {
            // One after another, so that none delays the next.
            tokio::time::sleep(ms(20 * number)).await;
            let grant = hold(&store, &Ask::of(&resource)).await?;
            other.ping().await.or_fail("Ping")?;
            let unlock = async {
                tokio::time::sleep(Duration::from_micros(number * 100)).await;
                other.release(&grant).await
            };
            let (_, unlocked) =
                tokio::join!(store.renew(&resource, &grant.lock_id, secs(60)), unlock);
            unlocked.or_fail("Unlock")?;
            hold_soon(&store, &Ask::of(&resource), "unlocked as it was renewed").await.map(drop)
        }
    });
    try_join_all(races).await.map(drop)
}

async fn meets_expiry(world: World) -> anyhow::Result<()> {
    let races = (0..RACES).map(|number| {
        let (store, resource) = (world.store(), world.resource());
        async move {
            tokio::time::sleep(ms(20 * number)).await;
            let grant = hold(&store, &Ask::of(&resource).ttl(secs(1))).await?;
            let waiter = store.start(&Ask::of(&resource).within(secs(60)));
            // From 5 ms before the end of the TTL to 5 ms after it.
            let end = grant.lives_until() - ms(5) + Duration::from_micros(number * 200);
            tokio::time::sleep_until(end).await;
            let renewed = store.renew(&resource, &grant.lock_id, secs(60)).await;
            if renewed.is_err() {
                renewed.refused(Reason::LockNotFound)?;
                return waiter
                    .answer_within(EXPIRY_SLACK)
                    .await?
                    .or_fail("the waiter")
                    .map(drop);
            }
            ensure!(!waiter.is_answered(), "renewed, though its waiter had been granted");
            store.release(&grant).await.or_fail("Unlock of the renewed grant")?;
            waiter.granted().await.map(drop)
        }
    });
    try_join_all(races).await.map(drop)
}

//! RenewLock.

use std::time::Duration;

use anyhow::ensure;
use leasehold_proto::components::RenewLockRequest;

use crate::{
    case::Cases,
    expect::{Expect as _, not_before, not_shorter},
    grant::{Ask, Grant},
    reason::Reason,
    store::Store,
    words::Readable,
    world::{EXPIRY_SLACK, World, hold, hold_by, ms, must_be_held, secs},
};

pub(crate) fn tests(cases: &mut Cases) {
    cases.core("RenewLock is implemented", implemented);
    cases.core("a renewal starts the TTL again", restarts);
    cases.core("a renewal may lengthen the TTL", lengthens);
    cases.core("a renewal may shorten the TTL", shortens);
    cases.core("of several renewals the last one counts", last_counts);
    cases.core("a renewal's TTL is never shorter than what was asked for", full);
    cases.core("a renewal without a TTL gives the default of 30 s", default);
    cases.core("a renewal's TTL below 100 ms is raised to it", raised);
    cases.core("a grant can be renewed many times", many);
    cases.core("a renewed grant is unlocked with the same lock ID", same_id);
    cases.core("with another's lock ID it is LOCK_NOT_FOUND with held true", wrong_id);
    cases.core("with another's lock ID it leaves the holder's TTL alone", wrong_id_no_effect);
    cases.core("of a free resource it is LOCK_NOT_FOUND with held false", free);
    cases.core("of a free resource it creates nothing", creates_nothing);
    cases.core("of an expired grant it is LOCK_NOT_FOUND with held false", expired);
    cases.core("of an expired grant it does not bring it back", not_revived);
    cases.core("of an expired grant it does not pass for the next holder's", another_holds);
    // Trap: all 13
    cases.core("of an expired grant it fails also after another came and went", came_and_went);
    cases.core("of an expired grant it fails also if nobody took the resource", abandoned);
    cases.core("of an unlocked grant it is LOCK_NOT_FOUND", unlocked);
    cases.core("a renewal does not serve the waiters", not_a_release);
}

/// A grant whose TTL has ended.
async fn expired_grant(store: &Store, resource: &str) -> anyhow::Result<Grant> {
    let grant = hold(store, &Ask::of(resource).ttl(ms(200))).await?;
    let deadline = grant.lives_until() + EXPIRY_SLACK;
    let next = hold_by(store, &Ask::of(resource), deadline, "after the TTL").await?;
    store.release(&next).await.or_fail("Unlock")?;
    Ok(grant)
}

/// A store without RenewLock fails here once; the other cases that renew are ignored.
async fn implemented(world: World) -> anyhow::Result<()> {
    ensure!(
        !world.lacks().renewal,
        "RenewLock answers UNIMPLEMENTED. It is part of the core: without it a lock cannot \
         outlive its TTL. The cases that renew are ignored until then"
    );
    let (store, resource) = (world.store(), world.resource());
    let grant = hold(&store, &Ask::of(&resource)).await?;
    let renewed = store.renew(&resource, &grant.lock_id, secs(60)).await;
    renewed.or_fail("RenewLock by the holder").map(drop)
}

async fn restarts(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let grant = hold(&store, &Ask::of(&resource).ttl(secs(4))).await?;
    tokio::time::sleep(grant.ttl / 4).await;
    // Not whole seconds: a store may cut off the rest.
    let renewal =
        store.renew(&resource, &grant.lock_id, ms(3900)).await.or_fail("RenewLock")?;
    let deadline = renewal.lives_until() + EXPIRY_SLACK;
    let next = hold_by(&store, &Ask::of(&resource), deadline, "after the renewed TTL").await?;
    not_before(next.answered_at, renewal.lives_until(), "another was granted the resource")
}

async fn lengthens(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let grant = hold(&store, &Ask::of(&resource).ttl(secs(3))).await?;
    let renewal =
        store.renew(&resource, &grant.lock_id, secs(60)).await.or_fail("RenewLock")?;
    not_shorter(renewal.ttl, secs(60))?;
    tokio::time::sleep_until(grant.lives_until() + ms(700)).await;
    must_be_held(&store, &resource, "past the first TTL, within the renewed one").await
}

async fn shortens(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let grant = hold(&store, &Ask::of(&resource).ttl(secs(60))).await?;
    let renewal = store.renew(&resource, &grant.lock_id, ms(500)).await.or_fail("RenewLock")?;
    ensure!(renewal.ttl < secs(30), "asked for 500 ms, granted {}", Readable(renewal.ttl));
    let deadline = renewal.lives_until() + EXPIRY_SLACK;
    let next = hold_by(&store, &Ask::of(&resource), deadline, "after the shorter TTL").await?;
    not_before(next.answered_at, renewal.lives_until(), "another was granted the resource")
}

async fn last_counts(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let grant = hold(&store, &Ask::of(&resource)).await?;
    let mut longest_short = Duration::ZERO;
    for ttl in [secs(2), secs(60), ms(2500), secs(60)] {
        let renewed = store.renew(&resource, &grant.lock_id, ttl).await.or_fail("RenewLock")?;
        if ttl < secs(60) {
            longest_short = longest_short.max(renewed.ttl);
        }
    }
    tokio::time::sleep(longest_short + ms(500)).await;
    must_be_held(&store, &resource, "past a shorter TTL, which was renewed").await
}

async fn full(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let grant = hold(&store, &Ask::of(&resource)).await?;
    for asked in [ms(2500), ms(1500), secs(40)] {
        let renewal =
            store.renew(&resource, &grant.lock_id, asked).await.or_fail("RenewLock")?;
        not_shorter(renewal.ttl, asked)?;
    }
    Ok(())
}

async fn default(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.new_instance()?, world.resource());
    let mut properties = world.properties();
    properties.retain(|name, _| !name.eq_ignore_ascii_case("ttl"));
    store.init(properties).await.or_fail("Init without the property `ttl`")?;
    let grant = hold(&store, &Ask::of(&resource).ttl(secs(90))).await?;
    let request = RenewLockRequest {
        resource_id: resource,
        lock_id: grant.lock_id,
        ..Default::default()
    };
    let ttl = store.renew_raw(request).await.or_fail("RenewLock without a TTL")?.ttl;
    ensure!((secs(30)..=secs(45)).contains(&ttl), "granted {}", Readable(ttl));
    Ok(())
}

async fn raised(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let grant = hold(&store, &Ask::of(&resource)).await?;
    let renewed = store.renew(&resource, &grant.lock_id, Duration::from_millis(1)).await;
    not_shorter(renewed.or_fail("RenewLock")?.ttl, ms(100))
}

async fn many(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let grant = hold(&store, &Ask::of(&resource)).await?;
    for number in 1..=50 {
        let renewed = store.renew(&resource, &grant.lock_id, secs(60)).await;
        renewed.or_fail(&format!("renewal {number}"))?;
    }
    Ok(())
}

async fn same_id(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let grant = hold(&store, &Ask::of(&resource)).await?;
    for ttl in [secs(90), secs(30)] {
        store.renew(&resource, &grant.lock_id, ttl).await.or_fail("RenewLock")?;
    }
    store.release(&grant).await.or_fail("Unlock after renewals")
}

async fn wrong_id(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    hold(&store, &Ask::of(&resource)).await?;
    let renewed = store.renew(&resource, &World::secret(), secs(60)).await;
    renewed.refused(Reason::LockNotFound)?.held_is(true)
}

async fn wrong_id_no_effect(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let grant = hold(&store, &Ask::of(&resource).ttl(secs(1))).await?;
    // Another case checks that this is refused.
    let _ = store.renew(&resource, &World::secret(), secs(90)).await;
    let deadline = grant.lives_until() + EXPIRY_SLACK;
    hold_by(&store, &Ask::of(&resource), deadline, "after the holder's TTL").await.map(drop)
}

async fn free(world: World) -> anyhow::Result<()> {
    let renewed = world.store().renew(&world.resource(), &World::secret(), secs(60)).await;
    renewed.refused(Reason::LockNotFound)?.held_is(false)
}

async fn creates_nothing(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let _ = store.renew(&resource, &World::secret(), secs(60)).await;
    store.try_lock(&Ask::of(&resource)).await.or_fail("a TryLock after the renewal").map(drop)
}

async fn expired(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let grant = expired_grant(&store, &resource).await?;
    let renewed = store.renew(&resource, &grant.lock_id, secs(60)).await;
    renewed.refused(Reason::LockNotFound)?.held_is(false)
}

async fn not_revived(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let grant = expired_grant(&store, &resource).await?;
    let _ = store.renew(&resource, &grant.lock_id, secs(60)).await;
    store.try_lock(&Ask::of(&resource)).await.or_fail("a TryLock after the renewal").map(drop)
}

async fn another_holds(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let grant = expired_grant(&store, &resource).await?;
    hold(&store, &Ask::of(&resource)).await?;
    let renewed = store.renew(&resource, &grant.lock_id, secs(60)).await;
    renewed.refused(Reason::LockNotFound)?.held_is(true)
}

async fn came_and_went(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let grant = expired_grant(&store, &resource).await?;
    let other = hold(&store, &Ask::of(&resource)).await?;
    store.release(&other).await.or_fail("Unlock")?;
    let renewed = store.renew(&resource, &grant.lock_id, secs(60)).await;
    renewed.refused(Reason::LockNotFound).map(drop)
}

/// A store that looks for expired grants only when it grants must look here too.
async fn abandoned(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let grant = hold(&store, &Ask::of(&resource).ttl(secs(1))).await?;
    tokio::time::sleep_until(grant.lives_until() + EXPIRY_SLACK).await;
    let renewed = store.renew(&resource, &grant.lock_id, secs(60)).await;
    renewed.refused(Reason::LockNotFound)?.held_is(false)
}

async fn unlocked(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let grant = hold(&store, &Ask::of(&resource)).await?;
    store.release(&grant).await.or_fail("Unlock")?;
    let renewed = store.renew(&resource, &grant.lock_id, secs(60)).await;
    renewed.refused(Reason::LockNotFound).map(drop)
}

async fn not_a_release(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let grant = hold(&store, &Ask::of(&resource)).await?;
    let mut waiter = store.queue(&Ask::of(&resource).within(secs(60))).await?;
    for ttl in [secs(90), secs(30)] {
        store.renew(&resource, &grant.lock_id, ttl).await.or_fail("RenewLock")?;
    }
    waiter.stays("the grant was only renewed").await
}

//! SHARED: many readers hold a resource together, and none beside a writer. A reader is the
//! caller of a shared grant, a writer that of an exclusive one.

use anyhow::{Context as _, ensure};
use leasehold_proto::components::LockMode;
use tokio::time::Instant;

use crate::{
    case::{Cases, Demand},
    expect::{Expect as _, not_before},
    feature::Feature,
    grant::{Ask, Grant},
    reason::Reason,
    store::Store,
    world::{EXPIRY_SLACK, World, hold, hold_by, hold_soon, ms, must_be_held, secs},
};

const SHARED: Demand = Demand::Features(&[Feature::Shared]);
const WITH_FORCE: Demand = Demand::Features(&[Feature::Shared, Feature::ForceUnlock]);
const WITH_TOKENS: Demand = Demand::Features(&[Feature::Shared, Feature::Fencing]);
const READERS: usize = 3;

pub(crate) fn tests(cases: &mut Cases) {
    cases.add(SHARED, "readers hold a resource together", together);
    cases.add(SHARED, "a Lock of a reader beside readers is granted at once", lock_beside);
    cases.add(SHARED, "a writer is refused while a reader holds", writer_refused);
    cases.add(SHARED, "a reader is refused while a writer holds", reader_refused);
    cases.add(SHARED, "a refused reader leaves nothing behind", refused_leaves_nothing);
    // Trap: all 60
    cases.add(SHARED, "a reader's lock ID does not make it a writer", no_upgrade);
    cases.add(SHARED, "a writer's lock ID does not make it a reader", no_downgrade);
    cases.add(SHARED, "an Unlock ends one of several shared grants", unlock_one);
    // Trap: all 59
    cases.add(SHARED, "a renewal lengthens one of several shared grants", renew_one);
    // Trap: all 59
    cases.add(SHARED, "an expiry ends one of several shared grants", expire_one);
    // Trap: all 61
    cases.add(SHARED, "the longest of several shared grants keeps writers out", longest);
    // Trap: all 61
    cases.add(SHARED, "the longest shared grant, once unlocked, keeps nobody out", shorter);
    cases.add(
        SHARED,
        "with another's lock ID Unlock and RenewLock are LOCK_NOT_FOUND with held true",
        another_lock_id,
    );
    cases.add(SHARED, "a try with a reader's lock ID is RESOURCE_LOCKED", same_lock_id_try);
    cases.add(
        SHARED,
        "a Lock with a reader's lock ID is INVALID_REQUEST for lock_id",
        same_lock_id_lock,
    );
    cases.add(SHARED, "the lock ID of an ended shared grant is granted again", lock_id_again);
    cases.add(
        SHARED,
        "at the property `maxHolders` a try is TOO_MANY_HOLDERS and a Lock waits",
        holders_max,
    );
    cases.add(WITH_FORCE, "force ends all shared grants", force_ends_all);
    cases.add(WITH_FORCE, "force of readers lets a waiting writer in", force_hands_over);
    cases.add(
        WITH_TOKENS,
        "the token of a writer lies between those of readers before and after it",
        tokens,
    );
}

/// Asks for a shared grant.
pub(crate) fn reader(resource: &str) -> Ask {
    Ask::of(resource).mode(LockMode::Shared).within(secs(90))
}

/// Asks for an exclusive grant.
pub(crate) fn writer(resource: &str) -> Ask {
    Ask::of(resource).within(secs(90))
}

/// Makes this many shared grants of a resource that nobody waits for.
pub(crate) async fn hold_shared(
    store: &Store,
    resource: &str,
    count: usize,
) -> anyhow::Result<Vec<Grant>> {
    let mut grants = Vec::with_capacity(count);
    for number in 1..=count {
        let granted = store.try_lock(&reader(resource)).await;
        let granted = granted.or_fail("the try of a reader");
        grants.push(granted.with_context(|| format!("reader {number} of {count}"))?);
    }
    Ok(grants)
}

/// Waits until a shared grant has ended, by asking for its lock ID again, which is refused
/// while the grant lives.
async fn ends(store: &Store, grant: &Grant, deadline: Instant) -> anyhow::Result<Grant> {
    let again = reader(&grant.resource).lock_id(&grant.lock_id);
    hold_by(store, &again, deadline, "a reader's grant must end with its TTL").await
}

async fn together(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let grants = hold_shared(&store, &resource, READERS).await?;
    for (nth, grant) in grants.iter().enumerate() {
        let is_new = grants[..nth].iter().all(|other| other.lock_id != grant.lock_id);
        ensure!(is_new, "two grants have the lock ID {}", grant.lock_id);
    }
    for grant in &grants {
        store.release(grant).await.or_fail("a reader's Unlock")?;
    }
    hold(&store, &writer(&resource)).await.map(drop)
}

async fn lock_beside(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    hold_shared(&store, &resource, 1).await?;
    store.lock(&reader(&resource).within(secs(5))).await.or_fail("Lock of a reader").map(drop)
}

async fn writer_refused(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    hold_shared(&store, &resource, 1).await?;
    store.try_lock(&writer(&resource)).await.refused(Reason::ResourceLocked).map(drop)
}

async fn reader_refused(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    hold(&store, &writer(&resource)).await?;
    store.try_lock(&reader(&resource)).await.refused(Reason::ResourceLocked).map(drop)
}

async fn refused_leaves_nothing(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let held = hold(&store, &writer(&resource)).await?;
    for _ in 0..20 {
        store.try_lock(&reader(&resource)).await.refused(Reason::ResourceLocked)?;
    }
    store.release(&held).await.or_fail("the writer's Unlock")?;
    hold(&store, &writer(&resource)).await.map(drop)
}

async fn no_upgrade(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let grant = hold(&store, &reader(&resource)).await?;
    let upgrade = writer(&resource).lock_id(&grant.lock_id);
    store.try_lock(&upgrade).await.refused(Reason::ResourceLocked).map(drop)
}

async fn no_downgrade(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let grant = hold(&store, &writer(&resource)).await?;
    let downgrade = reader(&resource).lock_id(&grant.lock_id);
    store.try_lock(&downgrade).await.refused(Reason::ResourceLocked).map(drop)
}

async fn unlock_one(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let mut grants = hold_shared(&store, &resource, READERS).await?;
    let ended = grants.remove(1);
    store.release(&ended).await.or_fail("a reader's Unlock")?;
    store.release(&ended).await.refused(Reason::LockNotFound)?.held_is(true)?;
    for grant in &grants {
        must_be_held(&store, &resource, "one reader of several has unlocked").await?;
        store.release(grant).await.or_fail("another reader's Unlock")?;
    }
    hold(&store, &writer(&resource)).await.map(drop)
}

async fn renew_one(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let renewed = hold(&store, &reader(&resource)).await?;
    let other = hold(&store, &reader(&resource).ttl(secs(2))).await?;
    let renewal = store.renew(&resource, &renewed.lock_id, secs(60)).await;
    renewal.or_fail("RenewLock by a reader")?;
    let again = ends(&store, &other, other.lives_until() + EXPIRY_SLACK).await?;
    not_before(again.answered_at, other.lives_until(), "the other reader's grant ended")?;
    store.release(&renewed).await.or_fail("Unlock of the renewed grant")
}

async fn expire_one(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let kept = hold_shared(&store, &resource, 2).await?;
    let short = hold(&store, &reader(&resource).ttl(ms(500))).await?;
    let again = ends(&store, &short, short.lives_until() + EXPIRY_SLACK).await?;
    store.release(&again).await.or_fail("Unlock")?;
    for grant in &kept {
        must_be_held(&store, &resource, "one reader of several has expired").await?;
        store.release(grant).await.or_fail("Unlock by a reader that has not expired")?;
    }
    Ok(())
}

async fn longest(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    hold(&store, &reader(&resource).ttl(ms(200))).await?;
    let long = hold(&store, &reader(&resource).ttl(secs(4))).await?;
    let brief = hold(&store, &reader(&resource).ttl(secs(2))).await?;
    // Neither a shorter grant that comes later nor its end shortens the longest.
    store.release(&brief).await.or_fail("a reader's Unlock")?;
    let deadline = long.lives_until() + EXPIRY_SLACK;
    let next = hold_by(&store, &writer(&resource), deadline, "after the longest TTL").await?;
    not_before(next.answered_at, long.lives_until(), "a writer was granted the resource")
}

async fn shorter(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let short = hold(&store, &reader(&resource).ttl(secs(1))).await?;
    let long = hold(&store, &reader(&resource)).await?;
    let waiter = store.queue_writer(&writer(&resource)).await?;
    store.release(&long).await.or_fail("Unlock of the longer grant")?;
    let granted = waiter.answer_within(short.ttl + EXPIRY_SLACK).await?;
    granted.or_fail("the writer, after the shorter TTL").map(drop)
}

async fn another_lock_id(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    hold_shared(&store, &resource, 2).await?;
    let secret = World::secret();
    store.unlock(&resource, &secret).await.refused(Reason::LockNotFound)?.held_is(true)?;
    let renewed = store.renew(&resource, &secret, secs(60)).await;
    renewed.refused(Reason::LockNotFound)?.held_is(true)?;
    must_be_held(&store, &resource, "nobody's lock ID was unlocked").await
}

async fn same_lock_id_try(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let own = reader(&resource).lock_id(&World::secret());
    hold(&store, &own).await?;
    store.try_lock(&own).await.refused(Reason::ResourceLocked).map(drop)
}

async fn same_lock_id_lock(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let own = reader(&resource).lock_id(&World::secret());
    hold(&store, &own).await?;
    let again = store.lock(&own.within(secs(5))).await;
    again.refused(Reason::InvalidRequest)?.names(&["lock_id"])
}

async fn lock_id_again(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    hold_shared(&store, &resource, 1).await?;
    let own = reader(&resource).lock_id(&World::secret());
    for _ in 0..2 {
        let grant = hold(&store, &own).await?;
        store.release(&grant).await.or_fail("a reader's Unlock")?;
    }
    Ok(())
}

async fn holders_max(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.new_instance()?, world.resource());
    let mut properties = world.properties();
    properties.insert("maxHolders".to_owned(), "2".to_owned());
    store.init(properties).await.or_fail("Init with maxHolders 2")?;
    let grants = hold_shared(&store, &resource, 2).await?;
    store.try_lock(&reader(&resource)).await.refused(Reason::TooManyHolders)?;
    let waiter = store.queue(&reader(&resource)).await?;
    store.release(&grants[0]).await.or_fail("a reader's Unlock")?;
    waiter.granted().await.map(drop)
}

async fn force_ends_all(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let grants = hold_shared(&store, &resource, READERS).await?;
    store.force(&resource).await.or_fail("Unlock by force")?;
    hold_soon(&store, &writer(&resource), "after the force").await?;
    for grant in &grants {
        store.release(grant).await.refused(Reason::LockNotFound)?;
    }
    must_be_held(&store, &resource, "readers that were forced have unlocked").await
}

async fn force_hands_over(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    hold_shared(&store, &resource, READERS).await?;
    let waiter = store.queue_writer(&writer(&resource)).await?;
    store.force(&resource).await.or_fail("Unlock by force")?;
    waiter.granted().await.map(drop)
}

async fn tokens(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let mut least = 0;
    for round in 1..=3 {
        let readers = hold_shared(&store, &resource, READERS).await?;
        let mut greatest = least;
        for grant in &readers {
            let token = grant.token;
            ensure!(
                token > least,
                "round {round}: a reader after the token {least} has {token}"
            );
            greatest = greatest.max(token);
            store.release(grant).await.or_fail("a reader's Unlock")?;
        }
        let grant = hold(&store, &writer(&resource)).await?;
        least = grant.token;
        ensure!(least > greatest, "round {round}: a writer after {greatest} has {least}");
        store.release(&grant).await.or_fail("the writer's Unlock")?;
    }
    Ok(())
}

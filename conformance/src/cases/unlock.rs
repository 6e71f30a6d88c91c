//! Unlock by the lock ID.

use std::time::Duration;

use futures_util::future::try_join_all;

use crate::{
    case::{Cases, Demand},
    expect::Expect as _,
    feature::Feature,
    grant::Ask,
    reason::Reason,
    world::{EXPIRY_SLACK, World, hold, hold_by, ms, must_be_held, secs},
};

pub(crate) fn tests(cases: &mut Cases) {
    cases.core("it frees the resource at once", frees);
    cases.core("with another's lock ID it is LOCK_NOT_FOUND with held true", wrong_id);
    cases.core("with another's lock ID it leaves the grant alone", wrong_id_no_effect);
    cases.core("of a free resource it is LOCK_NOT_FOUND with held false", free);
    cases.core("repeated, it is LOCK_NOT_FOUND with held false", repeated);
    cases.core("of an expired grant it is LOCK_NOT_FOUND", expired);
    cases.core("of an expired grant it fails also if nobody took the resource", abandoned);
    cases.core("that meets the expiry, it leaves the next holder's grant alone", meets_expiry);
    // Trap: all 22
    cases.core("come late, it leaves the next holder's grant alone", late);
    for (lock_id, same) in [("another", false), ("the same", true)] {
        let sentence = format!(
            "the end of the unlocked grant's TTL leaves {lock_id} lock ID's grant alone"
        );
        cases.core(sentence, move |world| outlives(world, same));
    }
    cases
        .core("a refusal shows neither the holder's lock ID nor its request ID", keeps_secrets);
    cases.add(
        Demand::Without(Feature::ForceUnlock),
        "by force it is UNSUPPORTED where it is not declared",
        no_force,
    );
}

async fn frees(world: World) -> anyhow::Result<()> {
    let (store, ask) = (world.store(), Ask::of(&world.resource()));
    let grant = hold(&store, &ask).await?;
    store.release(&grant).await.or_fail("Unlock by the holder")?;
    store.try_lock(&ask).await.or_fail("a TryLock right after the Unlock").map(drop)
}

async fn wrong_id(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    hold(&store, &Ask::of(&resource)).await?;
    let unlocked = store.unlock(&resource, &World::secret()).await;
    unlocked.refused(Reason::LockNotFound)?.held_is(true)
}

async fn wrong_id_no_effect(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    hold(&store, &Ask::of(&resource)).await?;
    // Another case checks that this is refused.
    let _ = store.unlock(&resource, &World::secret()).await;
    must_be_held(&store, &resource, "after an Unlock with another's lock ID").await
}

async fn free(world: World) -> anyhow::Result<()> {
    let unlocked = world.store().unlock(&world.resource(), &World::secret()).await;
    unlocked.refused(Reason::LockNotFound)?.held_is(false)
}

/// A store that ends grants by timers must not let the timer of an unlocked grant end the next.
async fn outlives(world: World, same_lock_id: bool) -> anyhow::Result<()> {
    let (store, other, resource) = (world.store(), world.fresh(), world.resource());
    let ask = |ttl| Ask::of(&resource).ttl(ttl);
    // Long enough to unlock it in time on a busy machine.
    let first = hold(&store, &ask(secs(2))).await?;
    store.release(&first).await.or_fail("Unlock by the holder")?;
    let lock_id = if same_lock_id { first.lock_id.clone() } else { World::secret() };
    let second = hold(&other, &ask(secs(60)).lock_id(&lock_id)).await?;
    tokio::time::sleep_until(first.lives_until() + secs(1)).await;
    must_be_held(&store, &resource, "after the end of the unlocked grant's TTL").await?;
    other.release(&second).await.or_fail("Unlock of the second grant")
}

async fn repeated(world: World) -> anyhow::Result<()> {
    let store = world.store();
    let grant = hold(&store, &Ask::of(&world.resource())).await?;
    store.release(&grant).await.or_fail("the first Unlock")?;
    let unlocked = store.release(&grant).await;
    unlocked.refused(Reason::LockNotFound)?.held_is(false)
}

async fn expired(world: World) -> anyhow::Result<()> {
    let (store, ask) = (world.store(), Ask::of(&world.resource()));
    let grant = hold(&store, &ask.clone().ttl(ms(200))).await?;
    let deadline = grant.lives_until() + EXPIRY_SLACK;
    hold_by(&store, &ask, deadline, "after the TTL").await?;
    store.release(&grant).await.refused(Reason::LockNotFound).map(drop)
}

async fn abandoned(world: World) -> anyhow::Result<()> {
    let (store, ask) = (world.store(), Ask::of(&world.resource()));
    let grant = hold(&store, &ask.ttl(secs(1))).await?;
    tokio::time::sleep_until(grant.lives_until() + EXPIRY_SLACK).await;
    store.release(&grant).await.refused(Reason::LockNotFound)?.held_is(false)
}

/// A store that reads a grant and then deletes what is there may delete the next one.
async fn meets_expiry(world: World) -> anyhow::Result<()> {
    let races = (0..50_u64).map(|number| {
        let (store, ask) = (world.store(), Ask::of(&world.resource()));
        async move {
            // One after another, so that none delays the next.
            tokio::time::sleep(ms(20 * number)).await;
            let grant = hold(&store, &ask.clone().ttl(secs(1))).await?;
            let waiter = store.start(&ask.clone().within(secs(60)));
            // From 5 ms before the end of the TTL to 5 ms after it.
            let end = grant.lives_until() - ms(5) + Duration::from_micros(number * 200);
            tokio::time::sleep_until(end).await;
            // It may be in time or too late.
            let _ = store.release(&grant).await;
            let next = waiter.answer_within(EXPIRY_SLACK).await?.or_fail("the waiter")?;
            store.release(&next).await.or_fail("the next holder's Unlock")
        }
    });
    try_join_all(races).await.map(drop)
}

async fn late(world: World) -> anyhow::Result<()> {
    let (store, ask) = (world.store(), Ask::of(&world.resource()));
    let grant = hold(&store, &ask).await?;
    store.release(&grant).await.or_fail("Unlock")?;
    let next = hold(&store, &ask).await?;
    let _ = store.release(&grant).await;
    store.release(&next).await.or_fail("the next holder's Unlock")
}

async fn keeps_secrets(world: World) -> anyhow::Result<()> {
    let (resource, request_id) = (world.resource(), World::secret());
    let ask = Ask::of(&resource);
    let ask = if world.declares(Feature::Replay) { ask.request_id(&request_id) } else { ask };
    let grant = hold(&world.store(), &ask).await?;
    let unlocked = world.store().unlock(&resource, &World::secret()).await;
    let refusal = unlocked.refused(Reason::LockNotFound)?;
    refusal.keeps_secret(&grant.lock_id)?;
    refusal.keeps_secret(&request_id)
}

async fn no_force(world: World) -> anyhow::Result<()> {
    let resource = world.resource();
    hold(&world.store(), &Ask::of(&resource)).await?;
    world.store().force(&resource).await.refused(Reason::Unsupported)?;
    must_be_held(&world.store(), &resource, "after the refused force").await
}

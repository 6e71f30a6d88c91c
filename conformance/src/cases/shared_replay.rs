//! SHARED and REPLAY: a repeated request finds its own of many shared grants.

use anyhow::{Context as _, ensure};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use leasehold_proto::components::LockMode;

use super::shared::{reader, writer};
use crate::{
    case::{Cases, Demand},
    expect::Expect as _,
    feature::Feature,
    grant::{Ask, Grant},
    reason::Reason,
    store::Store,
    world::{EXPIRY_SLACK, World, hold, hold_by, must_be_held, secs},
};

const REPLAY: Demand = Demand::Features(&[Feature::Shared, Feature::Replay]);
/// So many that a store that searches all grants for the request is slow.
const READERS: usize = 500;
const AT_ONCE: usize = 16;

pub(crate) fn tests(cases: &mut Cases) {
    cases.add(REPLAY, "each of 500 repeated requests finds its own shared grant", of_many);
    cases.add(
        REPLAY,
        "a repeated request finds its shared grant while a writer waits",
        waiting,
    );
    // Trap: all 60
    cases.add(
        REPLAY,
        "a shared request repeated in exclusive mode is INVALID_REQUEST for mode",
        |world| other_mode(world, LockMode::Shared, LockMode::Exclusive),
    );
    cases.add(
        REPLAY,
        "an exclusive request repeated in shared mode is INVALID_REQUEST for mode",
        |world| other_mode(world, LockMode::Exclusive, LockMode::Shared),
    );
    cases.add(REPLAY, "one Unlock ends a shared grant that was repeated", one_unlock);
    // Trap: all 59
    cases.add(REPLAY, "a repeated request starts the TTL of its own grant again", own_ttl);
    cases.add(REPLAY, "the request ID of an ended shared grant makes a new one", ended);
}

fn repeatable(resource: &str) -> Ask {
    reader(resource).request_id(&World::secret())
}

fn same_grant(first: &Grant, again: &Grant) -> anyhow::Result<()> {
    let (first, again) = (&first.lock_id, &again.lock_id);
    ensure!(first == again, "first granted the lock ID {first}, then {again}");
    Ok(())
}

async fn hold_each(store: &Store, asks: &[Ask]) -> anyhow::Result<Vec<Grant>> {
    let grants = stream::iter(asks.to_vec()).map(|ask| {
        let store = store.clone();
        async move { store.try_lock(&ask).await.or_fail("the try of a reader") }
    });
    grants.buffered(AT_ONCE).try_collect().await
}

async fn of_many(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let asks: Vec<_> = (0..READERS).map(|_| repeatable(&resource)).collect();
    let first = hold_each(&store, &asks).await?;
    let again = hold_each(&store, &asks).await.context("a repeated request")?;
    for (first, again) in first.iter().zip(&again) {
        same_grant(first, again)?;
    }
    Ok(())
}

async fn waiting(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let ask = repeatable(&resource);
    let first = hold(&store, &ask).await?;
    let _waiter = store.queue_writer(&writer(&resource)).await?;
    let again = store.try_lock(&ask).await.or_fail("the repeated TryLock")?;
    same_grant(&first, &again)?;
    let again = store.lock(&ask.within(secs(5))).await.or_fail("the request as a Lock")?;
    same_grant(&first, &again)
}

async fn other_mode(world: World, first: LockMode, second: LockMode) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let ask = repeatable(&resource);
    hold(&store, &ask.clone().mode(first)).await?;
    let again = ask.mode(second).within(secs(5));
    let tried = store.try_lock(&again).await;
    tried.refused(Reason::InvalidRequest).context("TryLock")?.names(&["mode"])?;
    let locked = store.lock(&again).await;
    locked.refused(Reason::InvalidRequest).context("Lock")?.names(&["mode"])
}

async fn one_unlock(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let ask = repeatable(&resource);
    let grant = hold(&store, &ask).await?;
    store.try_lock(&ask).await.or_fail("the repeated TryLock")?;
    store.release(&grant).await.or_fail("Unlock")?;
    hold(&store, &writer(&resource)).await.map(drop)
}

async fn own_ttl(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let repeated = repeatable(&resource);
    let kept = hold(&store, &repeated.clone().ttl(secs(2))).await?;
    let other = hold(&store, &reader(&resource).ttl(secs(2))).await?;
    store.try_lock(&repeated).await.or_fail("the request repeated with a TTL of 60 s")?;
    let again = reader(&resource).lock_id(&other.lock_id);
    let deadline = other.lives_until() + EXPIRY_SLACK;
    let again = hold_by(&store, &again, deadline, "the other reader's TTL has passed").await?;
    store.release(&again).await.or_fail("Unlock")?;
    must_be_held(&store, &resource, "the TTL of one reader was started again").await?;
    store.release(&kept).await.or_fail("Unlock of the grant whose request was repeated")
}

async fn ended(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    hold(&store, &reader(&resource)).await?;
    let ask = repeatable(&resource);
    let first = hold(&store, &ask).await?;
    store.release(&first).await.or_fail("Unlock")?;
    let second = hold(&store, &ask).await?;
    ensure!(first.lock_id != second.lock_id, "the old lock ID was granted again");
    Ok(())
}

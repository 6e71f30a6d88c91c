//! FORCE_UNLOCK: ending whoever's grant.

use leasehold_proto::components::UnlockRequest;

use crate::{
    case::{Cases, Demand},
    expect::Expect as _,
    feature::Feature,
    grant::Ask,
    reason::Reason,
    world::{World, hold, secs},
};

const FORCE: Demand = Demand::Features(&[Feature::ForceUnlock]);

pub(crate) fn tests(cases: &mut Cases) {
    cases.add(FORCE, "force ends a grant without its lock ID", ends);
    cases.add(FORCE, "force ends a grant whatever the lock ID with it", ignores_lock_id);
    cases.add(FORCE, "after force the old holder's Unlock is LOCK_NOT_FOUND", old_unlock);
    cases.add(FORCE, "after force the old holder's RenewLock is LOCK_NOT_FOUND", old_renewal);
    cases.add(FORCE, "force hands the resource over to the first waiter", hands_over);
    cases.add(FORCE, "force wakes one waiter only", one_waiter);
    cases.add(FORCE, "force on a free resource is LOCK_NOT_FOUND with held false", free);
    cases.add(FORCE, "force on one resource leaves another alone", another);
    cases.add(FORCE, "force with an empty resource_id is INVALID_REQUEST", empty);
}

async fn ends(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    hold(&store, &Ask::of(&resource)).await?;
    store.force(&resource).await.or_fail("Unlock by force")?;
    store.try_lock(&Ask::of(&resource)).await.or_fail("a TryLock after the force").map(drop)
}

async fn ignores_lock_id(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    hold(&store, &Ask::of(&resource)).await?;
    let unlock = UnlockRequest {
        resource_id: resource,
        lock_id: World::secret(),
        force: true,
        ..Default::default()
    };
    store.unlock_raw(unlock).await.or_fail("Unlock by force with another's lock ID")
}

async fn old_unlock(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let grant = hold(&store, &Ask::of(&resource)).await?;
    store.force(&resource).await.or_fail("Unlock by force")?;
    store.release(&grant).await.refused(Reason::LockNotFound).map(drop)
}

async fn old_renewal(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let grant = hold(&store, &Ask::of(&resource)).await?;
    store.force(&resource).await.or_fail("Unlock by force")?;
    let renewed = store.renew(&resource, &grant.lock_id, secs(60)).await;
    renewed.refused(Reason::LockNotFound).map(drop)
}

async fn hands_over(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    hold(&store, &Ask::of(&resource)).await?;
    let waiter = store.queue(&Ask::of(&resource).within(secs(60))).await?;
    store.force(&resource).await.or_fail("Unlock by force")?;
    waiter.granted().await.map(drop)
}

async fn one_waiter(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    hold(&store, &Ask::of(&resource)).await?;
    let ask = Ask::of(&resource).within(secs(60));
    let first = store.queue(&ask).await?;
    let mut second = store.queue(&ask).await?;
    store.force(&resource).await.or_fail("Unlock by force")?;
    first.granted().await?;
    second.stays("the first waiter holds the resource").await
}

async fn free(world: World) -> anyhow::Result<()> {
    let forced = world.store().force(&world.resource()).await;
    forced.refused(Reason::LockNotFound)?.held_is(false)
}

async fn another(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let kept = hold(&store, &Ask::of(&world.resource())).await?;
    hold(&store, &Ask::of(&resource)).await?;
    store.force(&resource).await.or_fail("Unlock by force")?;
    store.release(&kept).await.or_fail("Unlock of the other resource")
}

async fn empty(world: World) -> anyhow::Result<()> {
    world.store().force("").await.refused(Reason::InvalidRequest)?.names(&["resource_id"])
}

//! WATCH: a watch reports what is held now, and then each change.

use anyhow::{Context as _, ensure};
use leasehold_proto::{
    components::LockMode,
    locks::{EndCause, EndLocksRequest, LockEvent, WatchLocksRequest},
};

use super::inspection::hold_below;
use crate::{
    case::{Cases, Demand},
    expect::Expect as _,
    feature::Feature,
    grant::{Ask, Grant},
    inspector::scope,
    reason::Reason,
    world::{World, hold, ms},
};

const WATCH: Demand = Demand::Features(&[Feature::Watch]);
const SHARED: Demand = Demand::Features(&[Feature::Watch, Feature::Shared]);
const TWO: Demand = Demand::TwoProcesses(&[Feature::Watch]);

pub(crate) fn tests(cases: &mut Cases) {
    cases.add(WATCH, "it first reports what is held, and then that this is all", first);
    cases.add(WATCH, "a grant and its release are reported", released);
    cases.add(WATCH, "an expiry is reported", expired);
    cases.add(WATCH, "a grant that was ended by force is reported", forced);
    cases.add(SHARED, "each reader that comes or goes is reported", readers);
    cases.add(WATCH, "a watch of one resource reports no other", one_resource);
    cases.add(WATCH, "after many quick changes the last state is reported", quick);
    cases.add(WATCH, "its events add up to what a list returns", folded);
    cases.add(WATCH, "no event has a lock ID", no_secrets);
    cases.add(WATCH, "a watch of a resource and a scope is INVALID_REQUEST", both);
    cases.add(TWO, "a change by another process is reported", two_processes);
    cases.add(
        Demand::Without(Feature::Watch),
        "WatchLocks is UNIMPLEMENTED where WATCH is not declared",
        undeclared,
    );
}

/// Fails unless the event reports the end of the grant, with this cause if it is known.
fn reports_end(event: &LockEvent, grant: &Grant, cause: EndCause) -> anyhow::Result<()> {
    let of_grant = |ended: &&leasehold_proto::locks::EndedGrant| {
        ended.grant.as_ref().is_some_and(|shown| shown.grant_id == grant.grant_id)
    };
    let ended = event.ended.iter().find(of_grant);
    let shown = ended.with_context(|| format!("the end is not reported: {event:?}"))?.cause();
    ensure!(shown == cause || shown == EndCause::Unknown, "the reported cause is {shown:?}");
    Ok(())
}

async fn first(world: World) -> anyhow::Result<()> {
    let (store, prefix) = (world.store(), world.resource());
    let mut grants = hold_below(&store, &prefix, 3).await?;
    let freed = grants.remove(0);
    store.release(&freed).await.or_fail("Unlock")?;
    let watcher = store.watch(&prefix).await?;
    let shown: Vec<_> = watcher.locks.keys().collect();
    let held: Vec<_> = grants.iter().map(|grant| &grant.resource).collect();
    ensure!(shown == held, "shown are {shown:?}, held {held:?}");
    Ok(())
}

async fn released(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let mut watcher = store.watch(&resource).await?;
    let grant = hold(&store, &Ask::of(&resource).holder("h")).await?;
    let event =
        watcher.until_state(&resource, "the grant", |state| !state.grants.is_empty()).await?;
    let shown = event.state.context("a state")?.grants;
    ensure!(
        shown[0].grant_id == grant.grant_id && shown[0].holder == "h",
        "reported: {shown:?}"
    );
    store.release(&grant).await.or_fail("Unlock")?;
    let event =
        watcher.until_state(&resource, "the release", |state| state.grants.is_empty()).await?;
    reports_end(&event, &grant, EndCause::Released)
}

async fn expired(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let mut watcher = store.watch(&resource).await?;
    let grant = hold(&store, &Ask::of(&resource)).await?;
    // A store that is polled every two seconds may not see a grant that lasts less.
    watcher.until_state(&resource, "the grant", |state| !state.grants.is_empty()).await?;
    store.renew(&resource, &grant.lock_id, ms(300)).await.or_fail("RenewLock")?;
    let event =
        watcher.until_state(&resource, "the expiry", |state| state.grants.is_empty()).await?;
    reports_end(&event, &grant, EndCause::Expired)
}

async fn forced(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let grant = hold(&store, &Ask::of(&resource)).await?;
    let mut watcher = store.watch(&resource).await?;
    let asked = EndLocksRequest { resource_id: resource.clone(), ..EndLocksRequest::default() };
    store.end_raw(asked).await.or_fail("EndLocks")?;
    let event =
        watcher.until_state(&resource, "the end", |state| state.grants.is_empty()).await?;
    reports_end(&event, &grant, EndCause::Forced)
}

async fn readers(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let mut watcher = store.watch(&resource).await?;
    let reader = Ask::of(&resource).mode(LockMode::Shared);
    let first = hold(&store, &reader).await?;
    hold(&store, &reader).await?;
    watcher.until_state(&resource, "two readers", |state| state.grants_total == 2).await?;
    store.release(&first).await.or_fail("a reader's Unlock")?;
    watcher.until_state(&resource, "one reader", |state| state.grants_total == 1).await?;
    Ok(())
}

async fn one_resource(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let asked =
        WatchLocksRequest { resource_id: resource.clone(), ..WatchLocksRequest::default() };
    let mut watcher = store.watch_raw(asked).await.or_fail("WatchLocks")?;
    watcher.until("that all states are reported", |event, _| event.synced).await?;
    hold(&store, &Ask::of(&format!("{resource}/below"))).await?;
    hold(&store, &Ask::of(&resource)).await?;
    watcher
        .until_state(&resource, "the resource's grant", |state| !state.grants.is_empty())
        .await?;
    let shown: Vec<_> = watcher.locks.keys().collect();
    ensure!(shown == [&resource], "shown are {shown:?}");
    Ok(())
}

async fn quick(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let mut watcher = store.watch(&resource).await?;
    for _ in 0..50 {
        let grant = hold(&store, &Ask::of(&resource)).await?;
        store.release(&grant).await.or_fail("Unlock")?;
    }
    let last = hold(&store, &Ask::of(&resource)).await?;
    watcher
        .until_state(&resource, "the last grant", |state| {
            state.grants.iter().any(|shown| shown.grant_id == last.grant_id)
        })
        .await?;
    Ok(())
}

async fn folded(world: World) -> anyhow::Result<()> {
    let (store, prefix) = (world.store(), world.resource());
    let mut watcher = store.watch(&prefix).await?;
    let grants = hold_below(&store, &prefix, 30).await?;
    for grant in grants.iter().step_by(3) {
        store.release(grant).await.or_fail("Unlock")?;
    }
    let ids =
        |locks: &std::collections::BTreeMap<String, leasehold_proto::locks::LockState>| {
            let id = |(name, state): (&String, &leasehold_proto::locks::LockState)| {
                (name.clone(), state.grants.first().map(|grant| grant.grant_id.clone()))
            };
            locks.iter().map(id).collect::<Vec<_>>()
        };
    let listed = ids(&store.list(&prefix, 100).await?);
    ensure!(listed.len() == 20, "{} of 20 locks are listed", listed.len());
    watcher.until("what the list returns", |_, locks| ids(locks) == listed).await?;
    Ok(())
}

async fn no_secrets(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let mut watcher = store.watch(&resource).await?;
    let grant = hold(&store, &Ask::of(&resource).lock_id(&World::secret())).await?;
    let granted =
        watcher.until_state(&resource, "the grant", |state| !state.grants.is_empty()).await?;
    store.release(&grant).await.or_fail("Unlock")?;
    let freed =
        watcher.until_state(&resource, "the release", |state| state.grants.is_empty()).await?;
    let shown = format!("{granted:?} {freed:?}");
    let plain = grant.lock_id.replace('-', "");
    ensure!(!shown.contains(&grant.lock_id) && !shown.contains(&plain), "it shows {shown}");
    Ok(())
}

async fn both(world: World) -> anyhow::Result<()> {
    let (store, resource_id) = (world.store(), world.resource());
    let scope = Some(scope(&resource_id));
    let asked = WatchLocksRequest { resource_id, scope, ..WatchLocksRequest::default() };
    store.watch_raw(asked).await.refused(Reason::InvalidRequest)?.names(&["scope"])
}

async fn two_processes(world: World) -> anyhow::Result<()> {
    let (store, second, resource) = (world.store(), world.second()?, world.resource());
    let mut watcher = second.watch(&resource).await?;
    let grant = hold(&store, &Ask::of(&resource)).await?;
    watcher.until_state(&resource, "the grant", |state| !state.grants.is_empty()).await?;
    store.release(&grant).await.or_fail("Unlock")?;
    watcher.until_state(&resource, "the release", |state| state.grants.is_empty()).await?;
    Ok(())
}

async fn undeclared(world: World) -> anyhow::Result<()> {
    let (store, resource_id) = (world.store(), world.resource());
    let asked = WatchLocksRequest { resource_id, ..WatchLocksRequest::default() };
    match store.watch_raw(asked).await {
        // A store without the service at all.
        Err(rejection) if rejection.code() == tonic::Code::Unimplemented => Ok(()),
        answer => answer.refused(Reason::Unsupported).map(drop),
    }
}

//! INSPECTION: everybody may see who holds what, and nobody sees a lock ID.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use leasehold_proto::{
    components::LockMode,
    locks::{self as proto, GetLockRequest, GrantInfo, ListLocksRequest},
};
use prost_types::Timestamp;

use super::list_waiters::{self, queue_until_listed, waiters_page};
use crate::{
    case::{Cases, Demand},
    expect::Expect as _,
    feature::Feature,
    grant::{Ask, Grant},
    inspector::scope,
    reason::Reason,
    store::Store,
    world::{World, hold, secs},
};

const INSPECTION: Demand = Demand::Features(&[Feature::Inspection]);
const FAIR: Demand = Demand::Features(&[Feature::Inspection, Feature::Fair]);
const REPLAY: Demand = Demand::Features(&[Feature::Inspection, Feature::Replay]);
const SHARED: Demand = Demand::Features(&[Feature::Inspection, Feature::Shared]);
const TWO: Demand = Demand::TwoProcesses(&[Feature::Inspection]);

pub(crate) fn tests(cases: &mut Cases) {
    cases.add(INSPECTION, "a free resource has no grants and no waiters", free);
    cases.add(INSPECTION, "GetLock returns holder, mode and remaining TTL of a grant", held);
    cases.add(INSPECTION, "each grant has a grant ID of its own, which GetLock returns", ids);
    cases.add(INSPECTION, "a renewal leaves the grant ID as it was", renewed);
    cases.add(REPLAY, "a repeated request gets the grant ID of its grant", replayed);
    cases.add(INSPECTION, "GetLock returns how many wait", list_waiters::counted);
    cases.add(
        FAIR,
        "ListWaiters returns who waits, in the order of the queue",
        list_waiters::in_queue_order,
    );
    cases.add(FAIR, "waiters come in pages", list_waiters::in_pages);
    cases.add(INSPECTION, "nobody waits for a free resource", list_waiters::of_a_free_resource);
    cases.add(INSPECTION, "a list has what is held, and not what is free", list);
    cases.add(INSPECTION, "a list has only names that begin with its prefix", list_prefix);
    cases.add(INSPECTION, "the pages of a list together have every lock", list_in_pages);
    cases.add(INSPECTION, "a holder's prefix leaves the grants of others out", list_holder);
    cases.add(SHARED, "GetLock pages the grants of many readers", readers_in_pages);
    cases.add(SHARED, "a list shows 100 of many readers and their number", many);
    cases.add(INSPECTION, "a refused try is shown the grant that GetLock returns", refusal);
    cases.add(SHARED, "of many readers a refused try is shown one", refusal_by_readers);
    cases.add(INSPECTION, "no answer has a lock ID or a request ID", no_secrets);
    cases.add(TWO, "a process sees what another's caller holds", two_processes);
}

/// The grants of a resource.
pub(crate) async fn grants(store: &Store, resource: &str) -> anyhow::Result<Vec<GrantInfo>> {
    let found = store.get_lock(resource).await.or_fail("GetLock")?;
    Ok(found.lock.context("GetLock returned no lock")?.grants)
}

/// The only grant of a resource.
pub(crate) async fn only_grant(store: &Store, resource: &str) -> anyhow::Result<GrantInfo> {
    let mut grants = grants(store, resource).await?;
    ensure!(grants.len() == 1, "GetLock must return one grant, it returned {grants:?}");
    grants.pop().context("one grant")
}

/// Locks resources whose names begin with `prefix`.
pub(crate) async fn hold_below(
    store: &Store,
    prefix: &str,
    count: usize,
) -> anyhow::Result<Vec<Grant>> {
    let mut grants = Vec::with_capacity(count);
    for number in 0..count {
        grants.push(hold(store, &Ask::of(&format!("{prefix}/{number:03}"))).await?);
    }
    Ok(grants)
}

async fn free(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let found = store.get_lock(&resource).await.or_fail("GetLock of a free resource")?;
    let lock = found.lock.context("GetLock returned no lock")?;
    ensure!(lock.resource_id == resource, "GetLock returned {:?}", lock.resource_id);
    ensure!(lock.grants.is_empty() && lock.grants_total == 0, "grants: {:?}", lock.grants);
    ensure!(found.waiters == 0, "{} waiters", found.waiters);
    Ok(())
}

async fn held(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    hold(&store, &Ask::of(&resource).holder("app/1/ü")).await?;
    let grant = only_grant(&store, &resource).await?;
    ensure!(grant.holder == "app/1/ü", "the holder is {:?}", grant.holder);
    ensure!(grant.mode() == proto::LockMode::Exclusive, "the mode is {:?}", grant.mode());
    ensure!(!grant.foreign, "it is shown as foreign");
    let remaining = grant.remaining.context("the remaining TTL is missing")?;
    ensure!((1..=70).contains(&remaining.seconds), "of 60 s remain {} s", remaining.seconds);
    Ok(())
}

async fn ids(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let mut seen = BTreeSet::new();
    for round in 1..=3 {
        let grant = hold(&store, &Ask::of(&resource)).await?;
        let shown = only_grant(&store, &resource).await?.grant_id;
        let is_id = |id: &str| {
            id.len() == 32 && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        ensure!(is_id(&shown), "{shown:?} is not 32 lower-case hexadecimal digits");
        ensure!(
            grant.grant_id == shown,
            "round {round}: the holder got the grant ID {:?}, GetLock returns {shown:?}",
            grant.grant_id
        );
        ensure!(seen.insert(shown), "two grants have the grant ID {}", grant.grant_id);
        store.release(&grant).await.or_fail("Unlock")?;
    }
    Ok(())
}

async fn renewed(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let grant = hold(&store, &Ask::of(&resource)).await?;
    // A changed TTL, for which a backend may move the grant.
    store.renew(&resource, &grant.lock_id, secs(90)).await.or_fail("RenewLock")?;
    let shown = only_grant(&store, &resource).await?.grant_id;
    ensure!(shown == grant.grant_id, "{} became {shown}", grant.grant_id);
    Ok(())
}

async fn replayed(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let ask = Ask::of(&resource).request_id(&World::secret());
    let grant = hold(&store, &ask).await?;
    let again = store.try_lock(&ask).await.or_fail("the repeated TryLock")?;
    ensure!(again.grant_id == grant.grant_id, "{} and {}", grant.grant_id, again.grant_id);
    let shown = only_grant(&store, &resource).await?.grant_id;
    ensure!(shown == grant.grant_id, "GetLock returns {shown}, not {}", grant.grant_id);
    Ok(())
}

async fn list(world: World) -> anyhow::Result<()> {
    let (store, prefix) = (world.store(), world.resource());
    let mut grants = hold_below(&store, &prefix, 4).await?;
    let freed = grants.remove(1);
    store.release(&freed).await.or_fail("Unlock")?;
    let listed = store.list(&prefix, 100).await?;
    let expected: BTreeSet<_> = grants.iter().map(|grant| &grant.resource).collect();
    ensure!(listed.keys().collect::<BTreeSet<_>>() == expected, "listed: {:?}", listed.keys());
    for grant in &grants {
        let state = &listed[&grant.resource];
        let shown: Vec<_> = state.grants.iter().map(|shown| &shown.grant_id).collect();
        ensure!(shown == [&grant.grant_id] && state.grants_total == 1, "listed: {state:?}");
    }
    Ok(())
}

async fn list_prefix(world: World) -> anyhow::Result<()> {
    let (store, prefix) = (world.store(), world.resource());
    for odd in ["*", "[a]", "?", "\\", "%", "ü", "\""] {
        let below = format!("{prefix}{odd}");
        hold(&store, &Ask::of(&format!("{below}1"))).await?;
        hold(&store, &Ask::of(&format!("{prefix}x{odd}1"))).await?;
        let listed = store.list(&below, 100).await?;
        let names: Vec<_> = listed.keys().collect();
        ensure!(names == [&format!("{below}1")], "below {below:?} there are {names:?}");
    }
    Ok(())
}

async fn list_in_pages(world: World) -> anyhow::Result<()> {
    let (store, prefix) = (world.store(), world.resource());
    let grants = hold_below(&store, &prefix, 25).await?;
    let listed = store.list(&prefix, 4).await?;
    ensure!(
        listed.len() == grants.len(),
        "of {} locks {} are listed",
        grants.len(),
        listed.len()
    );
    Ok(())
}

async fn list_holder(world: World) -> anyhow::Result<()> {
    let (store, prefix) = (world.store(), world.resource());
    for (number, holder) in ["app/1", "app/2", "other", ""].into_iter().enumerate() {
        hold(&store, &Ask::of(&format!("{prefix}/{number}")).holder(holder)).await?;
    }
    let mut asked = ListLocksRequest {
        scope: Some(scope(&prefix)),
        holder_prefix: "app/".to_owned(),
        ..ListLocksRequest::default()
    };
    let mut holders = Vec::new();
    loop {
        let page = store.list_raw(asked.clone()).await.or_fail("ListLocks")?;
        let grants = page.locks.into_iter().flat_map(|lock| lock.grants);
        holders.extend(grants.map(|grant| grant.holder));
        asked.page_token = page.next_page_token;
        if asked.page_token.is_empty() {
            break;
        }
    }
    holders.sort();
    ensure!(holders == ["app/1", "app/2"], "listed are {holders:?}");
    Ok(())
}

async fn readers_in_pages(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let mut expected = BTreeSet::new();
    for _ in 0..5 {
        let ask = Ask::of(&resource).mode(LockMode::Shared);
        expected.insert(hold(&store, &ask).await?.grant_id);
    }
    let mut shown = BTreeSet::new();
    let mut asked = GetLockRequest {
        resource_id: resource.clone(),
        page_size: 2,
        ..GetLockRequest::default()
    };
    for _ in 0..10 {
        let page = store.get_lock_raw(asked.clone()).await.or_fail("GetLock")?;
        let lock = page.lock.context("GetLock returned no lock")?;
        ensure!(lock.grants.len() <= 2, "a page of {} grants", lock.grants.len());
        ensure!(lock.grants_total == 5, "{} grants in all", lock.grants_total);
        shown.extend(lock.grants.into_iter().map(|grant| grant.grant_id));
        asked.page_token = page.next_page_token;
        if asked.page_token.is_empty() {
            break;
        }
    }
    ensure!(shown == expected, "shown are {shown:?}, held {expected:?}");
    Ok(())
}

async fn many(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    for _ in 0..120 {
        hold(&store, &Ask::of(&resource).mode(LockMode::Shared)).await?;
    }
    let listed = store.list(&resource, 100).await?;
    let lock = listed.get(&resource).context("it is not listed")?;
    ensure!(lock.grants_total == 120, "{} grants in all", lock.grants_total);
    ensure!(lock.grants.len() == 100, "{} grants are shown", lock.grants.len());
    Ok(())
}

async fn refusal(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    hold(&store, &Ask::of(&resource)).await?;
    let shown = only_grant(&store, &resource).await?;
    let refused = store.try_lock(&Ask::of(&resource)).await.refused(Reason::ResourceLocked)?;
    let id = refused.metadata("grantID")?;
    ensure!(id == shown.grant_id, "the refusal shows {id}, GetLock {}", shown.grant_id);
    let mode = refused.metadata("mode")?;
    ensure!(mode == "exclusive", "the mode is shown as {mode:?}");
    let since = refused.metadata("since")?;
    let parsed: Timestamp = since.parse().with_context(|| format!("{since:?} is no time"))?;
    ensure!(Some(parsed) == shown.since, "since {since}, GetLock returns {:?}", shown.since);
    Ok(())
}

async fn refusal_by_readers(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let mut ids = BTreeSet::new();
    for _ in 0..3 {
        ids.insert(hold(&store, &Ask::of(&resource).mode(LockMode::Shared)).await?.grant_id);
    }
    let refused = store.try_lock(&Ask::of(&resource)).await.refused(Reason::ResourceLocked)?;
    let id = refused.metadata("grantID")?;
    ensure!(ids.contains(id), "the refusal shows {id:?}, held are {ids:?}");
    let mode = refused.metadata("mode")?;
    ensure!(mode == "shared", "the mode is shown as {mode:?}");
    Ok(())
}

async fn no_secrets(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let (lock_id, request_id) = (World::secret(), World::secret());
    let ask = Ask::of(&resource).lock_id(&lock_id).holder("h");
    let ask = if world.declares(Feature::Replay) { ask.request_id(&request_id) } else { ask };
    hold(&store, &ask).await?;
    let waiting = World::secret();
    queue_until_listed(&store, &Ask::of(&resource).lock_id(&waiting), 1).await?;
    let list =
        ListLocksRequest { scope: Some(scope(&resource)), ..ListLocksRequest::default() };
    let shown = [
        format!("{:?}", store.get_lock(&resource).await.or_fail("GetLock")?),
        format!("{:?}", store.list_raw(list).await.or_fail("ListLocks")?),
        format!("{:?}", waiters_page(&store, &resource, 0, "").await?),
    ];
    for shown in shown {
        for secret in [&lock_id, &request_id, &waiting] {
            let plain = secret.replace('-', "");
            ensure!(
                !shown.contains(secret) && !shown.contains(&plain),
                "it shows {secret}: {shown}"
            );
        }
    }
    Ok(())
}

async fn two_processes(world: World) -> anyhow::Result<()> {
    let (store, second, resource) = (world.store(), world.second()?, world.resource());
    let grant = hold(&store, &Ask::of(&resource).holder("one")).await?;
    queue_until_listed(&store, &Ask::of(&resource).holder("two"), 1).await?;
    let shown = only_grant(&second, &resource).await?;
    ensure!(shown.grant_id == grant.grant_id && shown.holder == "one", "returned: {shown:?}");
    let (waiters, _) = waiters_page(&second, &resource, 0, "").await?;
    ensure!(waiters.len() == 1 && waiters[0].holder == "two", "waiting: {waiters:?}");
    let listed = second.list(&resource, 100).await?;
    ensure!(listed.contains_key(&resource), "the other process does not list it");
    Ok(())
}

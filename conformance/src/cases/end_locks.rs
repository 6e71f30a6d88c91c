//! INSPECTION: EndLocks ends the grants that it was asked to end, and no other.

use anyhow::{Context as _, ensure};
use leasehold_proto::{
    components::LockMode,
    locks::{
        EndLocksRequest, GetLockRequest, ListLocksRequest, ListWaitersRequest, LockScope,
        WatchLocksRequest,
    },
};

use super::inspection::{hold_below, only_grant};
use crate::{
    case::{Cases, Demand},
    expect::Expect as _,
    feature::Feature,
    grant::Ask,
    inspector::scope,
    reason::Reason,
    world::{World, hold, hold_soon, must_be_held, secs},
};

const INSPECTION: Demand = Demand::Features(&[Feature::Inspection]);
const SHARED: Demand = Demand::Features(&[Feature::Inspection, Feature::Shared]);

pub(crate) fn tests(cases: &mut Cases) {
    cases.add(INSPECTION, "EndLocks of a resource lets a waiter in", hands_over);
    cases.add(
        INSPECTION,
        "EndLocks of a free resource is LOCK_NOT_FOUND with held false",
        free,
    );
    cases.add(INSPECTION, "EndLocks of a grant ID never ends a successor", successor);
    cases.add(INSPECTION, "EndLocks of a grant ID ends that grant", by_id);
    cases.add(SHARED, "EndLocks of a grant ID ends one reader of several", one_reader);
    cases.add(
        INSPECTION,
        "EndLocks of a scope ends all that it has and nothing else",
        by_scope,
    );
    cases.add(INSPECTION, "EndLocks of a scope that has nothing is an empty success", nothing);
    cases.add(INSPECTION, "EndLocks with dry_run reports grants and ends none", dry_run);
    cases.add(
        INSPECTION,
        "EndLocks ends at most `limit` grants and reports whether there are more",
        limit,
    );
    cases.add(INSPECTION, "EndLocks of a scope leaves other holders alone", by_holder);
    cases.add(INSPECTION, "EndLocks of everything needs `all`", needs_all);
    cases.add(INSPECTION, "EndLocks of a resource and a scope is INVALID_REQUEST", both);
    for (what, field, asked) in BAD_ENDS {
        cases.add(
            INSPECTION,
            format!("EndLocks with {what} is INVALID_REQUEST for {field}"),
            move |world| bad_end(world, field, *asked),
        );
    }
    for size in [-1, 1001] {
        cases.add(
            INSPECTION,
            format!("a page_size of {size} is INVALID_REQUEST"),
            move |world| bad_size(world, size),
        );
    }
    cases.add(INSPECTION, "a page_token of another list is INVALID_REQUEST", foreign_token);
    cases.add(INSPECTION, "a namespace is INVALID_REQUEST on a component's socket", namespace);
    cases.add(
        INSPECTION,
        "a namespace beside a scope is INVALID_REQUEST, not ignored",
        namespace_beside_scope,
    );
    cases.add(
        Demand::Without(Feature::Inspection),
        "GetLock is UNIMPLEMENTED where INSPECTION is not declared",
        undeclared,
    );
}

type BadEnd = (&'static str, &'static str, fn(&str) -> EndLocksRequest);

const BAD_ENDS: &[BadEnd] = &[
    ("neither a resource nor a scope", "resource_id", |_| EndLocksRequest::default()),
    ("a grant ID that is none", "grant_id", |resource| EndLocksRequest {
        grant_id: "not-an-id".to_owned(),
        ..of(resource)
    }),
    ("a limit of -1", "limit", |resource| EndLocksRequest { limit: -1, ..of(resource) }),
    ("a limit of 1,001", "limit", |resource| EndLocksRequest { limit: 1001, ..of(resource) }),
    ("a reason of 257 bytes", "reason", |resource| EndLocksRequest {
        reason: "r".repeat(257),
        ..of(resource)
    }),
    ("a reason of two lines", "reason", |resource| EndLocksRequest {
        reason: "one\ntwo".to_owned(),
        ..of(resource)
    }),
    ("a resource_id of 1,025 bytes", "resource_id", |_| of(&"r".repeat(1025))),
];

/// Ends the grants of a resource.
fn of(resource: &str) -> EndLocksRequest {
    EndLocksRequest { resource_id: resource.to_owned(), ..EndLocksRequest::default() }
}

/// Ends the locks below a prefix.
fn below(prefix: &str) -> EndLocksRequest {
    EndLocksRequest { scope: Some(scope(prefix)), limit: 1000, ..EndLocksRequest::default() }
}

async fn hands_over(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let grant = hold(&store, &Ask::of(&resource)).await?;
    let waiter = store.queue(&Ask::of(&resource).within(secs(60))).await?;
    let ended = store.end_raw(of(&resource)).await.or_fail("EndLocks")?;
    let found = ended.ended.first().and_then(|lock| lock.grants.first());
    let found = found.context("EndLocks returned no grant")?;
    ensure!(found.grant_id == grant.grant_id && !ended.more, "returned: {ended:?}");
    waiter.granted().await?;
    store.release(&grant).await.refused(Reason::LockNotFound)?.held_is(true)
}

async fn free(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    store.end_raw(of(&resource)).await.refused(Reason::LockNotFound)?.held_is(false)
}

async fn successor(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let first = hold(&store, &Ask::of(&resource)).await?;
    store.release(&first).await.or_fail("Unlock")?;
    // The same lock ID, so that only the grant ID distinguishes the two.
    let second = hold(&store, &Ask::of(&resource).lock_id(&first.lock_id)).await?;
    let asked = EndLocksRequest { grant_id: first.grant_id, ..of(&resource) };
    store.end_raw(asked).await.refused(Reason::LockNotFound)?.held_is(true)?;
    must_be_held(&store, &resource, "an earlier grant was to be ended").await?;
    let found = only_grant(&store, &resource).await?.grant_id;
    ensure!(found == second.grant_id, "the grant is now {found}");
    Ok(())
}

async fn by_id(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let grant = hold(&store, &Ask::of(&resource)).await?;
    let asked = EndLocksRequest { grant_id: grant.grant_id.clone(), ..of(&resource) };
    store.end_raw(asked).await.or_fail("EndLocks of a grant ID")?;
    store.release(&grant).await.refused(Reason::LockNotFound)?.held_is(false)
}

async fn one_reader(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let reader = Ask::of(&resource).mode(LockMode::Shared);
    let (kept, ended) = (hold(&store, &reader).await?, hold(&store, &reader).await?);
    let asked = EndLocksRequest { grant_id: ended.grant_id.clone(), ..of(&resource) };
    store.end_raw(asked).await.or_fail("EndLocks of a reader")?;
    store.release(&ended).await.refused(Reason::LockNotFound)?.held_is(true)?;
    store.release(&kept).await.or_fail("Unlock of the other reader")
}

async fn by_scope(world: World) -> anyhow::Result<()> {
    let (store, prefix, other) = (world.store(), world.resource(), world.resource());
    let kept = hold(&store, &Ask::of(&format!("{other}/{prefix}"))).await?;
    let grants = hold_below(&store, &prefix, 5).await?;
    let ended = store.end_raw(below(&format!("{prefix}/"))).await.or_fail("EndLocks")?;
    ensure!(ended.ended.len() == grants.len(), "ended are {:?}", ended.ended);
    for grant in &grants {
        hold_soon(&store, &Ask::of(&grant.resource), "it was ended").await?;
    }
    store.release(&kept).await.or_fail("Unlock of a lock outside of the scope")
}

async fn nothing(world: World) -> anyhow::Result<()> {
    let (store, prefix) = (world.store(), world.resource());
    let ended = store.end_raw(below(&prefix)).await.or_fail("EndLocks of an empty scope")?;
    ensure!(ended.ended.is_empty() && !ended.more, "returned: {ended:?}");
    Ok(())
}

async fn dry_run(world: World) -> anyhow::Result<()> {
    let (store, prefix) = (world.store(), world.resource());
    let grants = hold_below(&store, &prefix, 2).await?;
    let asked = EndLocksRequest { dry_run: true, ..below(&prefix) };
    let found = store.end_raw(asked).await.or_fail("EndLocks with dry_run")?;
    ensure!(found.ended.len() == 2, "returned: {found:?}");
    for grant in &grants {
        store.release(grant).await.or_fail("Unlock after a dry run")?;
    }
    Ok(())
}

async fn limit(world: World) -> anyhow::Result<()> {
    let (store, prefix) = (world.store(), world.resource());
    hold_below(&store, &prefix, 5).await?;
    for (left, more) in [(3, true), (1, true), (0, false)] {
        let asked = EndLocksRequest { limit: 2, ..below(&prefix) };
        let ended = store.end_raw(asked).await.or_fail("EndLocks")?;
        let listed = store.list(&prefix, 100).await?.len();
        ensure!(listed == left, "{listed} locks are left, expected {left}");
        ensure!(ended.more == more, "with {left} left, `more` is {}", ended.more);
    }
    Ok(())
}

async fn by_holder(world: World) -> anyhow::Result<()> {
    let (store, prefix) = (world.store(), world.resource());
    let mine = hold(&store, &Ask::of(&format!("{prefix}/1")).holder("app/1")).await?;
    let other = hold(&store, &Ask::of(&format!("{prefix}/2")).holder("other")).await?;
    let asked = EndLocksRequest { holder_prefix: "app/".to_owned(), ..below(&prefix) };
    store.end_raw(asked).await.or_fail("EndLocks of a holder's locks")?;
    store.release(&mine).await.refused(Reason::LockNotFound)?;
    store.release(&other).await.or_fail("Unlock by another holder")
}

async fn needs_all(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    hold(&store, &Ask::of(&resource)).await?;
    store.end_raw(below("")).await.refused(Reason::InvalidRequest)?.names(&["all"])?;
    must_be_held(&store, &resource, "EndLocks without `all` was refused").await
}

async fn both(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    hold(&store, &Ask::of(&resource)).await?;
    let asked = EndLocksRequest { resource_id: resource.clone(), ..below(&resource) };
    store.end_raw(asked).await.refused(Reason::InvalidRequest)?.names(&["scope"])?;
    must_be_held(&store, &resource, "a bad EndLocks was refused").await
}

async fn bad_end(
    world: World,
    field: &'static str,
    asked: fn(&str) -> EndLocksRequest,
) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    hold(&store, &Ask::of(&resource)).await?;
    store.end_raw(asked(&resource)).await.refused(Reason::InvalidRequest)?.names(&[field])?;
    must_be_held(&store, &resource, "a bad EndLocks was refused").await
}

async fn bad_size(world: World, page_size: i32) -> anyhow::Result<()> {
    let (store, resource_id) = (world.store(), world.resource());
    let list = ListLocksRequest { page_size, ..ListLocksRequest::default() };
    store.list_raw(list).await.refused(Reason::InvalidRequest)?.names(&["page_size"])?;
    let (id, default) = (resource_id.clone(), GetLockRequest::default());
    let get = GetLockRequest { resource_id: id, page_size, ..default };
    store.get_lock_raw(get).await.refused(Reason::InvalidRequest)?.names(&["page_size"])?;
    let waiters = ListWaitersRequest { resource_id, page_size, ..Default::default() };
    store.waiters_raw(waiters).await.refused(Reason::InvalidRequest)?.names(&["page_size"])
}

async fn foreign_token(world: World) -> anyhow::Result<()> {
    let (store, prefix) = (world.store(), world.resource());
    hold_below(&store, &prefix, 5).await?;
    let list = |prefix: &str, token: &str| ListLocksRequest {
        scope: Some(scope(prefix)),
        page_size: 1,
        page_token: token.to_owned(),
        ..ListLocksRequest::default()
    };
    let page = store.list_raw(list(&prefix, "")).await.or_fail("ListLocks")?;
    let token = page.next_page_token;
    ensure!(!token.is_empty(), "a page of one of five locks is the last");
    for asked in [list("another", &token), list(&prefix, "forged"), list(&prefix, "~")] {
        let refused = store.list_raw(asked).await.refused(Reason::InvalidRequest)?;
        refused.names(&["page_token"])?;
    }
    Ok(())
}

async fn namespace(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let namespace = vec!["a".to_owned()];
    let asked = GetLockRequest {
        resource_id: resource,
        namespace: namespace.clone(),
        ..GetLockRequest::default()
    };
    let refused = store.get_lock_raw(asked).await.refused(Reason::InvalidRequest)?;
    refused.names(&["namespace"])?;
    let scope = Some(LockScope { namespace, ..LockScope::default() });
    let asked = ListLocksRequest { scope: scope.clone(), ..ListLocksRequest::default() };
    let refused = store.list_raw(asked).await.refused(Reason::InvalidRequest)?;
    refused.names(&["namespace"])?;
    if world.declares(Feature::Watch) {
        let asked = WatchLocksRequest { scope, ..WatchLocksRequest::default() };
        let refused = store.watch_raw(asked).await.refused(Reason::InvalidRequest)?;
        refused.names(&["namespace"])?;
    }
    Ok(())
}

async fn namespace_beside_scope(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let namespace = vec!["a".to_owned()];
    let asked = EndLocksRequest { namespace: namespace.clone(), ..below(&resource) };
    store.end_raw(asked).await.refused(Reason::InvalidRequest)?.names(&["namespace"])?;
    if world.declares(Feature::Watch) {
        let scope = Some(scope(&resource));
        let asked = WatchLocksRequest { namespace, scope, ..WatchLocksRequest::default() };
        let refused = store.watch_raw(asked).await.refused(Reason::InvalidRequest)?;
        refused.names(&["namespace"])?;
    }
    Ok(())
}

async fn undeclared(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    match store.get_lock(&resource).await {
        // A store without the service at all.
        Err(rejection) if rejection.code() == tonic::Code::Unimplemented => Ok(()),
        answer => answer.refused(Reason::Unsupported).map(drop),
    }
}

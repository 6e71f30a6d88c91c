//! Watching over gRPC.

use leasehold_proto::locks::{EndCause, LockEvent, WatchLocksRequest};
use tokio::time::timeout;
use tonic::Streaming;

use super::*;
use crate::alpha2_grpc::unlock_request;

type Events = Streaming<LockEvent>;

fn watch_scope(scope: LockScope) -> WatchLocksRequest {
    WatchLocksRequest { store_name: STORE.into(), scope: Some(scope), ..Default::default() }
}

async fn watch(harness: &Harness, request: WatchLocksRequest) -> Events {
    inspection(harness).await.watch_locks(request).await.unwrap().into_inner()
}

async fn next(events: &mut Events) -> Result<LockEvent, Status> {
    timeout(PATIENCE, events.message()).await.unwrap().map(Option::unwrap)
}

/// The events up to `synced`.
async fn synced(events: &mut Events) -> Vec<LockEvent> {
    let mut events_so_far = Vec::new();
    loop {
        let event = next(events).await.unwrap();
        if event.synced {
            return events_so_far;
        }
        events_so_far.push(event);
    }
}

#[tokio::test]
async fn held_locks_are_reported_and_then_each_change() {
    let harness = Harness::start().await;
    let held = take(&harness, within(&["a"], "r")).await;
    let mut events = watch(&harness, watch_scope(scope(&["a"], false, ""))).await;
    let events_so_far = synced(&mut events).await;
    let states: Vec<_> =
        events_so_far.iter().map(|event| event.state.clone().unwrap()).collect();
    assert_eq!(names(&states), ["a/r"]);
    assert_eq!(states[0].grants[0].grant_id, held.grant_id);
    take(&harness, request("elsewhere")).await;
    let mut unlock = unlock_request("r", &held.lock_id);
    unlock.namespace = segments(&["a"]);
    harness.locks().await.unlock(unlock).await.unwrap();
    let event = next(&mut events).await.unwrap();
    let state = event.state.unwrap();
    assert_eq!(
        (names(std::slice::from_ref(&state)), state.grants_total),
        (vec!["a/r".into()], 0)
    );
    let ended = &event.ended[0];
    assert_eq!(ended.cause(), EndCause::Released);
    assert_eq!(ended.grant.as_ref().unwrap().grant_id, held.grant_id);
}

#[tokio::test]
async fn one_resource_can_be_watched() {
    let harness = Harness::start().await;
    let asked = WatchLocksRequest {
        store_name: STORE.into(),
        resource_id: "r".into(),
        namespace: segments(&["a"]),
        ..Default::default()
    };
    let mut events = watch(&harness, asked).await;
    assert!(synced(&mut events).await.is_empty());
    take(&harness, request("r")).await;
    let grant = take(&harness, within(&["a"], "r")).await;
    let state = next(&mut events).await.unwrap().state.unwrap();
    assert_eq!(
        (names(std::slice::from_ref(&state)), state.grants_total),
        (vec!["a/r".into()], 1)
    );
    assert_eq!(state.grants[0].grant_id, grant.grant_id);
}

#[tokio::test]
async fn a_watch_reports_nothing_of_other_apps() {
    let harness = two_tenants().await;
    take(&harness, request("r")).await;
    let asked = WatchLocksRequest { store_name: "none".into(), ..watch_scope(all()) };
    let mut events = watch(&harness, asked).await;
    assert!(synced(&mut events).await.is_empty());
    take(&harness, request("s")).await;
    take(&harness, LockRequest { store_name: "none".into(), ..request("own") }).await;
    let state = next(&mut events).await.unwrap().state.unwrap();
    assert_eq!(names(&[state]), ["own"]);
}

#[tokio::test]
async fn a_drain_ends_a_watch() {
    let harness = Harness::start().await;
    let mut events = watch(&harness, watch_scope(all())).await;
    synced(&mut events).await;
    harness.begin_to_stop();
    let ended = next(&mut events).await.unwrap_err();
    assert_eq!(reason(&ended, "").0, "SHUTTING_DOWN");
}

/// Trap: sidecar 25
#[tokio::test]
async fn a_watch_has_no_secret() {
    let harness = Harness::start().await;
    let asked = LockRequest { request_id: "secret-request".into(), ..request("r") };
    let grant = take(&harness, asked).await;
    let mut events = watch(&harness, watch_scope(all())).await;
    let mut events_so_far = format!("{:?}", synced(&mut events).await);
    harness.locks().await.unlock(unlock_request("r", &grant.lock_id)).await.unwrap();
    events_so_far += &format!("{:?}", next(&mut events).await.unwrap());
    assert_eq!(events_so_far.matches(&grant.grant_id).count(), 2, "{events_so_far}");
    for secret in [&grant.lock_id, "secret-request", &grant.fencing_token.to_string()] {
        assert!(!events_so_far.contains(secret), "{events_so_far}");
    }
}

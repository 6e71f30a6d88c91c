//! Shared locks through the sidecar: alpha2 over both protocols, with a stream and without.

use std::time::Duration;

use http::Method;
use leasehold_lock::Settings;
use leasehold_proto::locks::{
    ForceUnlockRequest, LockMode, LockRequest, LockResponse, LockServerStream, UnlockRequest,
    lock_server_stream::LockServerStream as Line, locks_client::LocksClient,
};
use leasehold_sidecar::{Hooks, stores::Stores};
use serde_json::json;
use tokio::time::{sleep, timeout};
use tonic::{Code, Status, Streaming, transport::Channel};
use tonic_types::StatusExt as _;

use crate::{
    alpha2_grpc::request,
    harness::{APP, Harness, PATIENCE, STORE, eventually, memory_with, named, options, reason},
};

const PATH: &str = "/v1.0-alpha2/lock/mem/r";

fn reader() -> LockRequest {
    LockRequest { mode: LockMode::Shared.into(), ..request("r") }
}

async fn lock(
    client: &mut LocksClient<Channel>,
    request: LockRequest,
) -> Result<LockResponse, Status> {
    client.lock(request).await.map(tonic::Response::into_inner)
}

async fn unlock(client: &mut LocksClient<Channel>, lock_id: &str) -> Result<(), Status> {
    let unlock = UnlockRequest {
        resource_id: "r".into(),
        lock_id: lock_id.into(),
        store_name: STORE.into(),
        ..Default::default()
    };
    client.unlock(unlock).await.map(drop)
}

async fn stream(harness: &Harness) -> Streaming<LockServerStream> {
    let mut stream = harness.locks().await.lock_stream(reader()).await.unwrap().into_inner();
    loop {
        let line = timeout(PATIENCE, stream.message()).await.unwrap().unwrap().unwrap();
        if let Line::LockAcquired(_) = line.lock_server_stream.unwrap() {
            return stream;
        }
    }
}

#[tokio::test]
async fn readers_hold_together_and_a_writer_is_refused_until_the_last_has_unlocked() {
    let harness = Harness::start().await;
    let mut client = harness.locks().await;
    let first = lock(&mut client, reader()).await.unwrap();
    let second = lock(&mut client, reader()).await.unwrap();
    assert_ne!(first.lock_id, second.lock_id);
    assert_eq!(harness.engine.held(), 2);
    for grant in [first, second] {
        let refused = lock(&mut client, request("r")).await.unwrap_err();
        assert_eq!(reason(&refused, "").0, "RESOURCE_LOCKED");
        unlock(&mut client, &grant.lock_id).await.unwrap();
    }
    lock(&mut client, request("r")).await.unwrap();
    let refused = lock(&mut client, reader()).await.unwrap_err();
    assert_eq!(reason(&refused, "").0, "RESOURCE_LOCKED");
}

#[tokio::test]
async fn each_of_several_shared_locks_is_renewed_past_its_ttl() {
    let harness = Harness::start().await;
    let mut client = harness.locks().await;
    let ttl = Duration::from_secs(6).try_into().ok();
    let mut grants = Vec::new();
    for _ in 0..5 {
        grants.push(lock(&mut client, LockRequest { ttl, ..reader() }).await.unwrap());
    }
    // Past their TTL, by the real clock, because the sockets are real.
    sleep(Duration::from_secs(7)).await;
    for grant in &grants {
        unlock(&mut client, &grant.lock_id).await.unwrap();
    }
    assert_eq!(harness.memory.records(), 0);
}

/// Trap: sidecar 59
#[tokio::test]
async fn the_end_of_one_stream_releases_its_shared_lock_only() {
    let harness = Harness::start().await;
    let (first, second) = (stream(&harness).await, stream(&harness).await);
    drop(first);
    eventually("one is left", || harness.engine.held() == 1).await;
    assert_eq!(harness.memory.records(), 1, "the second reader holds the resource");
    drop(second);
    eventually("it is free", || harness.memory.records() == 0).await;
}

#[tokio::test]
async fn a_force_is_reported_to_every_reader() {
    let harness = Harness::start().await;
    let mut client = harness.locks().await;
    let (mut streamed, unary) =
        (stream(&harness).await, lock(&mut client, reader()).await.unwrap());
    let force = ForceUnlockRequest {
        resource_id: "r".into(),
        store_name: STORE.into(),
        ..Default::default()
    };
    client.force_unlock(force).await.unwrap();
    let lost = loop {
        match timeout(PATIENCE, streamed.message()).await.unwrap() {
            Ok(line) => assert!(line.is_some(), "it must end as lost"),
            Err(lost) => break lost,
        }
    };
    assert_eq!(reason(&lost, "cause"), ("LOCK_LOST".into(), Some("forced".into())));
    let lost = unlock(&mut client, &unary.lock_id).await.unwrap_err();
    assert_eq!(reason(&lost, "cause"), ("LOCK_LOST".into(), Some("forced".into())));
    assert_eq!((harness.engine.held(), harness.memory.records()), (0, 0));
}

#[tokio::test]
async fn a_reader_waits_behind_a_writer_that_waits_for_readers() {
    let harness = Harness::start().await;
    let mut client = harness.locks().await;
    let held = lock(&mut client, reader()).await.unwrap();
    let waiter = client.clone();
    let wait = |asked: LockRequest| {
        let mut client = waiter.clone();
        let asked = LockRequest { immediate: false, ..asked };
        tokio::spawn(async move { lock(&mut client, asked).await })
    };
    let writer = wait(request("r"));
    // Once the writer is in the queue, readers are refused.
    let mut early = Vec::new();
    while let Ok(grant) = lock(&mut client, reader()).await {
        early.push(grant.lock_id);
    }
    let late = wait(reader());
    for lock_id in early.iter().chain([&held.lock_id]) {
        assert!(!writer.is_finished() && !late.is_finished());
        unlock(&mut client, lock_id).await.unwrap();
    }
    let written = timeout(PATIENCE, writer).await.unwrap().unwrap().unwrap();
    assert!(!late.is_finished());
    unlock(&mut client, &written.lock_id).await.unwrap();
    let read = timeout(PATIENCE, late).await.unwrap().unwrap().unwrap();
    assert!(read.fencing_token > written.fencing_token);
}

#[tokio::test]
async fn a_shared_request_repeated_finds_its_own_lock_and_not_in_another_mode() {
    let harness = Harness::start().await;
    let mut client = harness.locks().await;
    lock(&mut client, reader()).await.unwrap();
    let asked = LockRequest { request_id: "secret".into(), ..reader() };
    let first = lock(&mut client, asked.clone()).await.unwrap();
    lock(&mut client, LockRequest { request_id: "other".into(), ..reader() }).await.unwrap();
    let again = lock(&mut client, asked.clone()).await.unwrap();
    assert_eq!(again.lock_id, first.lock_id);
    assert_eq!(harness.engine.held(), 3);
    let exclusive = LockMode::Exclusive.into();
    for immediate in [true, false] {
        let other = LockRequest { mode: exclusive, immediate, ..asked.clone() };
        let refused = lock(&mut client, other).await.unwrap_err();
        assert_eq!(reason(&refused, "").0, "INVALID_REQUEST");
        let violations = refused.get_details_bad_request().unwrap().field_violations;
        assert_eq!(violations[0].field, "mode");
    }
    unlock(&mut client, &first.lock_id).await.unwrap();
}

#[tokio::test]
async fn over_http_the_mode_is_shared_by_its_name() {
    let harness = Harness::start().await;
    let body = json!({ "immediate": true, "mode": "shared" }).to_string();
    let first = harness.post(PATH, body.clone()).await.json();
    let second = harness.post(PATH, body.clone()).await.json();
    assert_ne!(first["lockID"], second["lockID"]);
    let exclusive = json!({ "immediate": true, "mode": "exclusive" }).to_string();
    let refused = harness.post(PATH, exclusive.clone()).await;
    assert_eq!(refused.error(), (409, "ERR_RESOURCE_LOCKED".into()));
    for grant in [first, second] {
        let lock_id = json!({ "lockID": grant["lockID"] }).to_string();
        assert_eq!(harness.call(Method::DELETE, PATH, lock_id).await.status, 204);
    }
    assert_eq!(harness.post(PATH, exclusive).await.status, 200);
    assert_eq!(harness.post(PATH, body).await.error(), (409, "ERR_RESOURCE_LOCKED".into()));
}

#[tokio::test]
async fn alpha1_is_exclusive_beside_shared_locks() {
    let harness = Harness::start().await;
    let mut client = harness.locks().await;
    let grant = lock(&mut client, reader()).await.unwrap();
    let owner =
        json!({ "resourceId": "r", "lockOwner": "me", "expiryInSeconds": 60 }).to_string();
    let alpha1 = "/v1.0-alpha1/lock/mem";
    assert_eq!(harness.post(alpha1, owner.clone()).await.json(), json!({ "success": false }));
    unlock(&mut client, &grant.lock_id).await.unwrap();
    assert_eq!(harness.post(alpha1, owner).await.json(), json!({ "success": true }));
    let refused = lock(&mut client, reader()).await.unwrap_err();
    assert_eq!(reason(&refused, "holder").0, "RESOURCE_LOCKED");
}

#[tokio::test]
async fn too_many_holders_are_refused_and_said_so() {
    let stores = Stores::default();
    let settings = Settings { holders_per_resource_max: 1, ..Settings::default() };
    let (memory, store) = memory_with(settings);
    stores.insert(named(STORE, "appid", APP, store));
    let harness = Harness::over(options(), Hooks::default(), stores, memory).await;
    let mut client = harness.locks().await;
    lock(&mut client, reader()).await.unwrap();
    let refused = lock(&mut client, reader()).await.unwrap_err();
    assert_eq!(
        (refused.code(), reason(&refused, "").0),
        (Code::ResourceExhausted, "TOO_MANY_HOLDERS".into())
    );
    let body = json!({ "immediate": true, "mode": "shared" }).to_string();
    let refused = harness.post(PATH, body).await;
    assert_eq!(refused.error(), (429, "ERR_TOO_MANY_HOLDERS".into()));
}

#[tokio::test]
async fn each_shared_lock_counts_as_one_held_lock() {
    let limited = leasehold_sidecar::Options { held_max: 2, ..options() };
    let harness = Harness::with(limited, Hooks::default()).await;
    let mut client = harness.locks().await;
    lock(&mut client, reader()).await.unwrap();
    lock(&mut client, reader()).await.unwrap();
    let refused = lock(&mut client, reader()).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
}

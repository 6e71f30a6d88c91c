//! RenewLock that changes more than the TTL: `detach` and `max_hold`.

use http::Method;
use leasehold_proto::locks::{LockRequest, RenewLockRequest};
use serde_json::json;
use tokio::time::timeout;
use tonic::Code;
use tonic_types::StatusExt as _;

use crate::{
    alpha2_grpc::{lock, request, ttl, unlock_request},
    harness::{Harness, PATIENCE, STORE, eventually, reason},
    stream::{acquired, end},
};

fn renewal(lock_id: &str) -> RenewLockRequest {
    RenewLockRequest {
        store_name: STORE.into(),
        resource_id: "r".into(),
        lock_id: lock_id.into(),
        ..Default::default()
    }
}

#[tokio::test]
async fn a_detached_stream_ends_well_and_leaves_its_lock() {
    let harness = Harness::start().await;
    let mut locks = harness.locks().await;
    let mut stream = locks.lock_stream(request("r")).await.unwrap().into_inner();
    let lock_id = acquired(&mut stream).await.lock_id;
    let detach = RenewLockRequest { detach: true, ttl: ttl(60_000), ..renewal(&lock_id) };
    let renewed = locks.renew_lock(detach).await.unwrap().into_inner();
    assert_eq!(renewed.ttl, ttl(60_000));
    end(&mut stream).await.unwrap();
    drop(stream);
    let refused = lock(&mut locks, request("r")).await.unwrap_err();
    assert_eq!(reason(&refused, "").0, "RESOURCE_LOCKED");
    locks.unlock(unlock_request("r", &lock_id)).await.unwrap();
    assert_eq!(harness.memory.records(), 0);
}

#[tokio::test]
async fn a_detached_lock_ends_with_its_ttl() {
    let harness = Harness::start().await;
    let mut locks = harness.locks().await;
    let lock_id = lock(&mut locks, request("r")).await.unwrap().lock_id;
    let detach = RenewLockRequest { detach: true, ttl: ttl(500), ..renewal(&lock_id) };
    locks.renew_lock(detach).await.unwrap();
    eventually("it has ended", || harness.memory.records() == 0).await;
}

#[tokio::test]
async fn a_max_hold_of_a_renewal_ends_the_lock() {
    let harness = Harness::start().await;
    let mut locks = harness.locks().await;
    let unlimited = LockRequest { max_hold: ttl(3_600_000), ..request("r") };
    let lock_id = lock(&mut locks, unlimited).await.unwrap().lock_id;
    let limited = RenewLockRequest { max_hold: ttl(200), ..renewal(&lock_id) };
    locks.renew_lock(limited).await.unwrap();
    let waiting = LockRequest { immediate: false, ..request("r") };
    timeout(PATIENCE, lock(&mut locks, waiting)).await.unwrap().unwrap();
    let lost = locks.unlock(unlock_request("r", &lock_id)).await.unwrap_err();
    assert_eq!(reason(&lost, "cause"), ("LOCK_LOST".into(), Some("max_hold".into())));
}

#[tokio::test]
async fn a_bad_change_is_refused_by_its_field() {
    let harness = Harness::start().await;
    let mut locks = harness.locks().await;
    let lock_id = lock(&mut locks, request("r")).await.unwrap().lock_id;
    for bad in [
        RenewLockRequest { max_hold: ttl(0), ..renewal(&lock_id) },
        RenewLockRequest { max_hold: ttl(1000), detach: true, ..renewal(&lock_id) },
    ] {
        let refused = locks.renew_lock(bad).await.unwrap_err();
        let violations = refused.get_details_bad_request().unwrap().field_violations;
        assert_eq!(violations[0].field, "max_hold");
    }
}

#[tokio::test]
async fn a_lock_of_another_sidecar_is_neither_limited_nor_detached() {
    let harness = Harness::start().await;
    let mut locks = harness.locks().await;
    let limited = RenewLockRequest { max_hold: ttl(1000), ..renewal("elsewhere") };
    let detached = RenewLockRequest { detach: true, ..renewal("elsewhere") };
    for change in [limited, detached] {
        let refused = locks.renew_lock(change).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition);
        assert_eq!(reason(&refused, "").0, "NOT_HELD_HERE");
    }
}

#[tokio::test]
async fn locks_are_detached_and_limited_over_http() {
    let harness = Harness::start().await;
    let path = "/v1.0-alpha2/lock/mem/r";
    for (change, held) in [
        (json!({ "detach": true, "ttl": "300ms" }), "a detached lock"),
        (json!({ "maxHold": "300ms" }), "a limited lock"),
    ] {
        let mut change = change;
        let granted = harness.post(path, r#"{"wait":"10s"}"#).await.json();
        change["lockID"] = granted["lockID"].clone();
        let renewed = harness.call(Method::PUT, path, change.to_string()).await;
        assert_eq!(renewed.status, 200, "{renewed:?}");
        eventually(held, || harness.memory.records() == 0).await;
        eventually(held, || harness.engine.held() == 0).await;
    }
}

//! alpha2 over gRPC, with explicit unlock.

use std::time::Duration;

use leasehold_proto::locks::{
    ForceUnlockRequest, LockRequest, LockResponse, RenewLockRequest, UnlockRequest,
    locks_client::LocksClient,
};
use leasehold_sidecar::{Hooks, stores::Stores};
use tokio::time::{sleep, timeout};
use tonic::{Code, Status, codec::CompressionEncoding, transport::Channel};
use tonic_types::StatusExt as _;

use crate::harness::{HOLDER, Harness, PATIENCE, STORE, eventually, options, reason};

pub type Client = LocksClient<Channel>;

pub fn request(resource: &str) -> LockRequest {
    LockRequest {
        resource_id: resource.into(),
        store_name: STORE.into(),
        immediate: true,
        ..Default::default()
    }
}

pub fn ttl(ms: u64) -> Option<prost_types::Duration> {
    Duration::from_millis(ms).try_into().ok()
}

pub async fn lock(client: &mut Client, request: LockRequest) -> Result<LockResponse, Status> {
    client.lock(request).await.map(tonic::Response::into_inner)
}

pub async fn unlock(client: &mut Client, resource: &str, lock_id: &str) -> Result<(), Status> {
    client.unlock(unlock_request(resource, lock_id)).await.map(|_| ())
}

pub fn unlock_request(resource: &str, lock_id: &str) -> UnlockRequest {
    UnlockRequest {
        resource_id: resource.into(),
        lock_id: lock_id.into(),
        store_name: STORE.into(),
        ..Default::default()
    }
}

pub fn force_request(resource: &str) -> ForceUnlockRequest {
    ForceUnlockRequest {
        resource_id: resource.into(),
        store_name: STORE.into(),
        ..Default::default()
    }
}

#[tokio::test]
async fn a_lock_is_granted_refused_and_unlocked() {
    let harness = Harness::start().await;
    let mut client = harness.locks().await;
    let granted = lock(&mut client, request("r")).await.unwrap();
    assert!(!granted.lock_id.is_empty() && granted.fencing_token > 0);
    assert_eq!(granted.ttl, ttl(30_000));
    assert!(granted.waited.is_some());
    let refused = lock(&mut client, request("r")).await.unwrap_err();
    assert_eq!(refused.code(), Code::Aborted);
    assert_eq!(
        reason(&refused, "holder"),
        ("RESOURCE_LOCKED".into(), Some(HOLDER.into())),
        "the holder is the app"
    );
    unlock(&mut client, "r", &granted.lock_id).await.unwrap();
    let again = unlock(&mut client, "r", &granted.lock_id).await.unwrap_err();
    assert_eq!(again.code(), Code::NotFound);
    assert_eq!(reason(&again, "held"), ("LOCK_NOT_FOUND".into(), Some("false".into())));
    assert_eq!(harness.engine.held(), 0);
}

#[tokio::test]
async fn a_lock_is_renewed_past_its_ttl() {
    let harness = Harness::start().await;
    let mut client = harness.locks().await;
    let granted =
        lock(&mut client, LockRequest { ttl: ttl(6000), ..request("r") }).await.unwrap();
    // Past its TTL, by the real clock, because the sockets are real.
    sleep(Duration::from_secs(7)).await;
    assert!(lock(&mut client, request("r")).await.is_err(), "it is still held");
    unlock(&mut client, "r", &granted.lock_id).await.unwrap();
}

#[tokio::test]
async fn a_forced_lock_is_lost_and_later_calls_get_the_cause() {
    let harness = Harness::start().await;
    let mut client = harness.locks().await;
    let granted = lock(&mut client, request("r")).await.unwrap();
    client.force_unlock(force_request("r")).await.unwrap();
    assert_eq!(harness.engine.held(), 0);
    let lost = unlock(&mut client, "r", &granted.lock_id).await.unwrap_err();
    assert_eq!(lost.code(), Code::Aborted);
    assert_eq!(reason(&lost, "cause"), ("LOCK_LOST".into(), Some("forced".into())));
    let renewal = RenewLockRequest {
        resource_id: "r".into(),
        lock_id: granted.lock_id,
        store_name: STORE.into(),
        ttl: None,
        ..Default::default()
    };
    let lost = client.renew_lock(renewal).await.unwrap_err();
    assert_eq!(reason(&lost, "cause"), ("LOCK_LOST".into(), Some("forced".into())));
    let free = client.force_unlock(force_request("r")).await.unwrap_err();
    assert_eq!(reason(&free, "held"), ("LOCK_NOT_FOUND".into(), Some("false".into())));
}

#[tokio::test]
async fn a_lock_forced_elsewhere_is_noticed_at_the_next_renewal() {
    let harness = Harness::start().await;
    let mut client = harness.locks().await;
    let granted =
        lock(&mut client, LockRequest { ttl: ttl(12_000), ..request("r") }).await.unwrap();
    let store = harness.stores.get(STORE).unwrap();
    let elsewhere = leasehold_lock::UnlockRequest::force("lock||app||r".parse().unwrap());
    store.store().unlock(elsewhere).await.unwrap();
    eventually("it is noticed", || harness.engine.held() == 0).await;
    // If no renewal had noticed it, the cause would be different.
    let lost = unlock(&mut client, "r", &granted.lock_id).await.unwrap_err();
    assert_eq!(reason(&lost, "cause"), ("LOCK_LOST".into(), Some("forced".into())));
}

#[tokio::test]
async fn max_hold_releases_the_lock() {
    let harness = Harness::start().await;
    let mut client = harness.locks().await;
    let held = LockRequest { max_hold: ttl(200), ..request("r") };
    let granted = lock(&mut client, held).await.unwrap();
    let waiting = LockRequest { immediate: false, ..request("r") };
    timeout(PATIENCE, lock(&mut client, waiting)).await.unwrap().unwrap();
    let lost = unlock(&mut client, "r", &granted.lock_id).await.unwrap_err();
    assert_eq!(reason(&lost, "cause"), ("LOCK_LOST".into(), Some("max_hold".into())));
}

#[tokio::test]
async fn without_renewal_it_expires_unless_the_app_renews_it() {
    let harness = Harness::start().await;
    let mut client = harness.locks().await;
    let unrenewed = LockRequest { ttl: ttl(6000), no_renewal: true, ..request("r") };
    let granted = lock(&mut client, unrenewed).await.unwrap();
    let renewal = RenewLockRequest {
        resource_id: "r".into(),
        lock_id: granted.lock_id.clone(),
        store_name: STORE.into(),
        ttl: ttl(6000),
        ..Default::default()
    };
    for _ in 0..4 {
        sleep(Duration::from_millis(1700)).await;
        let renewed = client.renew_lock(renewal.clone()).await.unwrap().into_inner();
        assert_eq!(renewed.ttl, ttl(6000));
    }
    eventually("it expired", || harness.engine.held() == 0).await;
    eventually("the store has ended it, too", || harness.memory.records() == 0).await;
    let lost = client.renew_lock(renewal).await.unwrap_err();
    assert_eq!(reason(&lost, "cause"), ("LOCK_LOST".into(), Some("expired".into())));
}

#[tokio::test]
async fn any_sidecar_can_unlock_and_renew_a_grant_of_another() {
    let harness = Harness::start().await;
    let mut client = harness.locks().await;
    let store = harness.stores.get(STORE).unwrap();
    let elsewhere = leasehold_lock::AcquireRequest::new("lock||app||r".parse().unwrap());
    let granted = store.store().try_lock(elsewhere).await.unwrap();
    granted.receipt.accept();
    let renewal = RenewLockRequest {
        resource_id: "r".into(),
        lock_id: granted.lock_id.as_str().into(),
        store_name: STORE.into(),
        ttl: ttl(5000),
        ..Default::default()
    };
    assert_eq!(client.renew_lock(renewal).await.unwrap().into_inner().ttl, ttl(5000));
    unlock(&mut client, "r", granted.lock_id.as_str()).await.unwrap();
}

/// Trap: sidecar 23
#[tokio::test]
async fn a_repeated_request_finds_its_grant_again() {
    let harness = Harness::start().await;
    let mut client = harness.locks().await;
    let repeated = LockRequest { request_id: "secret".into(), ..request("r") };
    let first = lock(&mut client, repeated.clone()).await.unwrap();
    let second = lock(&mut client, repeated).await.unwrap();
    assert_eq!(first.lock_id, second.lock_id);
    assert_eq!(first.fencing_token, second.fencing_token);
    assert_eq!(harness.engine.held(), 1);
    unlock(&mut client, "r", &first.lock_id).await.unwrap();
    assert_eq!((harness.engine.held(), harness.memory.records()), (0, 0));
}

#[tokio::test]
async fn bad_requests_name_the_field() {
    let harness = Harness::start().await;
    let mut client = harness.locks().await;
    let long = "x".repeat(1100);
    let negative = Some(prost_types::Duration { seconds: -1, nanos: 0 });
    for (bad, field) in [
        (request(""), "resource_id"),
        (request("a||b"), "resource_id"),
        (request(&long), "resource_id"),
        (request("a\nb"), "resource_id"),
        (LockRequest { request_id: long.clone(), ..request("r") }, "request_id"),
        (LockRequest { ttl: ttl(48 * 3_600_000), ..request("r") }, "ttl"),
        (LockRequest { mode: 9, ..request("r") }, "mode"),
        (LockRequest { max_hold: ttl(0), ..request("r") }, "max_hold"),
        (LockRequest { label: "x".repeat(129), ..request("r") }, "label"),
        (LockRequest { wait: negative, ..request("r") }, "wait"),
        (LockRequest { label: "a\u{7f}".into(), ..request("r") }, "label"),
    ] {
        for immediate in [true, false] {
            let bad = LockRequest { immediate, ..bad.clone() };
            let refused = lock(&mut client, bad).await.unwrap_err();
            assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");
            assert_eq!(reason(&refused, "").0, "INVALID_REQUEST");
            let violations = refused.get_details_bad_request().unwrap().field_violations;
            assert_eq!(violations[0].field, field);
        }
    }
    let refused = unlock(&mut client, "r", "").await.unwrap_err();
    assert_eq!(refused.get_details_bad_request().unwrap().field_violations[0].field, "lock_id");
}

#[tokio::test]
async fn an_unknown_store_is_distinguished_from_none_at_all() {
    let harness = Harness::start().await;
    let mut client = harness.locks().await;
    let unknown = LockRequest { store_name: "no".into(), ..request("r") };
    let refused = lock(&mut client, unknown.clone()).await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound);
    assert_eq!(reason(&refused, "").0, "STORE_NOT_FOUND");
    let (stores, (memory, _)) = (Stores::default(), crate::harness::memory());
    let harness = Harness::over(options(), Hooks::default(), stores, memory).await;
    let refused = lock(&mut harness.locks().await, unknown).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert_eq!(reason(&refused, "").0, "STORES_NOT_CONFIGURED");
}

#[tokio::test]
async fn held_locks_have_a_limit() {
    let limited = leasehold_sidecar::Options { held_max: 1, ..options() };
    let harness = Harness::with(limited, Hooks::default()).await;
    let mut client = harness.locks().await;
    let first = lock(&mut client, request("a")).await.unwrap();
    let refused = lock(&mut client, request("b")).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!(reason(&refused, "").0, "OVERLOADED");
    let retry = refused.get_details_retry_info().unwrap();
    assert_eq!(retry.retry_delay, Some(Duration::from_secs(1)));
    let refused = harness.post("/v1.0-alpha2/lock/mem/b", "").await;
    assert_eq!(refused.error(), (429, "ERR_OVERLOADED".into()));
    assert_eq!(refused.headers["retry-after"], "1");
    let retry = &refused.json()["details"][1];
    assert_eq!(retry["@type"], "type.googleapis.com/google.rpc.RetryInfo");
    assert_eq!(retry["retryDelay"], "1s");
    unlock(&mut client, "a", &first.lock_id).await.unwrap();
    lock(&mut client, request("b")).await.unwrap();
}

/// daprd accepts compressed messages; here they were once UNIMPLEMENTED.
#[tokio::test]
async fn a_compressed_request_is_served() {
    let harness = Harness::start().await;
    let mut client = harness.locks().await.send_compressed(CompressionEncoding::Gzip);
    let granted = lock(&mut client, request("r")).await.unwrap();
    unlock(&mut client, "r", &granted.lock_id).await.unwrap();
}

/// A few kilobytes that decompress to a hundred megabytes.
#[tokio::test]
async fn a_compressed_request_is_no_larger_than_another_may_be() {
    let harness = Harness::start().await;
    let mut client = harness.locks().await.send_compressed(CompressionEncoding::Gzip);
    let large = LockRequest { request_id: "x".repeat(100_000_000), ..request("r") };
    assert_eq!(lock(&mut client, large).await.unwrap_err().code(), Code::OutOfRange);
}

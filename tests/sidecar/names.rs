//! Resources in namespaces.

use http::Method;
use leasehold_proto::{
    dapr::{TryLockRequest, UnlockRequest as UnlockAlpha1Request},
    locks::{ForceUnlockRequest, LockRequest, LockResponse, RenewLockRequest, UnlockRequest},
};
use leasehold_sidecar::{Hooks, Options, stores::Stores};
use serde_json::{Value, json};
use tonic::Status;
use tonic_types::StatusExt as _;

use crate::{
    alpha2_grpc::{force_request, lock, request, unlock_request},
    harness::{Answer, Harness, STORE, memory, named, options, reason},
};

fn segments(namespace: &[&str]) -> Vec<String> {
    namespace.iter().map(|&segment| segment.into()).collect()
}

fn within(namespace: &[&str], resource: &str) -> LockRequest {
    LockRequest { namespace: segments(namespace), ..request(resource) }
}

async fn take(
    harness: &Harness,
    namespace: &[&str],
    resource: &str,
) -> Result<LockResponse, Status> {
    lock(&mut harness.locks().await, within(namespace, resource)).await
}

async fn post(harness: &Harness, path: &str, body: &Value) -> Answer {
    harness.post(&format!("/v1.0-alpha2/lock/mem/{path}"), body.to_string()).await
}

/// The reason of a refusal, and the field that it names.
fn refused(status: &Status) -> (String, String) {
    let violations = status.get_details_bad_request().unwrap().field_violations;
    (reason(status, "").0, violations[0].field.clone())
}

fn invalid(field: &str) -> (String, String) {
    ("INVALID_REQUEST".into(), field.into())
}

#[tokio::test]
async fn a_name_is_another_in_each_namespace() {
    let harness = Harness::start().await;
    for namespace in [&[][..], &["a"], &["b"], &["a", "b"], &["b", "a"], &["a/b"], &["A"]] {
        take(&harness, namespace, "r").await.unwrap();
        let again = take(&harness, namespace, "r").await.unwrap_err();
        assert_eq!(reason(&again, "").0, "RESOURCE_LOCKED", "{namespace:?}");
    }
}

#[tokio::test]
async fn a_lock_in_a_namespace_is_renewed_and_unlocked_by_its_namespace() {
    let harness = Harness::start().await;
    let mut locks = harness.locks().await;
    let lock_id = take(&harness, &["a"], "r").await.unwrap().lock_id;
    let renewal = |namespace: &[&str]| RenewLockRequest {
        store_name: STORE.into(),
        resource_id: "r".into(),
        lock_id: lock_id.clone(),
        namespace: segments(namespace),
        ..Default::default()
    };
    locks.renew_lock(renewal(&["a"])).await.unwrap();
    let elsewhere = locks.renew_lock(renewal(&[])).await.unwrap_err();
    assert_eq!(reason(&elsewhere, "").0, "LOCK_NOT_FOUND");
    let unlock = |namespace: &[&str]| UnlockRequest {
        namespace: segments(namespace),
        ..unlock_request("r", &lock_id)
    };
    let elsewhere = locks.unlock(unlock(&["a", "a"])).await.unwrap_err();
    assert_eq!(reason(&elsewhere, "").0, "LOCK_NOT_FOUND");
    locks.unlock(unlock(&["a"])).await.unwrap();
    assert_eq!((harness.engine.held(), harness.memory.records()), (0, 0));
}

#[tokio::test]
async fn a_lock_in_a_namespace_is_forced_by_its_namespace() {
    let harness = Harness::start().await;
    let mut locks = harness.locks().await;
    take(&harness, &["a"], "r").await.unwrap();
    let elsewhere = locks.force_unlock(force_request("r")).await.unwrap_err();
    assert_eq!(reason(&elsewhere, "").0, "LOCK_NOT_FOUND");
    let force = ForceUnlockRequest { namespace: segments(&["a"]), ..force_request("r") };
    locks.force_unlock(force).await.unwrap();
    assert_eq!((harness.engine.held(), harness.memory.records()), (0, 0));
}

#[tokio::test]
async fn over_http_the_query_has_the_namespace() {
    let harness = Harness::start().await;
    let body = json!({ "immediate": true });
    let path = "a%2Fb%7C?namespace=x+y&namespace=%C3%BC%2F";
    let lock_id = post(&harness, path, &body).await.json()["lockID"].clone();
    assert!(lock_id.is_string());
    let same = take(&harness, &["x y", "ü/"], "a/b|").await.unwrap_err();
    assert_eq!(reason(&same, "").0, "RESOURCE_LOCKED");
    let path = format!("/v1.0-alpha2/lock/mem/{path}");
    let body = json!({ "lockID": lock_id }).to_string();
    assert_eq!(harness.call(Method::PUT, &path, body.clone()).await.status, 200);
    assert_eq!(harness.call(Method::DELETE, &path, body).await.status, 204);
    take(&harness, &["x y", "ü/"], "a/b|").await.unwrap();
    let forced = harness.call(Method::DELETE, &path, r#"{"force":true}"#).await;
    assert_eq!(forced.status, 204);
}

#[tokio::test]
async fn the_store_has_the_encoded_name() {
    let harness = Harness::start().await;
    let lock_id = take(&harness, &["a/b", "100%"], "k|").await.unwrap().lock_id;
    let name = "lock||app||||a%2Fb/100%25//k%7C".parse().unwrap();
    let unlock = leasehold_lock::UnlockRequest::owner(name, lock_id.parse().unwrap());
    harness.stores.get(STORE).unwrap().store().unlock(unlock).await.unwrap();
}

#[tokio::test]
async fn a_bad_namespace_is_refused_by_its_name() {
    let harness = Harness::start().await;
    let long = "s".repeat(129);
    let whole = "s".repeat(128);
    for bad in
        [&[""][..], &["a", ""], &[long.as_str()], &["a\nb"], &["a"; 17], &[whole.as_str(); 8]]
    {
        let status = take(&harness, bad, "r").await.unwrap_err();
        assert_eq!(refused(&status), invalid("namespace"), "{bad:?}");
    }
    for bad in ["?namespace=", "?namespace", "?namespace=a&namespace=%00", "?namespace=%FF"] {
        let answer = post(&harness, &format!("r{bad}"), &json!({})).await;
        assert_eq!(answer.error(), (400, "ERR_INVALID_REQUEST".into()), "{bad}");
        let violation = &answer.json()["details"][1]["fieldViolations"][0];
        assert_eq!(violation["field"], "namespace", "{bad}");
    }
}

/// If it were ignored, the name without a namespace would be locked.
#[tokio::test]
async fn a_parameter_that_does_not_exist_is_refused() {
    let harness = Harness::start().await;
    let answer = post(&harness, "r?namspace=a", &json!({})).await;
    assert_eq!(answer.error(), (400, "ERR_INVALID_REQUEST".into()));
    let violation = &answer.json()["details"][1]["fieldViolations"][0];
    assert_eq!(violation["field"], "namspace");
    let answer = post(&harness, "r", &json!({ "namespace": ["a"] })).await;
    assert_eq!(answer.error(), (400, "ERR_INVALID_REQUEST".into()));
    assert_eq!(harness.memory.records(), 0);
}

/// Trap: sidecar 29
#[tokio::test]
async fn a_plain_name_never_meets_one_in_a_namespace() {
    let harness = Harness::start().await;
    take(&harness, &["a"], "k").await.unwrap();
    let status = take(&harness, &[], "||a//k").await.unwrap_err();
    assert_eq!(refused(&status), invalid("resource_id"));
    // Nor does alpha1, also where the sidecar holds the lock itself.
    let mut dapr = harness.dapr().await;
    let attempt = TryLockRequest {
        store_name: STORE.into(),
        resource_id: "||a//k".into(),
        lock_owner: "me".into(),
        expiry_in_seconds: 30,
    };
    let status = dapr.try_lock_alpha1(attempt).await.unwrap_err();
    assert!(status.message().contains("can't contain '||'"), "{status:?}");
}

#[tokio::test]
async fn alpha1_unlocks_nothing_in_a_namespace() {
    let harness = Harness::start().await;
    let lock_id = take(&harness, &["a"], "k").await.unwrap().lock_id;
    let unlock = UnlockAlpha1Request {
        store_name: STORE.into(),
        resource_id: "||a//k".into(),
        lock_owner: lock_id,
    };
    let status = harness.dapr().await.unlock_alpha1(unlock).await.unwrap_err();
    assert!(status.message().contains("can't contain '||'"), "{status:?}");
    assert_eq!(harness.engine.held(), 1);
}

#[tokio::test]
async fn later_calls_learn_of_a_lost_lock_in_a_namespace() {
    let harness = Harness::start().await;
    let mut locks = harness.locks().await;
    let lock_id = take(&harness, &["a"], "r").await.unwrap().lock_id;
    let force = ForceUnlockRequest { namespace: segments(&["a"]), ..force_request("r") };
    locks.force_unlock(force).await.unwrap();
    let unlock = UnlockRequest { namespace: segments(&["a"]), ..unlock_request("r", &lock_id) };
    let lost = locks.unlock(unlock).await.unwrap_err();
    assert_eq!(reason(&lost, "cause"), ("LOCK_LOST".into(), Some("forced".into())));
}

async fn sidecar(app_id: &str, prefix: &str) -> Harness {
    let stores = Stores::default();
    let (memory, store) = memory();
    stores.insert(named(STORE, prefix, app_id, store));
    let options = Options { app_id: app_id.into(), ..options() };
    Harness::over(options, Hooks::default(), stores, memory).await
}

#[tokio::test]
async fn a_namespace_is_refused_where_the_prefix_does_not_separate() {
    for (app_id, prefix) in [("app", ""), ("a|b", "appid")] {
        let harness = sidecar(app_id, prefix).await;
        let status = take(&harness, &["a"], "r").await.unwrap_err();
        assert_eq!(refused(&status), invalid("namespace"), "{app_id} {prefix}");
        take(&harness, &[], "r").await.unwrap();
    }
}

#[tokio::test]
async fn a_namespace_needs_no_app_in_the_prefix() {
    for (app_id, prefix) in [("", "appid"), ("a|b", "none"), ("app", "name")] {
        take(&sidecar(app_id, prefix).await, &["a"], "r").await.unwrap();
    }
}

//! CheckLocks: how long the app's locks are valid.

use std::time::Duration;

use http::Method;
use leasehold_proto::{
    dapr::TryLockRequest,
    locks::{CheckLocksRequest, LockCheck, LockRef, LockRequest, LockResponse},
};
use serde_json::{Value, json};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::{
    alpha2_grpc::{force_request, lock, request, ttl, unlock_request},
    harness::{Harness, STORE, eventually},
};

const PATH: &str = "/v1.0-alpha2/locks:check";

fn named(resource: &str, lock_id: &str) -> LockRef {
    LockRef {
        store_name: STORE.into(),
        resource_id: resource.into(),
        lock_id: lock_id.into(),
        ..Default::default()
    }
}

async fn take(harness: &Harness, request: LockRequest) -> LockResponse {
    lock(&mut harness.locks().await, request).await.unwrap()
}

async fn check(harness: &Harness, locks: Vec<LockRef>) -> Result<Vec<LockCheck>, Status> {
    let answer = harness.locks().await.check_locks(CheckLocksRequest { locks }).await?;
    Ok(answer.into_inner().locks)
}

/// Why one lock is not valid, and the cause.
async fn why(harness: &Harness, lock: LockRef) -> (String, String) {
    let answer = check(harness, vec![lock]).await.unwrap().remove(0);
    assert_eq!(answer.valid_for, None, "{answer:?}");
    (answer.reason, answer.cause)
}

fn reported(reason: &str, cause: &str) -> (String, String) {
    (reason.into(), cause.into())
}

#[tokio::test]
async fn a_held_lock_is_valid_for_less_than_its_ttl() {
    let harness = Harness::start().await;
    let granted = take(&harness, LockRequest { ttl: ttl(20_000), ..request("r") }).await;
    let answer = check(&harness, vec![named("r", &granted.lock_id)]).await.unwrap().remove(0);
    assert_eq!((answer.reason.as_str(), answer.cause.as_str()), ("", ""));
    let valid_for = Duration::try_from(answer.valid_for.unwrap()).unwrap();
    // A twentieth and 20 ms are the allowance.
    assert!(valid_for <= Duration::from_millis(18_980), "{valid_for:?}");
    assert!(valid_for > Duration::from_secs(10), "{valid_for:?}");
}

#[tokio::test]
async fn the_answers_are_in_the_order_of_the_question() {
    let harness = Harness::start().await;
    let held = take(&harness, request("b")).await.lock_id;
    let ended = take(&harness, request("a")).await.lock_id;
    harness.locks().await.unlock(unlock_request("a", &ended)).await.unwrap();
    let asked = vec![named("a", &ended), named("b", &held), named("b", &ended)];
    let answers = check(&harness, asked).await.unwrap();
    let valid: Vec<_> = answers.iter().map(|answer| answer.valid_for.is_some()).collect();
    assert_eq!(valid, [false, true, false]);
}

#[tokio::test]
async fn a_lost_lock_is_reported_with_its_cause() {
    let harness = Harness::start().await;
    let forced = take(&harness, request("a")).await.lock_id;
    harness.locks().await.force_unlock(force_request("a")).await.unwrap();
    assert_eq!(why(&harness, named("a", &forced)).await, reported("LOCK_LOST", "forced"));
    let short = LockRequest { ttl: ttl(2000), no_renewal: true, ..request("b") };
    let expired = take(&harness, short).await.lock_id;
    eventually("it expired", || harness.engine.held() == 0).await;
    assert_eq!(why(&harness, named("b", &expired)).await, reported("LOCK_LOST", "expired"));
}

#[tokio::test]
async fn what_this_sidecar_does_not_hold_it_does_not_judge() {
    let harness = Harness::start().await;
    let attempt = TryLockRequest {
        store_name: STORE.into(),
        resource_id: "r".into(),
        lock_owner: "me".into(),
        expiry_in_seconds: 30,
    };
    harness.dapr().await.try_lock_alpha1(attempt).await.unwrap();
    assert_eq!(why(&harness, named("r", "me")).await, reported("NOT_HELD_HERE", ""));
}

#[tokio::test]
async fn an_unknown_store_is_distinguished_from_an_unknown_lock() {
    let harness = Harness::start().await;
    let lock = LockRef { store_name: "no".into(), ..named("r", "id") };
    assert_eq!(why(&harness, lock).await, reported("STORE_NOT_FOUND", ""));
}

#[tokio::test]
async fn a_lock_in_a_namespace_is_checked_by_its_namespace() {
    let harness = Harness::start().await;
    let namespace = vec!["a".to_owned()];
    let held = LockRequest { namespace: namespace.clone(), ..request("r") };
    let lock = named("r", &take(&harness, held).await.lock_id);
    let answers =
        check(&harness, vec![LockRef { namespace, ..lock.clone() }, lock]).await.unwrap();
    assert!(answers[0].valid_for.is_some());
    assert_eq!(answers[1].reason, "NOT_HELD_HERE");
}

#[tokio::test]
async fn a_thousand_locks_are_checked_at_once_and_no_more() {
    let harness = Harness::start().await;
    let lock = named(&"r".repeat(100), &"i".repeat(36));
    let answers = check(&harness, vec![lock.clone(); 1000]).await.unwrap();
    assert_eq!(answers.len(), 1000);
    let status = check(&harness, vec![lock; 1001]).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    let violations = status.get_details_bad_request().unwrap().field_violations;
    assert_eq!(violations[0].field, "locks");
}

#[tokio::test]
async fn a_bad_entry_is_named_by_its_place() {
    let harness = Harness::start().await;
    for (bad, field) in [
        (LockRef { store_name: String::new(), ..named("r", "id") }, "locks[1].store_name"),
        (named("", "id"), "locks[1].resource_id"),
        (named("a||b", "id"), "locks[1].resource_id"),
        (named("r", ""), "locks[1].lock_id"),
        (named("r", &"x".repeat(257)), "locks[1].lock_id"),
        (LockRef { namespace: vec![String::new()], ..named("r", "id") }, "locks[1].namespace"),
    ] {
        let status = check(&harness, vec![named("r", "id"), bad]).await.unwrap_err();
        let violations = status.get_details_bad_request().unwrap().field_violations;
        assert_eq!(violations[0].field, field);
    }
}

#[tokio::test]
async fn no_question_has_no_answer() {
    let harness = Harness::start().await;
    assert!(check(&harness, Vec::new()).await.unwrap().is_empty());
}

#[tokio::test]
async fn locks_are_checked_over_http() {
    let harness = Harness::start().await;
    let path = "/v1.0-alpha2/lock/mem/r?namespace=a";
    let granted = harness.post(path, "").await.json();
    let held = json!({
        "storeName": STORE, "resourceID": "r", "lockID": granted["lockID"], "namespace": ["a"],
    });
    let lost = json!({ "storeName": STORE, "resourceID": "r", "lockID": granted["lockID"] });
    let asked = json!({ "locks": [held, lost] }).to_string();
    let answer = harness.post(PATH, asked.clone()).await;
    assert_eq!(answer.status, 200);
    assert!(answer.json()["locks"][0]["validFor"].is_string());
    assert_eq!(answer.json()["locks"][1], json!({ "reason": "NOT_HELD_HERE" }));
    harness.call(Method::DELETE, path, r#"{"force":true}"#).await;
    let lost = json!({ "reason": "LOCK_LOST", "cause": "forced" });
    assert_eq!(harness.post(PATH, asked).await.json()["locks"][0], lost);
}

#[tokio::test]
async fn bad_questions_over_http_are_400_and_name_the_field() {
    let harness = Harness::start().await;
    let lock = |fields: &[(&str, Value)]| {
        let mut lock = json!({ "storeName": STORE, "resourceID": "r", "lockID": "id" });
        for (name, value) in fields {
            lock[*name] = value.clone();
        }
        json!({ "locks": [lock] })
    };
    let many = vec![json!({}); 1001];
    for (body, field) in [
        (json!([]), "body"),
        (json!({}), "locks"),
        (json!({ "locks": {} }), "locks"),
        (json!({ "locks": ["a"] }), "locks"),
        (json!({ "locks": many }), "locks"),
        (json!({ "locks": [{}] }), "locks[0].storeName"),
        (lock(&[("resourceID", json!(""))]), "locks[0].resourceID"),
        (lock(&[("lockID", json!(""))]), "locks[0].lockID"),
        (lock(&[("storeName", json!(7))]), "locks[0].storeName"),
        (lock(&[("namespace", json!("a"))]), "locks[0].namespace"),
        (lock(&[("namespace", json!([7]))]), "locks[0].namespace"),
        (lock(&[("namespace", json!([""]))]), "locks[0].namespace"),
        (json!({ "locks": "x".repeat(256 * 1024) }), "body"),
    ] {
        let answer = harness.post(PATH, body.to_string()).await;
        assert_eq!(answer.error(), (400, "ERR_INVALID_REQUEST".into()));
        let violation = &answer.json()["details"][1]["fieldViolations"][0];
        assert_eq!(violation["field"], field);
    }
    let answer = harness.post(&format!("{PATH}?namespace=a"), r#"{"locks":[]}"#).await;
    assert_eq!(answer.error(), (400, "ERR_INVALID_REQUEST".into()));
    let answer = harness.call(Method::GET, PATH, "").await;
    assert_eq!(answer.error(), (405, "ERR_METHOD_NOT_ALLOWED".into()));
}

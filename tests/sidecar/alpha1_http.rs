//! alpha1 over HTTP: every row of Dapr's table.

use http::{Method, header};
use leasehold_sidecar::{Hooks, stores::Stores};
use serde_json::json;

use crate::harness::{Harness, memory, options};

const TRY: &str = "/v1.0-alpha1/lock/mem";
const UNLOCK: &str = "/v1.0-alpha1/unlock/mem";

fn try_body(owner: &str) -> String {
    json!({ "resourceId": "r", "lockOwner": owner, "expiryInSeconds": 60 }).to_string()
}

fn unlock_body(owner: &str) -> String {
    json!({ "resourceId": "r", "lockOwner": owner }).to_string()
}

#[tokio::test]
async fn a_lock_is_granted_held_and_given_back() {
    let harness = Harness::start().await;
    let granted = harness.post(TRY, try_body("a")).await;
    assert_eq!((granted.status.as_u16(), granted.json()), (200, json!({ "success": true })));
    assert_eq!(granted.headers[header::CONTENT_TYPE], "application/json");
    let token = granted.headers["leasehold-fencing-token"].to_str().unwrap();
    assert!(token.parse::<u64>().unwrap() > 0);

    let held = harness.post(TRY, try_body("b")).await;
    assert_eq!((held.status.as_u16(), held.json()), (200, json!({ "success": false })));
    assert!(!held.headers.contains_key("leasehold-fencing-token"));

    for (owner, status) in [("b", 2), ("a", 0), ("a", 1)] {
        let answer = harness.post(UNLOCK, unlock_body(owner)).await;
        assert_eq!(answer.json(), json!({ "status": status }), "{owner}");
    }
}

#[tokio::test]
async fn the_body_is_read_by_the_rules_of_protojson() {
    let harness = Harness::start().await;
    let body = r#"{"resource_id":"r","lock_owner":"a","expiry_in_seconds":"60","more":[1]}"#;
    assert_eq!(harness.post(TRY, body).await.json(), json!({ "success": true }));
    let empty = harness.post(TRY, "").await;
    assert_eq!(
        empty.json(),
        json!({ "errorCode": "ERR_MALFORMED_REQUEST",
                "message": "ExpiryInSeconds is not positive in lock store mem" })
    );
    let empty = harness.post(UNLOCK, "").await;
    assert_eq!(empty.json()["message"], "ResourceId is empty in lock store mem");
}

#[tokio::test]
async fn errors_have_daprs_codes_statuses_and_words() {
    let harness = Harness::start().await;
    let long = "x".repeat(1100);
    let cases = [
        (
            TRY,
            json!({"expiryInSeconds":-1}),
            400,
            "ERR_MALFORMED_REQUEST",
            "ExpiryInSeconds is not positive in lock store mem",
        ),
        (
            TRY,
            json!({"expiryInSeconds":1}),
            400,
            "ERR_MALFORMED_REQUEST",
            "ResourceId is empty in lock store mem",
        ),
        (
            TRY,
            json!({"expiryInSeconds":1,"resourceId":"r"}),
            400,
            "ERR_MALFORMED_REQUEST",
            "LockOwner is empty in lock store mem",
        ),
        (
            "/v1.0-alpha1/lock/no",
            json!({"expiryInSeconds":1,"resourceId":"r","lockOwner":"o"}),
            400,
            "ERR_LOCK_STORE_NOT_FOUND",
            "lock store no not found",
        ),
        (
            TRY,
            json!({"expiryInSeconds":1,"resourceId":"a||b","lockOwner":"o"}),
            500,
            "ERR_TRY_LOCK",
            "failed to try acquiring lock: input key/keyPrefix 'a||b' can't \
             contain '||'",
        ),
        (
            TRY,
            json!({"expiryInSeconds":1,"resourceId":long,"lockOwner":"o"}),
            500,
            "ERR_TRY_LOCK",
            "failed to try acquiring lock: ",
        ),
        (
            UNLOCK,
            json!({"resourceId":"a||b","lockOwner":"o"}),
            500,
            "ERR_UNLOCK",
            "failed to release lock: input key/keyPrefix 'a||b' can't contain '||'",
        ),
        (
            UNLOCK,
            json!({"resourceId":long,"lockOwner":"o"}),
            500,
            "ERR_UNLOCK",
            "failed to release lock: ",
        ),
        (
            "/v1.0-alpha1/unlock/no",
            json!({"resourceId":"r","lockOwner":"o"}),
            400,
            "ERR_LOCK_STORE_NOT_FOUND",
            "lock store no not found",
        ),
        (
            TRY,
            json!({"expiryInSeconds":1,"resourceId":7,"lockOwner":"o"}),
            400,
            "ERR_MALFORMED_REQUEST",
            "failed deserializing HTTP body: ",
        ),
        (TRY, json!([]), 400, "ERR_MALFORMED_REQUEST", "failed deserializing HTTP body: "),
    ];
    for (path, body, status, code, message) in cases {
        let answer = harness.post(path, body.to_string()).await;
        assert_eq!(answer.error(), (status, code.to_owned()), "{path} {body}");
        let text = answer.json()["message"].as_str().unwrap().to_owned();
        assert!(text.starts_with(message), "{path} {body}: {text}");
        assert_eq!(answer.json().as_object().unwrap().len(), 2, "{text}");
    }
    let malformed = harness.post(TRY, "{").await;
    assert_eq!(malformed.error(), (400, "ERR_MALFORMED_REQUEST".to_owned()));
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused() {
    let harness = Harness::start().await;
    let answer = harness.post(TRY, " ".repeat(64 * 1024 + 1)).await;
    assert_eq!(answer.error(), (400, "ERR_BODY_READ".to_owned()));
    let answer = harness.post(TRY, format!("{{}}{}", " ".repeat(64 * 1024 - 2))).await;
    assert_eq!(answer.error(), (400, "ERR_MALFORMED_REQUEST".to_owned()));
}

#[tokio::test]
async fn without_any_store_that_is_said() {
    let (memory, _) = memory();
    let harness = Harness::over(options(), Hooks::default(), Stores::default(), memory).await;
    for (path, body) in [(TRY, try_body("a")), (UNLOCK, unlock_body("a"))] {
        let answer = harness.post(path, body).await;
        assert_eq!(answer.error(), (500, "ERR_LOCK_STORE_NOT_CONFIGURED".to_owned()));
        assert_eq!(answer.json()["message"], "lock store is not configured");
    }
}

#[tokio::test]
async fn a_trailing_slash_is_stripped_and_a_store_name_decoded() {
    let harness = Harness::start().await;
    let granted = harness.post("/v1.0-alpha1/lock/m%65m/", try_body("a")).await;
    assert_eq!(granted.json(), json!({ "success": true }));
}

#[tokio::test]
async fn another_method_is_refused() {
    let harness = Harness::start().await;
    let answer = harness.call(Method::GET, TRY, "").await;
    assert_eq!(answer.error(), (405, "ERR_METHOD_NOT_ALLOWED".to_owned()));
}

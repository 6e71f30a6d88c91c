//! alpha2 over HTTP, with explicit unlock.

use http::Method;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{
    harness::{Answer, HOLDER, Harness, PATIENCE, STORE, eventually},
    inspection::waited_for_by,
};

const PATH: &str = "/v1.0-alpha2/lock/mem/r";

fn now() -> String {
    json!({ "immediate": true }).to_string()
}

async fn delete(harness: &Harness, path: &str, body: &Value) -> Answer {
    harness.call(Method::DELETE, path, body.to_string()).await
}

#[tokio::test]
async fn a_lock_is_granted_renewed_refused_and_unlocked() {
    let harness = Harness::start().await;
    let body = json!({ "immediate": true, "ttl": "10s" }).to_string();
    let granted = harness.post(PATH, body).await;
    assert_eq!(granted.status, 200);
    let granted = granted.json();
    assert_eq!(granted["ttl"], "10s");
    assert!(granted["fencingToken"].as_u64().unwrap() > 0);
    assert!(granted["waited"].is_string());
    let lock_id = granted["lockID"].as_str().unwrap();

    let refused = harness.post(PATH, now()).await;
    assert_eq!(refused.error(), (409, "ERR_RESOURCE_LOCKED".into()));
    assert!(!refused.headers.contains_key("retry-after"));
    let detail = &refused.json()["details"][0];
    assert_eq!(detail["@type"], "type.googleapis.com/google.rpc.ErrorInfo");
    assert_eq!(detail["reason"], "RESOURCE_LOCKED");
    assert_eq!(detail["domain"], "dapr.io");
    assert_eq!(detail["metadata"]["holder"], HOLDER);
    assert_eq!(detail["metadata"]["grantID"], granted["grantID"]);
    assert_eq!(detail["metadata"]["mode"], "exclusive");

    let body = json!({ "lockID": lock_id, "ttl": "1m30s" }).to_string();
    let renewed = harness.call(Method::PUT, PATH, body).await;
    assert_eq!((renewed.status.as_u16(), renewed.json()), (200, json!({ "ttl": "1m30s" })));

    let unlocked = delete(&harness, PATH, &json!({ "lockID": lock_id })).await;
    assert_eq!((unlocked.status.as_u16(), unlocked.body.len()), (204, 0));
    let again = delete(&harness, PATH, &json!({ "lockID": lock_id })).await;
    assert_eq!(again.error(), (404, "ERR_LOCK_NOT_FOUND".into()));
    assert_eq!(again.json()["details"][0]["metadata"]["held"], "false");
}

#[tokio::test]
async fn a_forced_lock_is_lost() {
    let harness = Harness::start().await;
    let granted = harness.post(PATH, "").await.json();
    let forced = delete(&harness, PATH, &json!({ "force": true })).await;
    assert_eq!(forced.status, 204);
    let lost = delete(&harness, PATH, &json!({ "lockID": granted["lockID"] })).await;
    assert_eq!(lost.error(), (409, "ERR_LOCK_LOST".into()));
    assert_eq!(lost.json()["details"][0]["metadata"]["cause"], "forced");
    let free = delete(&harness, PATH, &json!({ "force": true })).await;
    assert_eq!(free.error(), (404, "ERR_LOCK_NOT_FOUND".into()));
}

#[tokio::test]
async fn a_wait_has_a_deadline_of_its_own_in_http() {
    let harness = Harness::start().await;
    harness.post(PATH, now()).await;
    let body = json!({ "wait": "200ms" }).to_string();
    let ended = timeout(PATIENCE, harness.post(PATH, body)).await.unwrap();
    assert_eq!(ended.error(), (408, "ERR_WAIT_DEADLINE".into()));
}

#[tokio::test]
async fn a_wait_whose_caller_went_away_ends_with_it() {
    let harness = Harness::start().await;
    let granted = harness.post(PATH, now()).await.json();
    tokio::select! {
        _ = harness.post(PATH, "") => panic!("it was answered"),
        () = waited_for_by(&harness, "r", 1) => {}
    }
    waited_for_by(&harness, "r", 0).await;
    delete(&harness, PATH, &json!({ "lockID": granted["lockID"] })).await;
    eventually("nobody holds it", || harness.memory.records() == 0).await;
    assert_eq!(harness.engine.held(), 0);
}

#[tokio::test]
async fn the_resource_is_the_rest_of_the_path_decoded() {
    let harness = Harness::start().await;
    let store = harness.stores.get(STORE).unwrap();
    for (path, resource) in [
        ("a/b/c", "a/b/c"),
        ("a%2Fb", "a/b"),
        ("%C3%A4%20%25", "ä %"),
        ("a+b", "a+b"),
        ("a//b", "a//b"),
        ("x/", "x/"),
    ] {
        let path = format!("/v1.0-alpha2/lock/mem/{path}");
        let granted = harness.post(&path, now()).await;
        assert_eq!(granted.status, 200, "{path} {granted:?}");
        let lock_id = granted.json()["lockID"].as_str().unwrap().parse().unwrap();
        let resource = format!("lock||app||{resource}").parse().unwrap();
        let request = leasehold_lock::UnlockRequest::owner(resource, lock_id);
        store.store().unlock(request).await.unwrap();
    }
}

#[tokio::test]
async fn bad_requests_are_400_and_name_the_field() {
    let harness = Harness::start().await;
    let post = Method::POST;
    let long = |field: &str| format!("{{\"{field}\":\"{}\"}}", "x".repeat(257));
    let (long_request, long_lock) = (long("requestID"), long("lockID"));
    let both = "{\"lockID\":\"x\",\"detach\":true,\"maxHold\":\"1s\"}";
    for (method, path, body, field) in [
        (&post, "mem/r", "{", "body"),
        (&post, "mem/r", "[]", "body"),
        (&post, "mem/r", "{\"immediate\":\"yes\"}", "immediate"),
        (&post, "mem/r", "{\"ttl\":30}", "ttl"),
        (&post, "mem/r", "{\"ttl\":\"30\"}", "ttl"),
        (&post, "mem/r", "{\"ttl\":\"48h\"}", "ttl"),
        (&post, "mem/r", "{\"wait\":\"soon\"}", "wait"),
        (&post, "mem/r", "{\"maxHold\":\"-1s\"}", "maxHold"),
        (&post, "mem/r", "{\"mode\":\"both\"}", "mode"),
        (&post, "mem/r", "{\"metadata\":[]}", "metadata"),
        (&post, "mem/r", "{\"requestID\":{}}", "requestID"),
        (&post, "mem/r", "{\"label\":1}", "label"),
        (&post, "mem/r", "{\"imediate\":true}", "imediate"),
        (&Method::PUT, "mem/r", "{\"lockID\":\"x\",\"TTL\":\"1s\"}", "TTL"),
        (&Method::DELETE, "mem/r", "{\"lockId\":\"x\"}", "lockId"),
        (&post, "mem/r", "{\"label\":\"a\\nb\"}", "label"),
        (&post, "mem/r", &long_request, "requestID"),
        (&post, "mem/a%7C%7Cb", "{}", "resourceID"),
        (&post, "mem/%00", "{}", "resourceID"),
        (&post, "mem/%FF", "{}", "resourceID"),
        (&post, "mem/", "{}", "resourceID"),
        (&post, "mem", "{}", "resourceID"),
        (&Method::DELETE, "mem/", "{}", "resourceID"),
        (&Method::DELETE, "mem/r", &long_lock, "lockID"),
        (&Method::PUT, "mem/r", "", "lockID"),
        (&Method::PUT, "mem/r", "{\"lockID\":\"x\",\"detach\":1}", "detach"),
        (&Method::PUT, "mem/r", "{\"lockID\":\"x\",\"maxHold\":\"0s\"}", "maxHold"),
        (&Method::PUT, "mem/r", both, "maxHold"),
        (&Method::DELETE, "mem/r", "", "lockID"),
        (&Method::DELETE, "mem/r", "{\"grantID\":\"x\"}", "grantID"),
        (&Method::DELETE, "mem/r", "{\"force\":1}", "force"),
        (&Method::DELETE, "mem/r", "{\"force\":false}", "lockID"),
        (&Method::DELETE, "mem/r", "{\"force\":true,\"lockID\":\"mine\"}", "lockID"),
        (&Method::DELETE, "mem/r", "{\"force\":true,\"grantID\":\"\"}", "grantID"),
        (&Method::DELETE, "mem/r", "{\"force\":true,\"grantID\":null}", "grantID"),
    ] {
        let path = format!("/v1.0-alpha2/lock/{path}");
        let answer = harness.call(method.clone(), &path, body.to_owned()).await;
        assert_eq!(answer.error(), (400, "ERR_INVALID_REQUEST".into()), "{path} {body}");
        let violation = &answer.json()["details"][1]["fieldViolations"][0];
        assert_eq!(violation["field"], field, "{path} {body}");
        assert!(!violation["description"].as_str().unwrap().is_empty());
        assert!(answer.json()["message"].as_str().unwrap().starts_with(field));
    }
    assert_eq!(harness.memory.records(), 0);
}

#[tokio::test]
async fn an_empty_body_is_all_defaults() {
    let harness = Harness::start().await;
    let granted = harness.post(PATH, "{\"metadata\":{\"a\":\"b\"}}").await;
    assert_eq!(granted.json()["ttl"], "30s");
    let other = harness.post("/v1.0-alpha2/lock/mem/other", "").await;
    assert_eq!(other.json()["ttl"], "30s");
}

#[tokio::test]
async fn errors_have_their_statuses() {
    let harness = Harness::start().await;
    let bad = harness.post(PATH, "{\"mode\":\"both\"}").await;
    assert_eq!(bad.error(), (400, "ERR_INVALID_REQUEST".into()));
    let unknown = harness.post("/v1.0-alpha2/lock/no/r", "").await;
    assert_eq!(unknown.error(), (404, "ERR_STORE_NOT_FOUND".into()));
}

//! Inspection over HTTP.

use http::{Method, header};
use http_body_util::BodyExt as _;
use leasehold_sidecar::{Options, api::auth::Token};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::*;
use crate::harness::{Answer, HOLDER};

const NDJSON: (&str, &str) = ("accept", "application/x-ndjson");

async fn call(harness: &Harness, method: Method, path: &str) -> Answer {
    harness.call(method, &format!("/v1.0-alpha2/{path}"), "").await
}

async fn read(harness: &Harness, path: &str) -> Value {
    let answer = call(harness, Method::GET, path).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

fn keys(locks: &Value) -> Vec<&str> {
    let locks = locks.as_array().unwrap().iter();
    let mut keys: Vec<_> = locks.map(|lock| lock["resourceID"].as_str().unwrap()).collect();
    keys.sort_unstable();
    keys
}

#[tokio::test]
async fn a_lock_is_shown_in_the_json_of_the_api() {
    let harness = Harness::start().await;
    let grant = take(&harness, within(&["a", "b"], "r/s")).await;
    let shown = read(&harness, "lock/mem/r%2Fs?namespace=a&namespace=b").await;
    assert_eq!(shown["resourceID"], "r/s");
    assert_eq!(shown["namespace"], json!(["a", "b"]));
    assert_eq!((&shown["grantsTotal"], &shown["waiters"]), (&json!(1), &json!(0)));
    let shown = &shown["grants"][0];
    assert_eq!((&shown["grantID"], &shown["holder"]), (&json!(grant.grant_id), &json!(HOLDER)));
    assert_eq!(shown["mode"], "exclusive");
    assert!(shown["remaining"].as_str().unwrap().ends_with('s'));
    assert!(shown["since"].as_str().unwrap().ends_with('Z'));
    let free = read(&harness, "lock/mem/r").await;
    assert_eq!((&free["grants"], &free["grantsTotal"]), (&json!([]), &json!(0)));
}

#[tokio::test]
async fn a_grant_gets_its_id() {
    let harness = Harness::start().await;
    let granted = harness.post("/v1.0-alpha2/lock/mem/r", "{}").await.json();
    let shown = read(&harness, "lock/mem/r").await;
    assert_eq!(shown["grants"][0]["grantID"], granted["grantID"]);
    assert_eq!(granted["grantID"].as_str().unwrap().len(), 32);
}

#[tokio::test]
async fn a_queue_is_listed_in_pages() {
    let harness = Harness::start().await;
    take(&harness, request("r")).await;
    let mut waiting = Vec::new();
    for at in 1..=2 {
        let asked = LockRequest { immediate: false, ..request("r") };
        let mut client = harness.locks().await;
        waiting.push(tokio::spawn(async move { lock(&mut client, asked).await }));
        waited_for_by(&harness, "r", at).await;
        assert_eq!(read(&harness, "lock/mem/r").await["waiters"], at);
    }
    let first = read(&harness, "lock/mem/r?queue=1").await;
    assert_eq!(first["queue"][0]["position"], 1);
    let page = first["nextPage"].as_str().unwrap();
    let second = read(&harness, &format!("lock/mem/r?queue=1&page={page}")).await;
    assert_eq!(second["queue"][0]["position"], 2);
    assert_eq!(second["queue"][0]["mode"], "exclusive");
    assert!(second.get("nextPage").is_none(), "{second}");
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn a_scope_is_listed_in_pages() {
    let harness = Harness::start().await;
    for key in ["k1", "k2", "x"] {
        take(&harness, within(&["a"], key)).await;
    }
    take(&harness, request("k3")).await;
    assert_eq!(keys(&read(&harness, "locks/mem").await["locks"]), ["k3"]);
    let of_a = read(&harness, "locks/mem?namespace=a&prefix=k").await;
    assert_eq!(keys(&of_a["locks"]), ["k1", "k2"]);
    let everything = read(&harness, "locks/mem?children=true&holderPrefix=app%2F").await;
    assert_eq!(keys(&everything["locks"]), ["k1", "k2", "k3", "x"]);
    let first = read(&harness, "locks/mem?children=true&limit=3").await;
    let page = first["nextPage"].as_str().unwrap();
    let path = format!("locks/mem?children=true&limit=3&page={page}");
    let second = read(&harness, &path).await;
    assert_eq!(
        (first["locks"].as_array().unwrap().len(), keys(&second["locks"]).len()),
        (3, 1)
    );
}

#[tokio::test]
async fn a_watch_is_a_line_an_event() {
    let mut harness = Harness::start().await;
    let grant = take(&harness, request("r")).await;
    let path = "/v1.0-alpha2/locks/mem?children=true";
    let mut stream = harness.open(Method::GET, path, &[NDJSON], "").await;
    assert_eq!(stream.headers()[header::CONTENT_TYPE], NDJSON.1);
    let mut line = async || {
        let frame = timeout(PATIENCE, stream.body_mut().frame()).await.unwrap()?;
        let data = frame.unwrap().into_data().unwrap();
        Some(serde_json::from_slice::<Value>(&data).unwrap())
    };
    let state = line().await.unwrap();
    assert_eq!((&state["type"], &state["state"]["resourceID"]), (&json!("state"), &json!("r")));
    assert_eq!(line().await.unwrap(), json!({ "type": "synced" }));
    let body = json!({ "force": true, "grantID": grant.grant_id }).to_string();
    let forced = harness.call(Method::DELETE, "/v1.0-alpha2/lock/mem/r", body).await;
    assert_eq!(forced.status, 204);
    let ended = line().await.unwrap();
    assert_eq!(ended["state"]["grantsTotal"], 0);
    assert_eq!(ended["ended"][0]["cause"], "forced");
    assert_eq!(ended["ended"][0]["grant"]["grantID"], grant.grant_id);
    harness.begin_to_stop();
    let last = line().await.unwrap();
    assert_eq!(
        (&last["type"], &last["errorCode"]),
        (&json!("error"), &json!("ERR_SHUTTING_DOWN"))
    );
    assert_eq!(line().await, None);
    harness.stop().await;
}

#[tokio::test]
async fn a_scope_is_ended() {
    let harness = Harness::start().await;
    take(&harness, within(&["a"], "r")).await;
    take(&harness, request("s")).await;
    let path = "locks/mem?namespace=a&dryRun=true&reason=stuck&limit=10";
    let dry = call(&harness, Method::DELETE, path).await.json();
    assert_eq!((keys(&dry["ended"]), &dry["more"]), (vec!["r"], &json!(false)));
    assert_eq!(harness.memory.records(), 2);
    let ended = call(&harness, Method::DELETE, "locks/mem?namespace=a").await.json();
    assert_eq!(keys(&ended["ended"]), ["r"]);
    let ended = call(&harness, Method::DELETE, "locks/mem?all=true").await.json();
    assert_eq!(keys(&ended["ended"]), ["s"]);
    assert_eq!(harness.memory.records(), 0);
}

#[tokio::test]
async fn a_forced_unlock_may_name_one_grant() {
    let harness = Harness::start().await;
    take(&harness, request("r")).await;
    let path = "/v1.0-alpha2/lock/mem/r";
    let body = json!({ "force": true, "grantID": "0".repeat(32) }).to_string();
    let other = harness.call(Method::DELETE, path, body).await;
    assert_eq!(other.error(), (404, "ERR_LOCK_NOT_FOUND".into()));
    assert_eq!(other.json()["details"][0]["metadata"]["held"], "true");
    assert_eq!(harness.memory.records(), 1);
}

/// The field that a refusal names.
fn refused(answer: &Answer) -> String {
    assert_eq!(answer.error(), (400, "ERR_INVALID_REQUEST".into()), "{answer:?}");
    answer.json()["details"][1]["fieldViolations"][0]["field"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_bad_parameter_is_named() {
    let harness = Harness::start().await;
    let long = "x".repeat(257);
    for (method, path, field) in [
        (Method::GET, "lock/mem/r?queu=1", "queu"),
        (Method::GET, "lock/mem/r?queue=x", "queue"),
        (Method::GET, "lock/mem/r?queue=1001", "queue"),
        (Method::GET, "lock/mem/r?queue=-1", "queue"),
        (Method::GET, "lock/mem/r?queue=0", "queue"),
        (Method::GET, "lock/mem/r?queue=1&page=x", "page"),
        (Method::GET, "lock/mem/r?page=x", "page"),
        (Method::GET, "lock/mem/r?namespace=", "namespace"),
        (Method::GET, "lock/mem/a%7C%7Cb", "resourceID"),
        (Method::GET, "lock/mem", "resourceID"),
        (Method::GET, "locks/mem?all=true", "all"),
        (Method::GET, "locks/mem?children=yes", "children"),
        (Method::GET, "locks/mem?prefix=a%00", "prefix"),
        (Method::GET, "locks/mem?prefix=%FF", "prefix"),
        (Method::GET, &format!("locks/mem?holderPrefix={long}"), "holderPrefix"),
        (Method::GET, "locks/mem?limit=0.5", "limit"),
        (Method::GET, "locks/mem?limit=1001", "limit"),
        (Method::GET, "locks/mem?limit=0", "limit"),
        (Method::GET, "locks/mem?limit=1&limit=2", "limit"),
        (Method::GET, "locks/mem?page=x", "page"),
        (Method::DELETE, "locks/mem", "all"),
        (Method::DELETE, "locks/mem?children=true", "all"),
        (Method::DELETE, "locks/mem?all=1", "all"),
        (Method::DELETE, "locks/mem?prefix=a&dryrun=true", "dryrun"),
        (Method::DELETE, "locks/mem?prefix=a&dryRun=", "dryRun"),
        (Method::DELETE, "locks/mem?prefix=a&limit=1001", "limit"),
        (Method::DELETE, "locks/mem?prefix=a&limit=0", "limit"),
        (Method::DELETE, "locks/mem?namespace=a&prefix=", "prefix"),
        (Method::DELETE, "locks/mem?namespace=a&holderPrefix=", "holderPrefix"),
        (Method::DELETE, &format!("locks/mem?prefix=a&reason={long}"), "reason"),
        (Method::DELETE, "locks/mem?prefix=a&page=x", "page"),
    ] {
        let answer = call(&harness, method.clone(), path).await;
        assert_eq!(refused(&answer), field, "{method} {path}");
    }
    let path = "/v1.0-alpha2/locks/mem";
    let limited =
        harness.call_with(Method::GET, &format!("{path}?limit=1"), &[NDJSON], "").await;
    assert_eq!(refused(&limited), "limit", "a watch has no pages");
    let end =
        harness.call(Method::DELETE, &format!("{path}?all=true"), "{\"dryRun\":true}").await;
    assert_eq!(refused(&end), "body");
    for (name, value) in [("grantID", "x"), ("reason", "a\nb")] {
        let body = json!({ "force": true, name: value }).to_string();
        let forced = harness.call(Method::DELETE, "/v1.0-alpha2/lock/mem/r", body).await;
        assert_eq!(refused(&forced), name);
    }
}

#[tokio::test]
async fn an_unknown_store_is_not_found() {
    let harness = Harness::start().await;
    for (method, path) in [
        (Method::GET, "lock/other/r"),
        (Method::GET, "locks/other"),
        (Method::DELETE, "locks/other?all=true"),
    ] {
        let answer = call(&harness, method, path).await;
        assert_eq!(answer.error(), (404, "ERR_STORE_NOT_FOUND".into()), "{path}");
    }
}

#[tokio::test]
async fn a_page_in_a_browser_and_a_caller_without_the_token_see_nothing() {
    let token = Options { token: Token::new(Some("secret")), ..options() };
    let (open, closed) = (Harness::start().await, Harness::with(token, Hooks::default()).await);
    for (method, path) in [
        (Method::GET, "/v1.0-alpha2/lock/mem/r"),
        (Method::GET, "/v1.0-alpha2/locks/mem"),
        (Method::DELETE, "/v1.0-alpha2/locks/mem?all=true"),
    ] {
        let page = [("origin", "http://evil.example")];
        let answer = open.call_with(method.clone(), path, &page, "").await;
        assert_eq!(answer.error(), (403, "ERR_FORBIDDEN_ORIGIN".into()), "{path}");
        assert_eq!(closed.call(method, path, "").await.status, 401, "{path}");
    }
    let mut asked = tonic::Request::new(list_request(all()));
    asked.metadata_mut().insert("origin", "http://evil.example".parse().unwrap());
    let refused = inspection(&open).await.list_locks(asked).await.unwrap_err();
    assert_eq!(reason(&refused, "").0, "FORBIDDEN_ORIGIN");
    let refused = inspection(&closed).await.list_locks(list_request(all())).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::Unauthenticated);
}

//! alpha2's stream over HTTP: one JSON object on each line, over HTTP/1.1 and HTTP/2.

use std::time::Duration;

use axum::body::Body;
use http::{Method, Request, Response, header};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use leasehold_sidecar::{Hooks, Options};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::{sleep, timeout},
};

use crate::{
    alpha2_grpc::request,
    harness::{Harness, PATIENCE, eventually, options},
    stream::acquired,
};

const PATH: &str = "/v1.0-alpha2/lock/mem/r";
const ACCEPT: (&str, &str) = ("accept", "application/x-ndjson");

async fn open(harness: &Harness, body: &Value) -> Response<Incoming> {
    harness.open(Method::POST, PATH, &[ACCEPT], body.to_string()).await
}

async fn open_h2(harness: &Harness, body: &Value) -> Response<Incoming> {
    let client: Client<_, Body> =
        Client::builder(TokioExecutor::new()).http2_only(true).build_http();
    let request = Request::post(format!("http://{}{PATH}", harness.http))
        .header(ACCEPT.0, ACCEPT.1)
        .body(Body::from(body.to_string()))
        .unwrap();
    client.request(request).await.unwrap()
}

/// The next line that is no ping, or nothing at the end.
async fn line(stream: &mut Response<Incoming>) -> Option<Value> {
    loop {
        let frame = timeout(PATIENCE, stream.body_mut().frame()).await.unwrap()?;
        let Ok(data) = frame.unwrap().into_data() else { continue };
        assert!(data.ends_with(b"\n"), "{data:?}");
        let line: Value = serde_json::from_slice(&data).unwrap();
        if line["type"] != "ping" {
            return Some(line);
        }
    }
}

#[tokio::test]
async fn the_streams_life_is_the_locks_life() {
    let harness = Harness::start().await;
    for http2 in [false, true] {
        let body = json!({ "ttl": "5s" });
        let mut stream =
            if http2 { open_h2(&harness, &body).await } else { open(&harness, &body).await };
        assert_eq!(stream.status(), 200);
        assert_eq!(stream.headers()[header::CONTENT_TYPE], "application/x-ndjson");
        let acquired = line(&mut stream).await.unwrap();
        assert_eq!(acquired["type"], "lock-acquired");
        assert_eq!(acquired["ttl"], "5s");
        assert!(acquired["fencingToken"].as_u64().unwrap() > 0);
        assert!(acquired["waited"].is_string());
        assert_eq!(harness.memory.records(), 1);
        drop(stream);
        eventually("it is free", || harness.memory.records() == 0).await;
    }
}

#[tokio::test]
async fn an_unlock_ends_it_without_a_further_line() {
    let harness = Harness::start().await;
    let mut stream = open(&harness, &json!({})).await;
    let acquired = line(&mut stream).await.unwrap();
    let body = json!({ "lockID": acquired["lockID"] }).to_string();
    assert_eq!(harness.call(Method::DELETE, PATH, body).await.status, 204);
    assert_eq!(line(&mut stream).await, None);
}

/// Trap: sidecar 17
#[tokio::test]
async fn a_lost_lock_is_reported_with_its_cause() {
    let harness = Harness::start().await;
    let mut stream = open(&harness, &json!({ "maxHold": "100ms" })).await;
    line(&mut stream).await.unwrap();
    let lost = line(&mut stream).await.unwrap();
    assert_eq!(lost["type"], "error");
    assert_eq!(lost["errorCode"], "ERR_LOCK_LOST");
    assert_eq!(lost["cause"], "max_hold");
    assert!(!lost["error"].as_str().unwrap().is_empty());
    assert_eq!(line(&mut stream).await, None);
}

/// A suspended app once kept its lock for ever, because the kernel acknowledges for
/// it.
/// Trap: sidecar 49
#[tokio::test]
async fn over_http_1_the_default_max_hold_ends_it() {
    let max_hold_default = Some(Duration::from_millis(100));
    let limited = Options { max_hold_default, ..options() };
    let harness = Harness::with(limited, Hooks::default()).await;
    let mut stream = open(&harness, &json!({})).await;
    line(&mut stream).await.unwrap();
    assert_eq!(line(&mut stream).await.unwrap()["cause"], "max_hold");
    let mut grpc =
        harness.locks().await.lock_stream(request("other")).await.unwrap().into_inner();
    acquired(&mut grpc).await;
    // The limit, by the real clock, because the sockets are real.
    sleep(Duration::from_millis(200)).await;
    assert_eq!(harness.engine.held(), 1);
}

#[tokio::test]
async fn an_immediate_refusal_and_a_bad_request_are_plain_errors() {
    let harness = Harness::start().await;
    let mut stream = open(&harness, &json!({})).await;
    line(&mut stream).await.unwrap();
    for (body, status, code) in [
        (json!({ "immediate": true }), 409, "ERR_RESOURCE_LOCKED"),
        (json!({ "ttl": "48h" }), 400, "ERR_INVALID_REQUEST"),
        (json!({ "ttl": 1 }), 400, "ERR_INVALID_REQUEST"),
    ] {
        let answer = harness.call_with(Method::POST, PATH, &[ACCEPT], body.to_string()).await;
        assert_eq!(answer.error(), (status, code.to_owned()));
        assert_eq!(answer.headers[header::CONTENT_TYPE], "application/json");
    }
}

#[tokio::test]
async fn a_wait_is_answered_at_once_and_its_deadline_is_a_line() {
    let harness = Harness::start().await;
    let mut held = open(&harness, &json!({})).await;
    line(&mut held).await.unwrap();
    let mut waiting = open(&harness, &json!({ "wait": "200ms" })).await;
    assert_eq!(waiting.status(), 200);
    let ended = line(&mut waiting).await.unwrap();
    assert_eq!(ended["errorCode"], "ERR_WAIT_DEADLINE");
    assert!(ended.get("cause").is_none());
    assert_eq!(line(&mut waiting).await, None);
}

#[tokio::test]
async fn a_client_that_closes_its_side_has_gone_away() {
    let harness = Harness::start().await;
    let mut client = TcpStream::connect(harness.http).await.unwrap();
    let request = format!(
        "POST {PATH} HTTP/1.1\r\nhost: localhost\r\naccept: application/x-ndjson\r\n\
         content-length: 0\r\n\r\n"
    );
    client.write_all(request.as_bytes()).await.unwrap();
    eventually("it is held", || harness.engine.held() == 1).await;
    client.shutdown().await.unwrap();
    eventually("it is free", || harness.memory.records() == 0).await;
}

#[tokio::test]
async fn http_1_0_gets_the_stream_too() {
    let harness = Harness::start().await;
    let mut client = TcpStream::connect(harness.http).await.unwrap();
    let body = r#"{"maxHold":"100ms"}"#;
    let request = format!(
        "POST {PATH} HTTP/1.0\r\naccept: application/x-ndjson\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    client.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(PATIENCE, client.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
    assert!(!answer.to_lowercase().contains("transfer-encoding"), "{answer}");
    assert!(answer.contains("lock-acquired") && answer.contains("max_hold"), "{answer}");
}

#[tokio::test]
async fn pings_come_every_ten_seconds_also_while_waiting() {
    let harness = Harness::start().await;
    let mut held = open(&harness, &json!({})).await;
    line(&mut held).await.unwrap();
    let mut waiting = open_h2(&harness, &json!({})).await;
    // Less than two periods.
    let patience = Duration::from_secs(19);
    let first_frames = tokio::join!(
        timeout(patience, held.body_mut().frame()),
        timeout(patience, waiting.body_mut().frame()),
    );
    for frame in [first_frames.0, first_frames.1] {
        let frame = frame.unwrap().unwrap();
        assert_eq!(&*frame.unwrap().into_data().unwrap(), b"{\"type\":\"ping\"}\n");
    }
}

//! The sidecar's gRPC services and HTTP API, over the memory store.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a broken property panics")]

use std::sync::Arc;

use axum::body::Body;
use http::{HeaderName, HeaderValue, Request, StatusCode, header};
use http_body_util::BodyExt as _;
use leasehold_held::{Engine, EngineOptions, LockStore};
use leasehold_net::request_budget::RequestBudget;
use leasehold_proto::{dapr, locks};
use leasehold_testing::Input;
use leasehold_testing::{Outcome, World, frame};
use prost::Message;
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tower::ServiceExt as _;

use crate::{
    api::{
        alpha1::Alpha1,
        alpha2::Locks,
        auth::Token,
        browsers::Reach,
        metadata::{Attributes, Metadata},
        routes::{self, Services},
    },
    app_names::AppNames,
    failed_unlocks::Reports,
    identity::Identity,
    stores::{NamedStore, Stores},
};

const APP: &str = "app";
const STORE: &str = "mem";
/// The key in the store of the app's resource `held`.
const HELD: &str = "lock||app||held";

const METHODS: [&str; 14] = [
    "leasehold.v1.Locks/Lock",
    "leasehold.v1.Locks/LockStream",
    "leasehold.v1.Locks/RenewLock",
    "leasehold.v1.Locks/Unlock",
    "leasehold.v1.Locks/ForceUnlock",
    "dapr.proto.runtime.v1.Dapr/TryLockAlpha1",
    "dapr.proto.runtime.v1.Dapr/UnlockAlpha1",
    "leasehold.v1.Locks/CheckLocks",
    "leasehold.v1.Locks/LockKeepAlive",
    "leasehold.v1.Inspection/GetLock",
    "leasehold.v1.Inspection/ListLocks",
    "leasehold.v1.Inspection/ListWaiters",
    "leasehold.v1.Inspection/WatchLocks",
    "leasehold.v1.Inspection/EndLocks",
];

/// The first byte selects the method. Then come a line with the `grpc-timeout` and the
/// message.
pub fn sidecar_grpc(data: &[u8]) {
    let mut input = Input::new(data);
    let method = METHODS[usize::from(input.byte()) % METHODS.len()];
    let timeout = HeaderValue::from_bytes(input.line()).ok();
    let message = input.rest();
    let is_message = match method.rsplit('/').next().unwrap() {
        "Lock" | "LockStream" => round_trip::<locks::LockRequest>(message),
        "RenewLock" => round_trip::<locks::RenewLockRequest>(message),
        "Unlock" => round_trip::<locks::UnlockRequest>(message),
        "ForceUnlock" => round_trip::<locks::ForceUnlockRequest>(message),
        "CheckLocks" => round_trip::<locks::CheckLocksRequest>(message),
        "LockKeepAlive" => round_trip::<locks::LockKeepAliveRequest>(message),
        "GetLock" => round_trip::<locks::GetLockRequest>(message),
        "ListLocks" => round_trip::<locks::ListLocksRequest>(message),
        "ListWaiters" => round_trip::<locks::ListWaitersRequest>(message),
        "WatchLocks" => round_trip::<locks::WatchLocksRequest>(message),
        "EndLocks" => round_trip::<locks::EndLocksRequest>(message),
        "TryLockAlpha1" => round_trip::<dapr::TryLockRequest>(message),
        _ => round_trip::<dapr::UnlockRequest>(message),
    };
    if !is_message {
        return;
    }
    let call = || {
        let mut request = Request::post(format!("/{method}"))
            .header(header::CONTENT_TYPE, "application/grpc")
            .body(Body::from(frame(message)))
            .unwrap();
        if let Some(timeout) = &timeout {
            request.headers_mut().insert("grpc-timeout", timeout.clone());
        }
        let world = World::new(leasehold_memory::KIND, HELD);
        world.run(async {
            let answer = routes::grpc(services(&world), None).oneshot(request).await.unwrap();
            Outcome::read(answer, method.starts_with("dapr")).await
        })
    };
    assert_eq!(call(), call(), "the same call got two answers");
}

/// Whether the bytes are a message. If so, checks that encoding and decoding it changes
/// nothing.
fn round_trip<M: Message + Default + PartialEq + std::fmt::Debug>(message: &[u8]) -> bool {
    let Ok(decoded) = M::decode(message) else { return false };
    assert_eq!(M::decode(&*decoded.encode_to_vec()).as_ref(), Ok(&decoded));
    true
}

/// The input is a request as in HTTP/1: a line with the method and the target, headers,
/// an empty line, and the body.
pub fn sidecar_http(data: &[u8]) {
    let Some(request) = request(data) else { return };
    let outcome = answer(&request);
    assert_eq!(outcome, answer(&request), "the same request got two answers");
}

fn request(data: &[u8]) -> Option<Request<Vec<u8>>> {
    let mut input = Input::new(data);
    let (method, target) = input.text().split_once(' ')?;
    let mut request = Request::builder().method(method).uri(target);
    loop {
        let line = input.line();
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { break };
        let name = HeaderName::from_bytes(&line[..colon]).ok()?;
        request = request.header(name, HeaderValue::from_bytes(&line[colon + 1..]).ok()?);
    }
    request.body(input.rest().to_vec()).ok()
}

/// The status, and the error code if it is an error.
fn answer(request: &Request<Vec<u8>>) -> (StatusCode, String) {
    let (path, body) = (request.uri().path().to_owned(), Body::from(request.body().clone()));
    let mut copy = Request::new(body);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    let world = World::new(leasehold_memory::KIND, HELD);
    let (status, body) = world.run(async {
        let answer = routes::http(services(&world), None).oneshot(copy).await.unwrap();
        let status = answer.status();
        (status, first_part(answer.into_body()).await)
    });
    if status.is_success() {
        return (status, String::new());
    }
    let error: Value = serde_json::from_slice(&body).unwrap_or_else(|why| {
        panic!("{path}: {status} has a body that is not JSON ({why}): {body:?}")
    });
    let code = error["errorCode"].as_str().unwrap_or_default().to_owned();
    let message = error["message"].as_str().unwrap_or_default();
    assert!(code.starts_with("ERR_") && !message.is_empty(), "{path}: {status}: {error}");
    assert_ne!(code, "ERR_INTERNAL", "{error}");
    assert!(!message.ends_with("lock: internal error"), "{error}");
    if code == "ERR_INVALID_REQUEST" {
        let field = &error["details"][1]["fieldViolations"][0]["field"];
        assert!(field.as_str().is_some_and(|field| !field.is_empty()), "no field: {error}");
    }
    (status, code)
}

/// The first frame of a body. A stream goes on for as long as its lock is held, so its
/// end is not awaited.
async fn first_part(mut body: Body) -> Vec<u8> {
    let frame = body.frame().await;
    frame.and_then(|frame| frame.unwrap().into_data().ok()).unwrap_or_default().to_vec()
}

fn services(world: &World) -> Services {
    let stores = Stores::default();
    let store = world.store.clone();
    let names = AppNames::new("appid", STORE, APP).unwrap();
    stores.insert(NamedStore::new("lock.memory", "v1", names, LockStore::new(STORE, store)));
    let app_id: Arc<str> = APP.into();
    let identity = Identity::new(Arc::clone(&app_id), &"instance".parse().unwrap());
    let (notices, _) = mpsc::channel(1);
    let engine = Engine::start(EngineOptions::default(), watch::channel(true).1, notices);
    Services {
        alpha1: Alpha1::new(stores.clone(), engine.clone(), identity.clone()),
        locks: Locks::new(stores.clone(), engine, identity),
        metadata: Metadata { app_id, stores, attributes: Attributes::default() },
        token: Token::default(),
        reach: Reach::Network,
        request_budget: RequestBudget::default(),
    }
}

/// The input is the body of an app's answer to a health probe.
pub fn health_answers(data: &[u8]) {
    let reports = Reports::read(data);
    assert_eq!(reports, Reports::read(data), "the same answer has two meanings");
    assert_eq!(reports.is_empty(), reports == Reports::default());
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_seed_breaks_a_property() {
        leasehold_testing::no_seed_breaks("health_answers", super::health_answers);
        leasehold_testing::no_seed_breaks("sidecar_grpc", super::sidecar_grpc);
        leasehold_testing::no_seed_breaks("sidecar_http", super::sidecar_http);
    }
}

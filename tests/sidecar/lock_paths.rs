//! A lock call never reaches the lock store of the daprd behind, in any
//! spelling of its path.

use axum::body::Body;
use http::{Method, Request, Response};

use crate::{
    binary::{Binary, component},
    harness::Answer,
    stand_in::{StandIn, send},
};

/// Paths that daprd, or a proxy in between, may read as lock calls.
const SPELLINGS: [&str; 15] = [
    "//v1.0-alpha1/lock/locks",
    "/v1.0-alpha1//lock/locks",
    "/v1.0-alpha1/lock//locks",
    "/v1.0-alpha1/lock/locks//",
    "/v1.0-alpha1/lock/locks/.",
    "/./v1.0-alpha1/lock/locks",
    "/v1.0/../v1.0-alpha1/lock/locks",
    "/v1.0-alpha1/lock/x/../locks",
    "/v1.0/invoke/a/method/../../../../v1.0-alpha1/lock/locks",
    "/v1.0-alpha1/state/../unlock/locks",
    "/v1.0-alpha1/lo%63k/locks",
    "/v1.0-alpha1%2Flock%2Flocks",
    "/x/%2e%2e/v1.0-alpha1/lock/locks",
    "/v1.0-alpha1/lock/",
    "//v1.0-alpha2/lock/locks/r",
];

struct Between {
    daprd: StandIn,
    sidecar: Binary,
    _yaml: tempfile::TempDir,
}

impl Between {
    async fn start() -> Self {
        let (daprd, yaml) = (StandIn::start().await, tempfile::tempdir().unwrap());
        component(yaml.path(), "locks", "lock.memory", "[]");
        let endpoint = daprd.address.to_string();
        let arguments =
            ["--daprd-http-endpoint", &endpoint, "--daprd-grpc-endpoint", &endpoint];
        let sidecar = Binary::start(yaml.path(), &arguments).await;
        // The stand-in answers every call, which distinguishes a call that reached it from
        // a refusal.
        for _ in 0..16 {
            daprd.answer(Response::builder().status(299).body(Body::empty()).unwrap()).await;
        }
        Self { daprd, sidecar, _yaml: yaml }
    }

    fn nothing_has_reached_daprd(&mut self) {
        if let Ok(seen) = self.daprd.seen.try_recv() {
            panic!("{seen:?} has reached daprd");
        }
    }
}

/// Trap: sidecar 56
#[tokio::test]
async fn a_lock_path_in_another_spelling_is_refused_and_not_passed_on() {
    let mut between = Between::start().await;
    let body = r#"{"resourceId":"a","lockOwner":"o","expiryInSeconds":5}"#;
    for path in SPELLINGS {
        let answer = between.sidecar.post(path, body).await;
        assert_eq!(answer.error(), (404, "ERR_LOCK_PATH".into()), "{path}");
        between.nothing_has_reached_daprd();
    }
}

/// Trap: sidecar 56
#[tokio::test]
async fn a_lock_path_with_another_method_is_refused_and_not_passed_on() {
    let mut between = Between::start().await;
    for (path, others) in [
        ("/v1.0-alpha1/lock/locks", [Method::GET, Method::HEAD, Method::PUT]),
        ("/v1.0-alpha2/lock/locks/r", [Method::PATCH, Method::OPTIONS, Method::TRACE]),
        ("/v1.0-alpha2/locks/locks", [Method::POST, Method::PUT, Method::OPTIONS]),
    ] {
        for method in others {
            let answer = between.sidecar.call(method.clone(), path, "").await;
            assert_eq!(answer.status, 405, "{method} {path}");
        }
    }
    between.nothing_has_reached_daprd();
}

#[tokio::test]
async fn other_paths_are_passed_on_as_they_are_written() {
    let mut between = Between::start().await;
    for path in ["/v1.0//state/s/../t", "/v1.0/invoke/a/method/v1.0-alpha1/lock/x", "/lock"] {
        let answer = between.sidecar.post(path, "").await;
        assert_eq!(answer.status, 299, "{path}");
        assert_eq!(between.daprd.head().await.uri.path(), path);
        between.daprd.body().await;
    }
}

/// Trap: sidecar 56
#[tokio::test]
async fn a_lock_method_in_another_spelling_is_refused_and_not_passed_on() {
    let mut between = Between::start().await;
    for path in [
        "//dapr.proto.runtime.v1.Dapr/TryLockAlpha1",
        "/dapr.proto.runtime.v1.Dapr//UnlockAlpha1",
        "/dapr.proto.runtime.v1.Dapr/TryLockAlpha1/",
        "/dapr.proto.runtime.v1.Dapr/TryLock%41lpha1",
        "/x/../dapr.proto.runtime.v1.Dapr/TryLockAlpha1",
    ] {
        let answer = call_grpc(&between, path).await;
        assert_eq!(answer.headers["grpc-status"], "12", "{path}: {answer:?}");
        between.nothing_has_reached_daprd();
    }
}

async fn call_grpc(between: &Between, path: &str) -> Answer {
    let call = Request::post(format!("http://{}{path}", between.sidecar.grpc))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Body::from("\0\0\0\0\0"))
        .unwrap();
    Answer::read(send(true, call).await).await
}

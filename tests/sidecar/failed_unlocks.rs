//! Failed unlocks that an app reports with its health.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Json, Router, routing::get};
use leasehold_proto::{
    dapr::TryLockRequest,
    locks::{LockRequest, RenewLockRequest},
};
use leasehold_sidecar::{
    AppProtocol, Hooks,
    api::auth::Token,
    app::{client::AppChannel, health::AppHealthChecks, probe::HttpProbe},
};
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    sync::mpsc,
    task::AbortHandle,
    time::{sleep, timeout},
};

use crate::{
    alpha2_grpc::{lock, request},
    harness::{Harness, PATIENCE, STORE, eventually, options},
    stream::{acquired, end},
};

/// A sidecar whose app can report.
struct Reporting {
    harness: Harness,
    /// What the app reports from now on.
    reports: Arc<Mutex<Vec<Value>>>,
    /// How often the app was probed.
    asked: Arc<Mutex<u32>>,
    app: AbortHandle,
}

impl Drop for Reporting {
    fn drop(&mut self) {
        self.app.abort();
    }
}

impl Reporting {
    async fn start() -> Self {
        let reports = Arc::<Mutex<Vec<Value>>>::default();
        let asked = Arc::<Mutex<u32>>::default();
        let (reported, count) = (reports.clone(), asked.clone());
        let answer = async move || {
            *count.lock().unwrap() += 1;
            Json(json!({ "status": "UP", "details": { "lock": *reported.lock().unwrap() } }))
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let router = Router::new().route("/healthz", get(answer));
        let app = tokio::spawn(axum::serve(listener, router).into_future()).abort_handle();

        let channel = AppChannel::new("127.0.0.1", port, AppProtocol::Http, Token::default());
        let (report, failed_unlocks) = mpsc::channel(1);
        let probe = HttpProbe::new(&channel, "/healthz").unwrap().reporting_to(report);
        let interval = Duration::from_millis(50);
        let checks = AppHealthChecks { interval, timeout: interval, threshold: 100 };
        let healthy = checks.start(probe);
        let failed_unlocks = Some(failed_unlocks);
        let hooks = Hooks { healthy, failed_unlocks, ..Hooks::default() };
        Self { harness: Harness::with(options(), hooks).await, reports, asked, app }
    }

    fn report(&self, lock: Value) {
        *self.reports.lock().unwrap() = vec![lock];
    }

    /// Waits until the app was probed some more times, and its answers were processed.
    async fn some_probes(&self) {
        let before = *self.asked.lock().unwrap();
        eventually("the app is asked", || *self.asked.lock().unwrap() >= before + 4).await;
        sleep(Duration::from_millis(50)).await;
    }

    fn is_held(&self) -> bool {
        self.harness.memory.records() == 1
    }

    /// Locks `r` by alpha1, and returns the token.
    async fn try_lock(&self, owner: &str) -> i64 {
        let attempt = TryLockRequest {
            store_name: STORE.into(),
            resource_id: "r".into(),
            lock_owner: owner.into(),
            expiry_in_seconds: 60,
        };
        let granted = self.harness.dapr().await.try_lock_alpha1(attempt).await.unwrap();
        assert!(granted.get_ref().success);
        granted
            .metadata()
            .get("leasehold-fencing-token")
            .unwrap()
            .to_str()
            .unwrap()
            .parse()
            .unwrap()
    }
}

fn failed(lock_id: &str) -> Value {
    json!({
        "store_name": STORE, "resource_id": "r", "lock_id": lock_id, "type": "unlock_fail",
    })
}

fn with_token(lock_id: &str, token: i64) -> Value {
    let mut failed = failed(lock_id);
    failed["fencing_token"] = token.into();
    failed
}

#[tokio::test]
async fn a_reported_lock_is_released() {
    let reporting = Reporting::start().await;
    let mut locks = reporting.harness.locks().await;
    let lock_id = lock(&mut locks, request("r")).await.unwrap().lock_id;
    reporting.some_probes().await;
    assert!(reporting.is_held());
    reporting.report(failed(&lock_id));
    eventually("it is released", || !reporting.is_held()).await;
    assert_eq!(reporting.harness.engine.held(), 0);
}

#[tokio::test]
async fn the_stream_of_a_reported_lock_ends_well() {
    let reporting = Reporting::start().await;
    let mut locks = reporting.harness.locks().await;
    let mut stream = locks.lock_stream(request("r")).await.unwrap().into_inner();
    let lock_id = acquired(&mut stream).await.lock_id;
    reporting.report(failed(&lock_id));
    timeout(PATIENCE, end(&mut stream)).await.unwrap().unwrap();
    eventually("it is released", || !reporting.is_held()).await;
}

#[tokio::test]
async fn a_lock_in_a_namespace_is_reported_by_its_namespace() {
    let reporting = Reporting::start().await;
    let held = LockRequest { namespace: vec!["a".into()], ..request("r") };
    let lock_id = lock(&mut reporting.harness.locks().await, held).await.unwrap().lock_id;
    reporting.report(failed(&lock_id));
    reporting.some_probes().await;
    assert!(reporting.is_held());
    let mut report = failed(&lock_id);
    report["namespace"] = json!(["a"]);
    reporting.report(report);
    eventually("it is released", || !reporting.is_held()).await;
}

#[tokio::test]
async fn a_lock_of_alpha1_is_released_by_its_token() {
    let reporting = Reporting::start().await;
    let token = reporting.try_lock("me").await;
    for nothing in [failed("me"), with_token("another", token), with_token("me", token - 1)] {
        reporting.report(nothing);
        reporting.some_probes().await;
        assert!(reporting.is_held());
    }
    reporting.report(with_token("me", token));
    eventually("it is released", || !reporting.is_held()).await;
}

/// Trap: sidecar 22
#[tokio::test]
async fn an_old_report_does_not_end_a_later_lock_of_the_same_owner() {
    let reporting = Reporting::start().await;
    let token = reporting.try_lock("me").await;
    reporting.report(with_token("me", token));
    eventually("it is released", || !reporting.is_held()).await;
    assert!(reporting.try_lock("me").await > token);
    reporting.some_probes().await;
    assert!(reporting.is_held(), "the report is repeated");
    // A changed report is compared too.
    reporting.report(with_token("me", token + 1));
    reporting.some_probes().await;
    assert!(reporting.is_held());
}

#[tokio::test]
async fn a_report_that_is_no_report_changes_nothing() {
    let reporting = Reporting::start().await;
    let mut locks = reporting.harness.locks().await;
    let lock_id = lock(&mut locks, request("r")).await.unwrap().lock_id;
    let mut other = failed(&lock_id);
    other["type"] = "lock_fail".into();
    for nothing in [json!(7), json!({}), other, failed(""), failed("another")] {
        reporting.report(nothing);
        reporting.some_probes().await;
        assert!(reporting.is_held());
    }
    let renewal = RenewLockRequest {
        store_name: STORE.into(),
        resource_id: "r".into(),
        lock_id,
        ..Default::default()
    };
    locks.renew_lock(renewal).await.unwrap();
}

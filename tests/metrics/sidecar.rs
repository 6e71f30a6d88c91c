//! What the sidecar counts: each move on the memory store changes its series.

use anyhow::ensure;
use http::Method;
use leasehold_testkit::wait;
use serde_json::json;
use tempfile::TempDir;

use crate::probed::{Api, Probed, WITHIN, call, check_text, component, component_of};

async fn sidecar(arguments: &[&str]) -> (Probed, Api, TempDir) {
    let yaml = tempfile::tempdir().unwrap();
    component(yaml.path(), "[]");
    let (probed, api) = Probed::sidecar(yaml.path(), arguments).await;
    (probed, api, yaml)
}

const ACQUIRED: &str = "leasehold_acquisitions_total";

#[tokio::test]
async fn tries_and_waits_are_counted_by_their_results() {
    let (probed, api, _yaml) = sidecar(&[]).await;
    let held = api.acquire("r", r#"{"immediate":true}"#).await;
    let refused = api.lock(Method::POST, "r", r#"{"immediate":true,"mode":"shared"}"#).await;
    assert_eq!(refused.0, 409, "{refused:?}");
    let late = api.lock(Method::POST, "r", r#"{"wait":"100ms"}"#).await;
    assert_eq!(late.0, 408, "{late:?}");
    let waiting = tokio::spawn(async move { api.acquire("r", r#"{"wait":"1m"}"#).await });
    probed.shows("leasehold_waiters", &[("store", "s")], 1.0).await;
    let unlock = json!({ "lockID": held }).to_string();
    assert_eq!(api.lock(Method::DELETE, "r", &unlock).await.0, 204);
    waiting.await.unwrap();
    let scrape = probed.scrape().await;
    let counted = |op, mode, result| {
        let labels = [("store", "s"), ("op", op), ("mode", mode), ("result", result)];
        scrape.sum(ACQUIRED, &labels)
    };
    assert_eq!(counted("try", "exclusive", "ok"), 1.0);
    assert_eq!(counted("try", "shared", "resource_locked"), 1.0);
    assert_eq!(counted("wait", "exclusive", "wait_deadline"), 1.0);
    assert_eq!(counted("wait", "exclusive", "ok"), 1.0);
    assert_eq!(scrape.sum(ACQUIRED, &[]), 4.0);
    for result in ["ok", "error"] {
        let labels = [("store", "s"), ("result", result)];
        assert_eq!(scrape.sum("leasehold_wait_seconds_count", &labels), 1.0, "{result}");
    }
    assert_eq!(scrape.sum("leasehold_waiters", &[]), 0.0);
    let tries = [("op", "try"), ("result", "ok")];
    assert_eq!(
        scrape.sum("leasehold_backend_operation_duration_seconds_count", &tries),
        2.0,
        "a refusal is an answer"
    );
}

#[tokio::test]
async fn a_call_that_leaves_is_counted_as_cancelled() {
    let (probed, api, _yaml) = sidecar(&[]).await;
    api.acquire("r", r#"{"immediate":true}"#).await;
    let waiting = tokio::spawn(async move { api.acquire("r", r#"{"wait":"1m"}"#).await });
    probed.shows("leasehold_waiters", &[], 1.0).await;
    let oldest = probed.scrape().await.sum("leasehold_oldest_wait_seconds", &[("store", "s")]);
    assert!(oldest > 0.0, "{oldest}");
    waiting.abort();
    probed.shows(ACQUIRED, &[("op", "wait"), ("result", "cancelled")], 1.0).await;
    probed.shows("leasehold_oldest_wait_seconds", &[], 0.0).await;
}

#[tokio::test]
async fn a_held_lock_is_counted_until_its_end() {
    let (probed, api, _yaml) = sidecar(&["--max-held-locks=7"]).await;
    let lock_id = api.acquire("r", r#"{"immediate":true,"ttl":"6s"}"#).await;
    probed.shows("leasehold_held_locks", &[("store", "s")], 1.0).await;
    assert_eq!(probed.scrape().await.sum("leasehold_held_locks_limit", &[]), 7.0);
    let ratio = "leasehold_renewal_remaining_ratio";
    probed.shows(&format!("{ratio}_bucket"), &[("le", "0.1")], 0.0).await;
    let renewed = wait::eventually(WITHIN, "three renewals", async || {
        let renewals = probed.scrape().await.sum(&format!("{ratio}_count"), &[]);
        ensure!(renewals >= 3.0, "{renewals}");
        Ok(())
    });
    renewed.await.unwrap();
    assert!(probed.scrape().await.sum("leasehold_renewals_total", &[("result", "ok")]) >= 3.0);
    let unlock = json!({ "lockID": lock_id }).to_string();
    assert_eq!(api.lock(Method::DELETE, "r", &unlock).await.0, 204);
    probed.shows("leasehold_held_locks", &[], 0.0).await;
    let scrape = probed.scrape().await;
    let ended = |end| scrape.sum("leasehold_hold_seconds_count", &[("end", end)]);
    assert_eq!(ended("unlocked"), 1.0);
    assert_eq!(scrape.sum("leasehold_hold_seconds_count", &[]), 1.0);
    assert_eq!(scrape.sum("leasehold_lost_locks_total", &[]), 0.0);
}

#[tokio::test]
async fn a_loss_is_counted_by_its_cause() {
    let (probed, api, _yaml) = sidecar(&[]).await;
    api.acquire("r1", r#"{"immediate":true}"#).await;
    assert_eq!(api.lock(Method::DELETE, "r1", r#"{"force":true}"#).await.0, 204);
    assert_eq!(api.lock(Method::DELETE, "r1", r#"{"force":true}"#).await.0, 404);
    api.acquire("r2", r#"{"immediate":true,"maxHold":"1s"}"#).await;
    api.acquire("r3", r#"{"immediate":true,"ttl":"2s","noRenewal":true}"#).await;
    for cause in ["forced", "max_hold", "expired"] {
        let labels = [("store", "s"), ("cause", cause)];
        probed.shows("leasehold_lost_locks_total", &labels, 1.0).await;
        probed.shows("leasehold_hold_seconds_count", &[("end", cause)], 1.0).await;
    }
    for result in ["ok", "lock_not_found"] {
        let labels = [("store", "s"), ("result", result)];
        probed.shows("leasehold_force_unlocks_total", &labels, 1.0).await;
    }
    probed.shows("leasehold_held_locks", &[], 0.0).await;
}

#[tokio::test]
async fn a_stream_is_counted_apart_and_its_end_releases() {
    let (probed, api, _yaml) = sidecar(&[]).await;
    let stream = api.stream(Method::POST, "/v1.0-alpha2/lock/s/r", "{}");
    probed.shows(ACQUIRED, &[("op", "stream"), ("result", "ok")], 1.0).await;
    probed.shows("leasehold_held_locks", &[], 1.0).await;
    stream.abort();
    probed.shows("leasehold_hold_seconds_count", &[("end", "released")], 1.0).await;
    probed.shows("leasehold_held_locks", &[], 0.0).await;
}

#[tokio::test]
async fn a_notice_that_no_app_takes_has_failed() {
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let app =
        axum::Router::new().route("/leasehold/lock-lost", axum::routing::post(async || ()));
    let port = taken.local_addr().unwrap().port();
    let serving = tokio::spawn(async move { axum::serve(taken, app).await });
    let (probed, api, _yaml) = sidecar(&["--app-port", &port.to_string()]).await;
    for (result, resource) in [("delivered", "r1"), ("failed", "r2")] {
        api.acquire(resource, r#"{"immediate":true}"#).await;
        let forced = api.lock(Method::DELETE, resource, r#"{"force":true}"#).await;
        assert_eq!(forced.0, 204, "{forced:?}");
        probed.shows("leasehold_lost_notices_total", &[("result", result)], 1.0).await;
        serving.abort();
    }
}

#[tokio::test]
async fn a_watch_is_counted_while_it_is_open() {
    let (probed, api, _yaml) = sidecar(&[]).await;
    let watching = api.stream(Method::GET, "/v1.0-alpha2/locks/s", "");
    probed.shows("leasehold_watches", &[("store", "s")], 1.0).await;
    watching.abort();
    probed.shows("leasehold_watches", &[("store", "s")], 0.0).await;
}

#[tokio::test]
async fn a_reload_that_fails_is_shown_until_the_yaml_is_mended() {
    let (probed, _, yaml) = sidecar(&[]).await;
    let successful = "leasehold_component_reload_successful";
    let at = |scrape: crate::scrape::Scrape| {
        scrape.sum("leasehold_component_reload_timestamp_seconds", &[])
    };
    let first = at(probed.scrape().await);
    assert!(first > 1.6e9, "{first}");
    probed.shows(successful, &[], 1.0).await;
    std::fs::write(yaml.path().join("broken.yaml"), "kind: [").unwrap();
    probed.shows(successful, &[], 0.0).await;
    assert_eq!(at(probed.scrape().await), first);
    std::fs::remove_file(yaml.path().join("broken.yaml")).unwrap();
    probed.shows(successful, &[], 1.0).await;
    assert!(at(probed.scrape().await) > first);
}

#[tokio::test]
async fn a_change_that_takes_a_restart_counts_as_not_applied() {
    let (probed, _, yaml) = sidecar(&[]).await;
    let successful = "leasehold_component_reload_successful";
    component(yaml.path(), "[{name: ttl, value: 55s}]");
    probed.shows(successful, &[], 0.0).await;
    component(yaml.path(), "[]");
    probed.shows(successful, &[], 1.0).await;
}

/// Its calls were answered as if no YAML named it, and no series showed it.
#[tokio::test]
async fn a_store_that_could_not_be_opened_is_shown_and_its_calls_name_the_reason() {
    let yaml = tempfile::tempdir().unwrap();
    let down = "[{name: redisHost, value: 'localhost:1'}]\n  ignoreErrors: true";
    component_of(yaml.path(), "lock.redis", down);
    let (probed, api) = Probed::sidecar(yaml.path(), &[]).await;
    probed.shows("leasehold_store_load_failed", &[("store", "s")], 1.0).await;
    let (status, answer) = api.lock(Method::POST, "r", r#"{"immediate":true}"#).await;
    assert_eq!(status, 503, "{answer}");
    assert!(answer.to_string().contains("localhost:1"), "{answer}");
    component(yaml.path(), "[]");
    probed.shows("leasehold_store_load_failed", &[("store", "s")], 0.0).await;
    api.acquire("r", r#"{"immediate":true}"#).await;
}

#[tokio::test]
async fn only_metrics_and_probes_are_served_beside_the_api() {
    let (probed, api, _yaml) = sidecar(&[]).await;
    probed.is_ready(200).await;
    assert_eq!(probed.get("/livez").await, (200, "ok\n".to_owned()));
    assert_eq!(probed.get("/v1.0/healthz").await.0, 404);
    assert_ne!(call(api.0, Method::GET, "/metrics", "").await.0, 200);
    assert_eq!(probed.scrape().await.sum("leasehold_draining", &[]), 0.0);
}

#[tokio::test]
async fn the_text_is_as_prometheus_reads_it() {
    let (probed, ..) = sidecar(&[]).await;
    let scrape = probed.scrape().await;
    check_text(&scrape.text).unwrap();
    for name in ["process_resident_memory_bytes", "process_open_fds", "leasehold_build_info"] {
        assert!(scrape.names().contains(name), "{name}");
    }
}

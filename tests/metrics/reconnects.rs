//! A backend that was gone for a while.

use std::{path::Path, time::Duration};

use anyhow::ensure;
use http::Method;
use leasehold_testkit::{
    etcd::EtcdServer, leasehold::Leasehold, process::Signal, redis::RedisServer, wait,
};

use crate::probed::{Api, Probed, WITHIN, component_of};

const RECONNECTS: &str = "leasehold_backend_reconnects_total";

async fn sidecar(yaml: &Path, kind: &str, metadata: &str, more: &[&str]) -> (Probed, Api) {
    component_of(yaml, kind, &format!("[{metadata}]"));
    Probed::sidecar(yaml, more).await
}

/// Tries while the backend is gone, and waits until its return is counted.
async fn an_outage_is_counted(
    probed: &Probed,
    api: Api,
    stop: impl FnOnce(),
    start: impl FnOnce(),
) {
    let try_lock = r#"{"immediate":true}"#;
    api.acquire("before", try_lock).await;
    assert_eq!(probed.scrape().await.sum(RECONNECTS, &[("store", "s")]), 0.0);
    stop();
    let (status, answer) = api.lock(Method::POST, "during", try_lock).await;
    assert!(status >= 500, "{answer}");
    let scrape = probed.scrape().await;
    let failed = ["store_unavailable", "outcome_unknown"];
    let failed = failed.map(|it| scrape.sum("leasehold_acquisitions_total", &[("result", it)]));
    assert!((failed.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{failed:?}");
    let errors = [("op", "try"), ("result", "error")];
    let errors = scrape.sum("leasehold_backend_operation_duration_seconds_count", &errors);
    assert!((errors - 1.0).abs() < 1e-9, "{errors}");
    start();
    let again = wait::eventually(WITHIN, "the backend is back", async || {
        let (status, answer) = api.lock(Method::POST, "after", try_lock).await;
        ensure!(status == 200, "{answer}");
        Ok(())
    });
    again.await.unwrap();
    let count = probed.scrape().await.sum(RECONNECTS, &[("store", "s")]);
    assert!(count >= 1.0, "{count}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_connection_to_redis_is_counted() {
    let yaml = tempfile::tempdir().unwrap();
    let redis = std::cell::RefCell::new(RedisServer::start());
    let host = format!("{{name: redisHost, value: \"{}\"}}", redis.borrow().address());
    let (probed, api) = sidecar(yaml.path(), "lock.redis", &host, &[]).await;
    let (stop, start) = (|| redis.borrow_mut().kill(), || redis.borrow_mut().restart());
    an_outage_is_counted(&probed, api, stop, start).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_connection_to_the_store_of_another_program_is_counted() {
    let (yaml, sockets) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let folder = sockets.path().to_str().unwrap();
    let serve = || {
        let arguments = ["serve", "--store", "memory=other", "--socket-folder", folder];
        let serving = Leasehold::spawn(&arguments);
        while std::os::unix::net::UnixStream::connect(sockets.path().join("other.sock"))
            .is_err()
        {
            std::thread::sleep(Duration::from_millis(5));
        }
        serving
    };
    let serving = std::cell::RefCell::new(Some(serve()));
    let ttl = "{name: ttl, value: 30s}";
    let more = ["--socket-folder", folder];
    let (probed, api) = sidecar(yaml.path(), "lock.other", ttl, &more).await;
    let stop = || {
        let mut serving = serving.borrow_mut().take().unwrap();
        serving.signal(Signal::KILL);
        serving.exited();
    };
    let start = || *serving.borrow_mut() = Some(serve());
    an_outage_is_counted(&probed, api, stop, start).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_connection_to_etcd_is_counted() {
    let yaml = tempfile::tempdir().unwrap();
    let etcd = EtcdServer::launch(Path::new("etcd"), &[]).await.unwrap();
    let etcd = std::cell::RefCell::new(etcd);
    let endpoints = format!("{{name: endpoints, value: \"{}\"}}", etcd.borrow().address());
    let (probed, api) = sidecar(yaml.path(), "lock.etcd", &endpoints, &[]).await;
    let (stop, start) = (|| etcd.borrow_mut().kill(), || etcd.borrow_mut().restart());
    an_outage_is_counted(&probed, api, stop, start).await;
}

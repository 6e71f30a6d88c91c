//! The flags, and the commands besides the sidecar.

use std::{path::Path, time::Duration};

use http::Method;
use leasehold_proto::components::{RenewLockRequest, lock_store_client::LockStoreClient};
use leasehold_testkit::{leasehold::Leasehold, ports::free_port, process::Signal};
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;
use tonic::transport::Endpoint;

use crate::probed::{Probed, call, check_text, component, component_of};

#[tokio::test]
async fn a_served_instance_is_named_by_its_socket() {
    let yaml = tempfile::tempdir().unwrap();
    component(yaml.path(), "[]");
    let folder = yaml.path().to_str().unwrap();
    let arguments = ["--resources-path", folder, "--metrics-port", "0"];
    let probed = Probed::of(Leasehold::serve("memory", &arguments)).await;
    probed.is_ready(200).await;
    let scrape = probed.scrape().await;
    check_text(&scrape.text).unwrap();
    let labels = [("store", "memory/s"), ("type", "lock.memory")];
    assert_eq!(scrape.sum("leasehold_store_info", &labels), 1.0);
    let labels = [("store", "memory/s"), ("op", "try"), ("result", "ok")];
    assert_eq!(scrape.sum("leasehold_acquisitions_total", &labels), 0.0);
    assert!(!scrape.names().contains("leasehold_held_locks"), "it holds none");
}

/// Calls until it is dropped: a drain ends after a second without calls.
async fn calling(socket: &Path) -> AbortOnDropHandle<()> {
    let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display())).unwrap();
    let mut client = LockStoreClient::new(endpoint.connect().await.unwrap());
    // A drain without a connection ends at once, so the server must have accepted it.
    client.renew_lock(RenewLockRequest::default()).await.unwrap_err();
    AbortOnDropHandle::new(tokio::spawn(async move {
        while client.renew_lock(RenewLockRequest::default()).await.is_err() {
            sleep(Duration::from_millis(50)).await;
        }
    }))
}

#[tokio::test]
async fn a_process_that_drains_lives_and_is_not_ready() {
    let probed = Probed::of(Leasehold::serve("memory", &["--metrics-port=0"])).await;
    probed.is_ready(200).await;
    let _calls = calling(&probed.process.socket("memory")).await;
    probed.process.signal(Signal::TERM);
    probed.is_ready(503).await;
    assert_eq!(probed.get("/readyz").await.1, "draining\n");
    assert_eq!(probed.get("/livez").await.0, 200);
    assert_eq!(probed.scrape().await.sum("leasehold_draining", &[]), 1.0);
}

/// A store that is never reached: nobody listens at its port.
#[tokio::test]
async fn a_front_whose_store_was_not_opened_yet_is_not_ready() {
    let yaml = tempfile::tempdir().unwrap();
    let nobody = free_port();
    let metadata = format!("[{{name: redisHost, value: \"127.0.0.1:{nobody}\"}}]");
    component_of(yaml.path(), "lock.redis", &metadata);
    let folder = yaml.path().to_str().unwrap();
    let arguments = ["redis-front", "--store", "s", "--resources-path", folder];
    let arguments = [&arguments[..], &["--listen", "127.0.0.1:0", "--metrics-port=0"]].concat();
    let probed = Probed::of(Leasehold::spawn(&arguments)).await;
    probed.is_ready(503).await;
    assert_eq!(probed.get("/livez").await.0, 200);
    let labels = [("store", "s"), ("type", "lock.redis")];
    probed.shows("leasehold_store_info", &labels, 1.0).await;
}

#[tokio::test]
async fn a_taken_port_ends_the_process_and_names_daprd() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let mut process = Leasehold::spawn(&["serve", "--store=memory", "--metrics-port", &port]);
    assert_eq!(process.exited().code(), Some(1));
    let log = process.log();
    assert!(log.contains("--metrics-port") && log.contains("9090"), "{log}");
}

/// As `dapr run` starts it: the port is one of its choice.
#[tokio::test]
async fn the_port_that_dapr_run_passes_is_served() {
    let yaml = tempfile::tempdir().unwrap();
    component(yaml.path(), "[]");
    let port = free_port().to_string();
    let mut process =
        Leasehold::sidecar(yaml.path(), &["-metrics-port", &port, "-enable-metrics"], &[]);
    process.listening().await.unwrap();
    let probed = Probed::of(process).await;
    assert_eq!(probed.address.to_string(), format!("127.0.0.1:{port}"));
}

#[tokio::test]
async fn daprd_s_default_port_and_metrics_that_are_off_are_not_served() {
    let yaml = tempfile::tempdir().unwrap();
    component(yaml.path(), "[]");
    let off = free_port();
    for arguments in [
        ["--metrics-port=9090".to_owned(), "--enable-metrics".to_owned()],
        [format!("--metrics-port={off}"), "--enable-metrics=false".to_owned()],
    ] {
        let arguments = arguments.each_ref().map(String::as_str);
        let mut process = Leasehold::sidecar(yaml.path(), &arguments, &[]);
        let (_, http) = process.listening().await.unwrap();
        assert_eq!(call(http, Method::GET, "/v1.0/healthz", "").await.0, 204);
        let log = process.log();
        assert!(!log.contains("metrics and probes address"), "{log}");
        let warns = log.contains("--metrics-port 9090 has no effect here");
        assert_eq!(warns, arguments[0].ends_with("9090"), "{log}");
    }
}

//! An app and its streams under faults, with the real sidecar.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod app;

use std::{fs, net::SocketAddr, time::Duration};

use app::App;
use leasehold_proto::locks::{
    ForceUnlockRequest, LockRequest, LockServerStream,
    lock_server_stream::LockServerStream as Said, locks_client::LocksClient,
};
use leasehold_reliability::world::probe::reason;
use leasehold_testkit::{leasehold::Leasehold, proxy::Proxy, wait::eventually};
use tempfile::TempDir;
use tokio::time::timeout;
use tonic::{Code, Status, Streaming, transport::Channel};
use tonic_types::StatusExt as _;

const STORE: &str = "locks";
const SOON: Duration = Duration::from_secs(60);
/// Longer than any test: if the lock is free earlier, it was released.
const LONG_S: i64 = 600;

/// A sidecar on memory, and a proxy to it.
struct Sidecar {
    leasehold: Leasehold,
    _yaml: TempDir,
    grpc: SocketAddr,
    proxy: Proxy,
}

impl Sidecar {
    async fn start(arguments: &[String]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let yaml = format!(
            "apiVersion: dapr.io/v1alpha1\nkind: Component\nmetadata: {{name: {STORE}}}\n\
             spec: {{type: lock.memory, version: v1}}\n"
        );
        fs::write(folder.path().join("locks.yaml"), yaml).unwrap();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut leasehold = Leasehold::sidecar(folder.path(), &arguments, &[]);
        let (grpc, _) = leasehold.listening().await.unwrap();
        let proxy = Proxy::start(grpc).await;
        Self { leasehold, _yaml: folder, grpc, proxy }
    }

    /// A client without the proxy.
    async fn client(&self) -> LocksClient<Channel> {
        LocksClient::connect(format!("http://{}", self.grpc)).await.unwrap()
    }

    async fn client_over_proxy(&self) -> LocksClient<Channel> {
        LocksClient::connect(format!("http://{}", self.proxy.address())).await.unwrap()
    }

    async fn drains(mut self) {
        let status = self.leasehold.process.terminate(SOON).await.unwrap();
        assert!(status.success(), "{status}; log:\n{}", self.leasehold.log());
    }
}

fn immediate(resource: &str, ttl_s: i64) -> LockRequest {
    LockRequest {
        immediate: true,
        resource_id: resource.to_owned(),
        store_name: STORE.to_owned(),
        ttl: Some(prost_types::Duration { seconds: ttl_s, nanos: 0 }),
        ..LockRequest::default()
    }
}

async fn holds(
    client: &mut LocksClient<Channel>,
    resource: &str,
    ttl_s: i64,
) -> Streaming<LockServerStream> {
    let mut stream = client.lock_stream(immediate(resource, ttl_s)).await.unwrap().into_inner();
    let first = timeout(SOON, stream.message()).await.unwrap().unwrap().unwrap();
    assert!(matches!(first.lock_server_stream, Some(Said::LockAcquired(_))), "{first:?}");
    stream
}

/// How a stream ends, pings read over.
async fn end(mut stream: Streaming<LockServerStream>) -> Status {
    timeout(SOON, async {
        loop {
            match stream.message().await {
                Ok(Some(_)) => {}
                Ok(None) => return Status::ok("ended"),
                Err(status) => return status,
            }
        }
    })
    .await
    .expect("the stream does not end")
}

fn cause(status: &Status) -> String {
    let info = status.get_details_error_info();
    info.and_then(|info| info.metadata.get("cause").cloned()).unwrap_or_default()
}

async fn becomes_free(client: &mut LocksClient<Channel>, resource: &str) {
    eventually(SOON, "the resource is free", async || {
        client.lock(immediate(resource, 5)).await.map_err(|why| anyhow::anyhow!(reason(&why)))
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn the_locks_of_an_app_that_was_killed_are_free_at_once() {
    let sidecar = Sidecar::start(&[]).await;
    let mut app = sidecar.client_over_proxy().await;
    let mut streams = Vec::new();
    for number in 0..20 {
        streams.push(holds(&mut app, &format!("r{number}"), LONG_S).await);
    }
    sidecar.proxy.cut();
    let mut other = sidecar.client().await;
    for number in 0..20 {
        becomes_free(&mut other, &format!("r{number}")).await;
    }
    sidecar.drains().await;
}

#[tokio::test]
async fn the_lock_of_a_stream_that_is_half_open_is_free_once_pings_go_unanswered() {
    let sidecar = Sidecar::start(&[]).await;
    let mut app = sidecar.client_over_proxy().await;
    let _stream = holds(&mut app, "r", LONG_S).await;
    sidecar.proxy.vanish();
    let mut other = sidecar.client().await;
    becomes_free(&mut other, "r").await;
    sidecar.drains().await;
}

#[tokio::test]
async fn an_app_that_turns_unhealthy_loses_its_lock_and_gets_the_cause() {
    let app = App::start().await;
    let sidecar = Sidecar::start(&app.arguments()).await;
    let mut client = sidecar.client().await;
    let stream = holds(&mut client, "r", 3).await;
    app.turn_unhealthy();
    let ended = end(stream).await;
    assert_eq!(
        (ended.code(), cause(&ended).as_str()),
        (Code::Aborted, "unhealthy"),
        "{ended:?}"
    );
    becomes_free(&mut client, "r").await;
    sidecar.drains().await;
}

#[tokio::test]
async fn an_app_whose_callback_hangs_holds_up_nobody() {
    let app = App::start().await;
    let sidecar = Sidecar::start(&app.arguments()).await;
    let mut client = sidecar.client().await;
    for number in 0..200 {
        let resource = format!("r{number}");
        client.lock(immediate(&resource, LONG_S)).await.unwrap();
        let force = ForceUnlockRequest {
            resource_id: resource.clone(),
            store_name: STORE.to_owned(),
            ..Default::default()
        };
        timeout(SOON, client.force_unlock(force)).await.unwrap().unwrap();
        becomes_free(&mut client, &resource).await;
    }
    eventually(SOON, "the app was called", async || {
        anyhow::ensure!(app.calls() > 0, "no call");
        Ok(())
    })
    .await
    .unwrap();
    sidecar.drains().await;
}

//! A sidecar in this process, and its clients.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::body::{Body, Bytes};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use leasehold_held::{Engine, LockStore};
use leasehold_lock::{Clock, Context, Settings, Store};
use leasehold_memory::Memory;
use leasehold_proto::{dapr::dapr_client::DaprClient, locks::locks_client::LocksClient};
use leasehold_sidecar::{
    Hooks, Options, Sidecar,
    api::auth::Token,
    app_names::AppNames,
    options::Listen,
    stores::{NamedStore, Stores},
};
use serde_json::Value;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tonic::{
    Status,
    transport::{Channel, Endpoint},
};
use tonic_types::StatusExt as _;

/// The time limit of every step of a test.
pub const PATIENCE: Duration = Duration::from_secs(10);
pub const APP: &str = "app";
/// The holder that is shown.
pub const HOLDER: &str = "app/pod-1";
pub const STORE: &str = "mem";

pub struct Harness {
    pub stores: Stores,
    pub memory: Arc<Memory>,
    pub engine: Engine,
    pub grpc: SocketAddr,
    pub http: SocketAddr,
    stop: CancellationToken,
    served: Option<tokio::task::JoinHandle<()>>,
    client: Client<HttpConnector, Body>,
}

/// The answer of an HTTP call.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    /// Reads an answer to its end.
    pub async fn read(response: Response<Incoming>) -> Self {
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Self { status: parts.status, headers: parts.headers, body }
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {:?}", self.body))
    }

    /// The status and the error code.
    pub fn error(&self) -> (u16, String) {
        (self.status.as_u16(), self.json()["errorCode"].as_str().unwrap_or_default().to_owned())
    }
}

pub fn options() -> Options {
    Options {
        app_id: APP.to_owned(),
        instance: "pod-1".parse().unwrap(),
        app: None,
        listen: Listen::Ports {
            addresses: vec!["127.0.0.1".parse().unwrap()],
            grpc: 0,
            http: 0,
        },
        token: Token::default(),
        drain_max: Duration::from_secs(5),
        held_max: 1000,
        max_hold_default: None,
    }
}

pub fn memory() -> (Arc<Memory>, Store) {
    memory_with(Settings::default())
}

pub fn memory_with(settings: Settings) -> (Arc<Memory>, Store) {
    let context = Context::new(settings.clone(), Clock::system());
    let memory = Arc::new(Memory::new(&context));
    (memory.clone(), Store::new(memory, settings))
}

impl Harness {
    pub async fn start() -> Self {
        Self::with(options(), Hooks::default()).await
    }

    pub async fn with(options: Options, hooks: Hooks) -> Self {
        let stores = Stores::default();
        let (memory, store) = memory();
        stores.insert(named(STORE, "appid", &options.app_id, store));
        Self::over(options, hooks, stores, memory).await
    }

    pub async fn over(
        options: Options,
        hooks: Hooks,
        stores: Stores,
        memory: Arc<Memory>,
    ) -> Self {
        let sidecar = Sidecar::start(options, stores.clone(), hooks).await.unwrap();
        let (grpc, http) = (sidecar.grpc_addresses()[0], sidecar.http_addresses()[0]);
        let engine = sidecar.engine().clone();
        let stop = CancellationToken::new();
        let served = Some(tokio::spawn(sidecar.run(stop.clone())));
        let client = Client::builder(TokioExecutor::new()).build_http();
        Self { stores, memory, engine, grpc, http, stop, served, client }
    }

    /// Drains the sidecar as SIGTERM does, and waits until it has ended.
    pub async fn stop(&mut self) {
        self.begin_to_stop();
        if let Some(served) = self.served.take() {
            served.await.unwrap();
        }
    }

    pub fn begin_to_stop(&self) {
        self.stop.cancel();
    }

    pub async fn channel(&self) -> Channel {
        Endpoint::from_shared(format!("http://{}", self.grpc)).unwrap().connect().await.unwrap()
    }

    pub async fn dapr(&self) -> DaprClient<Channel> {
        DaprClient::new(self.channel().await)
    }

    pub async fn locks(&self) -> LocksClient<Channel> {
        LocksClient::new(self.channel().await)
    }

    /// One HTTP/1.1 call.
    pub async fn call(&self, method: Method, path: &str, body: impl Into<Body>) -> Answer {
        self.call_with(method, path, &[], body).await
    }

    pub async fn call_with(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Body>,
    ) -> Answer {
        Answer::read(self.open(method, path, headers, body).await).await
    }

    /// One HTTP/1.1 call; the body is not read yet.
    pub async fn open(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Body>,
    ) -> Response<Incoming> {
        let mut request =
            Request::builder().method(method).uri(format!("http://{}{path}", self.http));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.client.request(request.body(body.into()).unwrap()).await.unwrap()
    }

    pub async fn post(&self, path: &str, body: impl Into<Body>) -> Answer {
        self.call(Method::POST, path, body).await
    }
}

/// Polls until the condition is true.
pub async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let give_up = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < give_up, "{what}: not within {PATIENCE:?}");
        sleep(Duration::from_millis(2)).await;
    }
}

/// The reason of a status, and its metadata under `key`.
pub fn reason(status: &Status, key: &str) -> (String, Option<String>) {
    let info = status.get_details_error_info().unwrap_or_else(|| panic!("{status:?}"));
    assert_eq!(info.domain, "dapr.io");
    (info.reason, info.metadata.get(key).cloned())
}

/// A store as the component `name`, with the names of an app.
pub fn named(name: &str, key_prefix: &str, app_id: &str, store: Store) -> NamedStore {
    let names = AppNames::new(key_prefix, name, app_id).unwrap();
    NamedStore::new("lock.memory", "v1", names, LockStore::new(name, store))
}

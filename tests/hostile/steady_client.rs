//! A well-behaved client that must be served during an attack.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::body::Body;
use http::Request;
use http_body_util::BodyExt as _;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use leasehold_proto::{
    components::{self, lock_store_client::LockStoreClient},
    locks::{self, locks_client::LocksClient},
};
use tokio::{
    task::JoinHandle,
    time::{sleep, timeout},
};
use tonic::transport::{Channel, Endpoint};

use crate::target::{Address, Interface, PATIENCE};

const RESOURCE: &str = "undisturbed";
/// A pause that leaves the machine to the attack.
const PAUSE: Duration = Duration::from_millis(5);

/// Locks and unlocks on one connection, again and again; a call that fails or
/// hangs fails the test.
pub struct SteadyClient {
    cycles: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

enum Speaker {
    Component(LockStoreClient<Channel>),
    Grpc(LocksClient<Channel>),
    Http(Client<HttpConnector, Body>, String),
}

impl SteadyClient {
    pub async fn start(interface: Interface, endpoint: &Address) -> Self {
        let speaker = Speaker::connect(interface, endpoint).await;
        let cycles = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&cycles);
        let task = tokio::spawn(async move {
            loop {
                timeout(PATIENCE, speaker.cycle())
                    .await
                    .expect("the steady client is not served");
                count.fetch_add(1, Ordering::Relaxed);
                sleep(PAUSE).await;
            }
        });
        let steady_client = Self { cycles, task };
        steady_client.is_served(1).await;
        steady_client
    }

    /// Returns when it was served `more` times from now on. Each cycle has its own limit.
    pub async fn is_served(&self, more: u64) {
        let goal = self.cycles.load(Ordering::Relaxed) + more;
        while self.cycles.load(Ordering::Relaxed) < goal {
            assert!(!self.task.is_finished(), "the steady client has failed");
            sleep(PAUSE).await;
        }
    }

    pub fn stop(self) {
        assert!(!self.task.is_finished(), "the steady client has failed");
        self.task.abort();
    }
}

impl Speaker {
    async fn connect(interface: Interface, endpoint: &Address) -> Self {
        let address = match endpoint {
            Address::Socket(path) => format!("unix://{}", path.display()),
            Address::Port(address) => format!("http://{address}"),
        };
        if interface == Interface::Http {
            return Self::Http(Client::builder(TokioExecutor::new()).build_http(), address);
        }
        let channel = Endpoint::from_shared(address).unwrap().connect().await.unwrap();
        if interface == Interface::Grpc {
            return Self::Grpc(LocksClient::new(channel));
        }
        let mut client = LockStoreClient::new(channel);
        client.init(components::LockStoreInitRequest::default()).await.unwrap();
        Self::Component(client)
    }

    async fn cycle(&self) {
        match self {
            Self::Component(client) => {
                let mut client = client.clone();
                let resource_id = RESOURCE.to_owned();
                let request = components::LockRequest { resource_id, ..Default::default() };
                let lock_id = client.try_lock(request).await.unwrap().into_inner().lock_id;
                let resource_id = RESOURCE.to_owned();
                let request =
                    components::UnlockRequest { resource_id, lock_id, ..Default::default() };
                client.unlock(request).await.unwrap();
            }
            Self::Grpc(client) => {
                let mut client = client.clone();
                let (store_name, resource_id) = ("mem".to_owned(), RESOURCE.to_owned());
                let request = locks::LockRequest {
                    store_name,
                    resource_id,
                    immediate: true,
                    ..Default::default()
                };
                let lock_id = client.lock(request).await.unwrap().into_inner().lock_id;
                let (store_name, resource_id) = ("mem".to_owned(), RESOURCE.to_owned());
                let request = locks::UnlockRequest {
                    store_name,
                    resource_id,
                    lock_id,
                    ..Default::default()
                };
                client.unlock(request).await.unwrap();
            }
            Self::Http(client, address) => {
                let url = format!("{address}/v1.0-alpha2/lock/mem/{RESOURCE}");
                let request = Request::post(&url).body(r#"{"immediate":true}"#.into()).unwrap();
                let answer = client.request(request).await.unwrap();
                assert!(answer.status().is_success(), "{answer:?}");
                let body = answer.into_body().collect().await.unwrap().to_bytes();
                let grant: serde_json::Value = serde_json::from_slice(&body).unwrap();
                let body = serde_json::json!({ "lockID": grant["lockID"] }).to_string();
                let request = Request::delete(&url).body(body.into()).unwrap();
                let answer = client.request(request).await.unwrap();
                assert!(answer.status().is_success(), "{answer:?}");
            }
        }
    }
}

//! A front in this process, over each backend.

use std::{future::ready, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use leasehold::backend::KINDS;
use leasehold_front::{Front, FrontArgs};
use leasehold_lock::{
    AcquireRequest, Clock, Granted, Mode, Store,
    inspect::{Inspected, PageRequest},
};

use leasehold_testkit::{
    etcd::{EtcdServer, Version},
    proxy::Proxy,
    redis::RedisServer,
    wait::eventually,
};
use tempfile::TempDir;

use crate::client::{Client, PATIENCE};

/// Makes a test of each function on each backend.
macro_rules! on_each_backend {
    (@$module:ident, $backend:ident, $($name:ident),*) => {
        mod $module {
            $(
                #[tokio::test]
                async fn $name() {
                    super::$name($crate::stage::Backend::$backend).await;
                }
            )*
        }
    };
    ($($name:ident),* $(,)?) => {
        on_each_backend!(@on_memory, Memory, $($name),*);
        on_each_backend!(@on_redis, Redis, $($name),*);
        on_each_backend!(@on_etcd, Etcd, $($name),*);
    };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    Memory,
    Redis,
    Etcd,
}

/// The server behind a store.
pub enum Server {
    None,
    Redis(RedisServer),
    Etcd(EtcdServer),
}

/// The options of a front and its store.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    pub password: Option<&'static str>,
    pub allow_delete: bool,
    /// Properties of the store.
    pub properties: Vec<(&'static str, &'static str)>,
    pub unix_socket: bool,
    /// The certificate, its key and the authority of clients, as PEM.
    pub tls: Option<(String, String, Option<String>)>,
}

/// A front, its store and its server.
pub struct Stage {
    pub front: Front,
    pub address: SocketAddr,
    pub store: Store,
    pub server: Server,
    /// The proxy between the store and its server.
    pub proxy: Option<Proxy>,
    files: TempDir,
}

impl Stage {
    pub async fn on(backend: Backend) -> Self {
        Self::with(backend, Setup::default()).await
    }

    pub async fn memory() -> Self {
        Self::on(Backend::Memory).await
    }

    pub async fn with(backend: Backend, setup: Setup) -> Self {
        let (server, proxy, kind, properties) = match backend {
            Backend::Memory => (Server::None, None, "memory", Vec::new()),
            Backend::Redis => {
                let server = RedisServer::start();
                let proxy = Proxy::start(server.address()).await;
                let properties = vec![("redisHost", proxy.address().to_owned())];
                (Server::Redis(server), Some(proxy), "redis", properties)
            }
            Backend::Etcd => {
                let server = EtcdServer::start(Version::V34).await;
                let proxy = Proxy::start(server.address()).await;
                let properties = vec![
                    ("endpoints", format!("http://{}", proxy.address())),
                    ("keyPrefixPath", "/t".to_owned()),
                ];
                (Server::Etcd(server), Some(proxy), "etcd", properties)
            }
        };
        let more = setup.properties.iter().map(|(key, value)| (*key, (*value).to_owned()));
        let properties: Vec<_> = properties
            .into_iter()
            .chain(more)
            .map(|(key, value)| (key.to_owned(), value))
            .collect();
        // On a busy machine etcd may need more than one attempt to answer in time.
        let store = eventually(PATIENCE, "the store is opened", async || {
            let kind = KINDS.named(kind).unwrap();
            Ok(kind.open(properties.clone(), Clock::system(), None).await?)
        })
        .await
        .unwrap();
        let files = tempfile::tempdir().unwrap();
        let options = setup.args(&files).options().unwrap();
        let found = store.clone();
        let find = Arc::new(move || Box::pin(ready(Ok(found.clone()))) as _);
        let front = Front::start(options, find).await.unwrap();
        let address = front.addresses()[0];
        Self { front, address, store, server, proxy, files }
    }

    pub async fn client(&self) -> Client {
        Client::connect(self.address).await
    }

    pub fn unix_socket(&self) -> PathBuf {
        self.files.path().join("front.sock")
    }

    /// Returns once the front has processed everything that was sent before:
    /// see [`Client::settle`].
    pub async fn settled(&self) {
        self.client().await.settle().await;
    }

    /// Takes a lock as a waiting client of the sidecar does, without a front.
    pub async fn take_otherwise(&self, key: &str, value: &str, mode: Mode) -> Granted {
        let granted = self
            .store
            .try_lock(AcquireRequest {
                ttl: Some(Duration::from_secs(60)),
                lock_id: Some(value.parse().unwrap()),
                mode,
                ..AcquireRequest::new(key.parse().unwrap())
            })
            .await
            .unwrap();
        granted.receipt.accept();
        granted
    }

    /// The public state of a resource.
    pub async fn look(&self, key: &str) -> Inspected {
        self.store.get(&key.parse().unwrap(), &PageRequest::first(10)).await.unwrap()
    }

    pub fn proxy(&self) -> &Proxy {
        self.proxy.as_ref().unwrap()
    }
}

impl Setup {
    fn args(&self, files: &TempDir) -> FrontArgs {
        let file = |name: &str, text: &str| {
            let path = files.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let tls = self.tls.as_ref();
        FrontArgs {
            metrics: Default::default(),
            store: "lockstore".to_owned(),
            resources_path: Vec::new(),
            listen: Some("127.0.0.1:0".parse().unwrap()),
            unix_socket: self.unix_socket.then(|| files.path().join("front.sock")),
            password_file: self.password.map(|password| file("password", password)),
            tls_cert: tls.map(|(cert, ..)| file("cert.pem", cert)),
            tls_key: tls.map(|(_, key, _)| file("key.pem", key)),
            tls_client_ca: tls.and_then(|(.., ca)| Some(file("ca.pem", ca.as_ref()?))),
            allow_delete: self.allow_delete,
        }
    }
}

/// Polls until a command has the expected reply.
pub async fn becomes(client: &mut Client, words: &[&str], expected: crate::client::Value) {
    eventually(PATIENCE, &format!("{words:?}"), async || {
        let answer = client.ask(words).await;
        anyhow::ensure!(answer == expected, "{answer:?}");
        Ok(())
    })
    .await
    .unwrap();
}

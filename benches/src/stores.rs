//! The stores that one measurement is repeated on.

use std::path::Path;

use anyhow::{Result, bail};
use leasehold_testkit::{etcd::EtcdServer, redis::RedisServer};

use crate::{Options, client::Client, servers::Component};

/// The stores that are measured by default.
pub(crate) const STORES: [&str; 2] = ["memory", "redis"];

/// A store whose server runs.
pub(crate) struct Store<'a> {
    name: &'a str,
    /// Its name in tables; with the version on etcd.
    pub(crate) title: String,
    properties: &'a [(&'a str, &'a str)],
    /// The process of its server, if it has one.
    pub(crate) server: Option<u32>,
}

/// A build of leasehold that serves a store, and a client of it.
pub(crate) struct Served {
    pub(crate) leasehold: Component,
    pub(crate) client: Client,
}

impl Store<'_> {
    /// Starts a build of leasehold on it.
    pub(crate) async fn serve(&self, binary: &Path) -> Result<Served> {
        self.serve_with(binary, &[]).await
    }

    /// The same, with more flags.
    pub(crate) async fn serve_with(&self, binary: &Path, more: &[&str]) -> Result<Served> {
        let leasehold = Component::leasehold_with(binary, self.name, more).await?;
        let client = Client::connect(&leasehold.socket, self.properties).await?;
        Ok(Served { leasehold, client })
    }
}

/// Starts the server of each of these stores and calls `measure` with it. On etcd once for
/// each binary of the options.
pub(crate) async fn each_store(
    options: &Options,
    names: &[impl AsRef<str>],
    measure: impl AsyncFn(Store<'_>) -> Result<()>,
) -> Result<()> {
    for name in names {
        let name = name.as_ref();
        match name {
            "memory" => {
                let (title, properties) = (name.into(), [].as_slice());
                measure(Store { name, title, properties, server: None }).await?;
            }
            "redis" => {
                let redis = RedisServer::start();
                let properties = &[("redisHost", &*redis.address())];
                let server = redis.process.id();
                measure(Store { name, title: "Redis".into(), properties, server }).await?;
            }
            "etcd" => {
                for binary in &options.etcd {
                    let etcd = EtcdServer::launch(binary, &[]).await?;
                    let title = format!("etcd {}", version(&etcd).await?);
                    let properties = &[("endpoints", etcd.address())];
                    let server = etcd.id();
                    measure(Store { name, title, properties, server }).await?;
                }
            }
            other => bail!("no store is called {other}: memory, redis or etcd"),
        }
    }
    Ok(())
}

/// The version of an etcd.
pub(crate) async fn version(etcd: &EtcdServer) -> Result<String> {
    Ok(etcd.client().await.status().await?.version().to_owned())
}

//! The leasehold processes of a world, before they are started.

use futures_util::future::join_all;
use leasehold_testkit::proxy::Proxy;

use super::{
    Settings, Store,
    front::Front,
    leasehold::{Leasehold, Serves},
};

/// The processes of the component, and the fronts.
pub(super) async fn all(
    settings: &Settings,
    store: &Store,
) -> anyhow::Result<(Vec<Leasehold>, Vec<Front>)> {
    let (mut leaseholds, mut fronts) = (Vec::new(), Vec::new());
    if let Store::Memory = store {
        // Memory is not shared between processes, so there is no front.
        let name = "leasehold-0".to_owned();
        leaseholds.push(one(name, Serves::Component, settings, store).await?);
        return Ok((leaseholds, fronts));
    }
    for number in 0..settings.processes.max(1) {
        let name = format!("leasehold-{number}");
        leaseholds.push(one(name, Serves::Component, settings, store).await?);
    }
    for number in 0..settings.fronts {
        let process = one(format!("front-{number}"), Serves::Front, settings, store).await?;
        fronts.push(Front::new(process).await);
    }
    Ok((leaseholds, fronts))
}

/// A process with its own proxies to the servers, not started.
async fn one(
    name: String,
    serves: Serves,
    settings: &Settings,
    store: &Store,
) -> anyhow::Result<Leasehold> {
    let proxies = ways(store).await?;
    Leasehold::new(name, serves, settings, proxies)
}

/// New proxies to the servers that a process is told of.
pub(super) async fn ways(store: &Store) -> anyhow::Result<Vec<Proxy>> {
    let servers = match store {
        Store::Memory => Vec::new(),
        Store::Redis(redis) => vec![redis.address()],
        // These name the servers, which have proxies of their own.
        Store::RedisSentinel(deployment) => deployment.sentinels()?,
        Store::RedisCluster(cluster) => cluster.addresses()?,
        Store::Etcd(etcd) => etcd.addresses(),
    };
    Ok(join_all(servers.into_iter().map(Proxy::start)).await)
}

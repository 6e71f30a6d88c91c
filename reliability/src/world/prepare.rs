//! The leasehold processes of a world, before they are started.

use leasehold_testkit::proxy::Proxy;

use super::{
    Backend, Settings, Store,
    front::Front,
    leasehold::{Leasehold, Serves},
    member,
};

/// Those that serve the component, and the fronts.
pub(super) async fn all(
    settings: &Settings,
    store: &Store,
) -> anyhow::Result<(Vec<Leasehold>, Vec<Front>)> {
    let (mut leaseholds, mut fronts) = (Vec::new(), Vec::new());
    if let Store::Memory = store {
        // What another process has in its memory cannot be shared: there is no front.
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

/// A process with ways of its own to the servers, not started.
async fn one(
    name: String,
    serves: Serves,
    settings: &Settings,
    store: &Store,
) -> anyhow::Result<Leasehold> {
    let servers = match store {
        Store::Memory => Vec::new(),
        Store::Redis(redis) => vec![redis.address()],
        Store::Etcd(etcd) => etcd.addresses(),
    };
    let mut proxies = Vec::new();
    for server in servers {
        proxies.push(Proxy::start(server).await);
    }
    let hosts: Vec<&str> = proxies.iter().map(Proxy::address).collect();
    let items = match settings.backend {
        Backend::Memory => Vec::new(),
        Backend::Redis => vec![("redisHost", hosts.join(","))],
        Backend::Etcd => {
            vec![("endpoints", hosts.join(",")), ("keyPrefixPath", member::PREFIX.to_owned())]
        }
    };
    let (program, folder) = (&settings.leasehold, &settings.folder);
    Leasehold::new(name, serves, program, settings.backend, &items, proxies, folder)
}

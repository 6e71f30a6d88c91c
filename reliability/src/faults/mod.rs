//! What is done to a world, and what that excuses.

mod etcd_keys;
mod etcd_members;
mod etcd_space;
mod fronts;
mod network;
mod pick;
mod processes;
mod redis_failover;
mod redis_keys;
mod redis_server;

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};

pub(crate) use fronts::names as of_fronts;

use crate::{
    clock,
    world::{Backend, Store, World, etcd},
};

/// A fault that was injected, as the history records it. Times are of
/// [`clock`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Injected {
    /// Its name in the catalogue.
    pub name: String,
    /// What exactly was done, for people.
    pub detail: String,
    /// When its injection began.
    pub from_ns: u64,
    /// When what was done to it was over: what that takes away is gone by then,
    /// and nothing that is granted later.
    pub over_ns: u64,
    /// When it was felt no more: no election, no connection to be made anew.
    pub until_ns: u64,
    /// What it takes away.
    pub voids: Voids,
}

/// What a fault takes away by itself, however right the lock store is: only
/// this is excused, and only for grants that were made before `over_ns` of the
/// fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Voids {
    /// Nothing: all promises hold.
    Nothing,
    /// Every grant that was live: the data set was lost, or the process that
    /// kept it. Tokens must rise all the same.
    Grants,
    /// The live grant of this resource: somebody removed its key or its lease.
    GrantOf(String),
    /// Every grant, and the order of tokens across the fault (etcd restored
    /// from an older snapshot without a revision bump).
    GrantsAndTokens,
}

/// What was done.
#[derive(Debug)]
struct Done {
    detail: String,
    voids: Voids,
}

impl Done {
    /// Something that all promises must survive.
    fn harmless(detail: impl Into<String>) -> Self {
        Self { detail: detail.into(), voids: Voids::Nothing }
    }
}

/// The names of all faults that a world on this backend can be given.
pub fn catalogue(backend: Backend) -> Vec<&'static str> {
    let on_backend: &[&[&str]] = match backend {
        Backend::Memory => &[],
        Backend::Redis => &[
            processes::WITH_SERVERS,
            network::NAMES,
            redis_server::NAMES,
            redis_keys::NAMES,
            redis_failover::NAMES,
        ],
        Backend::Etcd => &[
            processes::WITH_SERVERS,
            network::NAMES,
            etcd_members::NAMES,
            etcd_keys::NAMES,
            etcd_space::NAMES,
        ],
    };
    processes::NAMES.iter().chain(on_backend.iter().copied().flatten()).copied().collect()
}

/// The same for this very world: with what only some versions' tools can do.
pub async fn catalogue_of(world: &mut World) -> Vec<&'static str> {
    let mut names = catalogue(world.backend());
    if let Store::Etcd(cluster) = &mut world.store
        && etcd::bumping_tool(cluster.members()[0].program()).await.is_some()
    {
        names.push(etcd_members::RESTORED_BUMPED);
    }
    names
}

/// Carries a fault out and ends it again, typically within 0.1 to 3 s. What it
/// is done to and for how long is chosen by `rng`; that nothing is left of it
/// but what it takes away is seen to by [`World::heal`], and until when it is
/// felt by [`World::settle`].
pub async fn inject(
    world: &mut World,
    name: &str,
    rng: &mut fastrand::Rng,
) -> anyhow::Result<Injected> {
    let from_ns = clock::now_ns();
    let done = carry_out(world, name, rng).await.with_context(|| format!("fault {name}"))?;
    let over_ns = clock::now_ns();
    Ok(Injected {
        name: name.to_owned(),
        detail: done.detail,
        from_ns,
        over_ns,
        until_ns: over_ns,
        voids: done.voids,
    })
}

async fn carry_out(
    world: &mut World,
    name: &str,
    rng: &mut fastrand::Rng,
) -> anyhow::Result<Done> {
    if catalogue(world.backend()).contains(&name) && name.starts_with("leasehold-") {
        return processes::inject(world, name, rng).await;
    }
    if fronts::knows(name) {
        return fronts::inject(world, name, rng).await;
    }
    if network::NAMES.contains(&name) && world.backend() != Backend::Memory {
        return network::inject(world, name, rng).await;
    }
    if redis_failover::NAMES.contains(&name) && world.backend() == Backend::Redis {
        return redis_failover::inject(world).await;
    }
    match &mut world.store {
        Store::Redis(redis) if redis_server::NAMES.contains(&name) => {
            redis_server::inject(redis, name, rng).await
        }
        Store::Redis(redis) if redis_keys::NAMES.contains(&name) => {
            redis_keys::inject(redis, name, rng).await
        }
        Store::Etcd(etcd) if etcd_members::knows(name) => {
            etcd_members::inject(etcd, &world.leaseholds, name, rng).await
        }
        Store::Etcd(etcd) if etcd_keys::NAMES.contains(&name) => {
            etcd_keys::inject(etcd, name, rng).await
        }
        Store::Etcd(etcd) if etcd_space::NAMES.contains(&name) => {
            etcd_space::inject(etcd, rng).await
        }
        _ => bail!("not in the catalogue of {:?}", world.backend()),
    }
}

//! Faults of a world, and what they excuse.

mod etcd_keys;
mod etcd_members;
mod etcd_space;
mod fronts;
mod network;
mod pick;
mod processes;
mod redis_cluster;
mod redis_failover;
mod redis_keys;
mod redis_sentinel;
mod redis_server;

use std::ops::RangeInclusive;

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};

pub(crate) use fronts::names as of_fronts;

use crate::{
    clock,
    world::{Backend, Store, World, etcd, offsets::Promotion},
};

/// A fault that was injected, as the history records it. Times are of
/// [`clock`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Injected {
    /// Its name in the catalogue.
    pub name: String,
    /// Details, as text.
    pub detail: String,
    /// When its injection began.
    pub from_ns: u64,
    /// When its effect on grants was over: grants made later are not affected.
    pub over_ns: u64,
    /// When everything worked again: no election, no missing connection.
    pub until_ns: u64,
    /// What it excuses.
    pub voids: Voids,
    /// The slots of a Cluster whose resources lose that; all resources if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slots: Option<Vec<RangeInclusive<u16>>>,
}

/// What a fault ends even with a correct lock store. Only this is excused, and
/// only for grants that were made before `over_ns` of the fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Voids {
    /// Nothing: all promises hold.
    Nothing,
    /// Every live grant: the data set or its process was lost. Tokens must
    /// still rise.
    Grants,
    /// The live grant of this resource: its key or its lease was removed.
    GrantOf(String),
    /// Every grant, and the order of tokens across the fault (etcd restored
    /// from an older snapshot without a revision bump).
    GrantsAndTokens,
    /// Grants, renewals and unlocks that were answered since this moment: a replica that had
    /// perhaps not received them became the master. Tokens must still rise.
    AnsweredSince(u64),
}

impl Injected {
    /// A promotion that was seen; a fault or a slow machine caused it.
    pub(crate) fn promotion(promotion: &Promotion) -> Self {
        let left_ns = promotion.by_ns.saturating_add(LEFT_WITHIN_NS);
        Self {
            name: PROMOTED.to_owned(),
            detail: format!("server {}", promotion.server),
            from_ns: promotion.after_ns,
            over_ns: left_ns,
            until_ns: left_ns,
            voids: Voids::AnsweredSince(promotion.kept_ns),
            slots: promotion.slots.clone(),
        }
    }
}

/// The name of promotions among the faults.
pub const PROMOTED: &str = "replica-promoted";
/// How long after a promotion a process may still use the former master: 2 s are promised, and
/// a busy machine is slower.
pub(crate) const LEFT_WITHIN_NS: u64 = 3_000_000_000;

/// The result of an injection.
#[derive(Debug)]
struct Done {
    detail: String,
    voids: Voids,
}

impl Done {
    /// A fault that excuses nothing.
    fn harmless(detail: impl Into<String>) -> Self {
        Self { detail: detail.into(), voids: Voids::Nothing }
    }
}

/// The names of all faults that a world on this backend can be given.
pub fn catalogue(backend: Backend) -> Vec<&'static str> {
    let on_backend: &[&[&str]] = match backend {
        Backend::Memory => &[],
        Backend::Redis => &[
            processes::IN_TURN,
            processes::VANISHED,
            network::NAMES,
            network::VANISHED,
            redis_server::NAMES,
            redis_keys::NAMES,
            redis_failover::NAMES,
        ],
        Backend::RedisSentinel => &[
            processes::IN_TURN,
            processes::VANISHED,
            // To the Sentinels.
            network::NAMES,
            network::VANISHED,
            redis_sentinel::WAYS,
            redis_sentinel::OTHERS,
        ],
        Backend::RedisCluster => &[
            processes::IN_TURN,
            // At the nodes: of all clients, and of the replica.
            network::NAMES,
            redis_cluster::WAYS,
            redis_cluster::SLOTS,
            redis_cluster::OTHERS,
        ],
        Backend::Etcd => &[
            processes::IN_TURN,
            processes::VANISHED,
            network::NAMES,
            network::VANISHED,
            etcd_members::NAMES,
            etcd_keys::NAMES,
            etcd_space::NAMES,
        ],
    };
    processes::NAMES.iter().chain(on_backend.iter().copied().flatten()).copied().collect()
}

/// The catalogue of this world, with faults that only some versions' tools can inject.
pub async fn catalogue_of(world: &mut World) -> Vec<&'static str> {
    let mut names = catalogue(world.backend());
    if let Store::Etcd(cluster) = &mut world.store
        && etcd::bumping_tool(cluster.members()[0].program()).await.is_some()
    {
        names.push(etcd_members::RESTORED_BUMPED);
    }
    names
}

/// The faults of this backend that every situation prefers.
pub(crate) fn preferred(backend: Backend) -> impl Iterator<Item = &'static str> {
    let slots = if backend == Backend::RedisCluster { redis_cluster::SLOTS } else { &[] };
    // As often as some of the many ways to fail over.
    failovers(backend).chain(slots.repeat(2))
}

/// The faults of this backend that make a replica a master.
pub fn failovers(backend: Backend) -> impl Iterator<Item = &'static str> {
    let (ways, behind): (&[_], _) = match backend {
        Backend::RedisSentinel => (redis_sentinel::WAYS, Some(redis_sentinel::BEHIND)),
        Backend::RedisCluster => (redis_cluster::WAYS, Some(redis_cluster::BEHIND)),
        Backend::Memory | Backend::Redis | Backend::Etcd => (&[], None),
    };
    ways.iter().copied().chain(behind)
}

/// Carries a fault out and ends it again, typically within 0.1 to 3 s. `rng`
/// chooses its target and its duration. [`World::heal`] undoes what is left of
/// it, and [`World::settle`] waits for its consequences.
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
        slots: None,
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
    if catalogue(world.backend()).contains(&name) && name.starts_with("network-") {
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
        Store::RedisSentinel(deployment) if name.starts_with("sentinel-") => {
            redis_sentinel::inject(deployment, name, rng).await
        }
        Store::RedisCluster(cluster) if name.starts_with("cluster-") => {
            redis_cluster::inject(cluster, name, rng).await
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

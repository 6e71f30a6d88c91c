//! The servers and the leasehold processes of one run.

pub mod deployment;
pub mod etcd;
pub mod front;
pub mod leasehold;
mod leftovers;
pub mod member;
pub mod offsets;
mod prepare;
pub mod probe;
pub mod redis;
pub mod redis_cluster;
mod replicating;

use std::{net::SocketAddr, path::PathBuf};

use clap::ValueEnum;
use futures_util::future::join_all;
use leasehold_testkit::{
    leasehold::program,
    proxy::{Conduct, Flow, Proxy},
};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use deployment::Deployment;
use etcd::EtcdCluster;
use front::Front;
use leasehold::Leasehold;
use offsets::Promotion;
use redis::RedisServer;
use redis_cluster::RedisCluster;

/// The component instance that every process serves
/// (`x-component-instance`).
pub const INSTANCE: &str = "locks";

/// How many leftover leases are listed.
const LISTED_MAX: usize = 5;

/// Which backend keeps the locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Backend {
    /// One process; its locks end with it.
    Memory,
    /// One Redis server.
    Redis,
    /// A Redis master with two replicas, and three Sentinels.
    RedisSentinel,
    /// Three masters of a Redis Cluster, each with a replica. It has exclusive locks only.
    RedisCluster,
    /// Three etcd members.
    Etcd,
}

impl Backend {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Memory, Self::Redis, Self::RedisSentinel, Self::RedisCluster, Self::Etcd];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::RedisSentinel => "redis-sentinel",
            Self::RedisCluster => "redis-cluster",
            _ => self.kind(),
        }
    }

    /// The name in `lock.NAME`.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Redis | Self::RedisSentinel | Self::RedisCluster => "redis",
            Self::Etcd => "etcd",
        }
    }

    /// Whether it has shared locks.
    pub(crate) fn is_shared(self) -> bool {
        self != Self::RedisCluster
    }

    /// Whether replicas replace masters, and lose what they had not received.
    pub(crate) fn fails_over(self) -> bool {
        matches!(self, Self::RedisSentinel | Self::RedisCluster)
    }
}

/// How a world is started.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The backend.
    pub backend: Backend,
    /// The `leasehold` binary.
    pub leasehold: PathBuf,
    /// The etcd binary; Debian's on the path by default.
    pub etcd: PathBuf,
    /// leasehold processes (one for memory, whose locks are its own).
    pub processes: usize,
    /// How many fronts for clients of Redis; none for memory.
    pub fronts: usize,
    /// `operationTimeout` of all processes, unless it is the default.
    pub operation_timeout: Option<&'static str>,
    /// Where logs and data go; kept after a failing run.
    pub folder: PathBuf,
}

/// The resources that a leasehold process uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Weight {
    /// The process.
    pub name: String,
    /// Its resident memory.
    pub rss_bytes: u64,
    /// Its open file descriptors.
    pub descriptors: u64,
}

/// The servers of the backend.
#[derive(Debug)]
pub enum Store {
    /// The process itself.
    Memory,
    /// A server.
    Redis(Box<RedisServer>),
    /// Servers and Sentinels.
    RedisSentinel(Box<Deployment>),
    /// Nodes that share the slots.
    RedisCluster(Box<RedisCluster>),
    /// A cluster.
    Etcd(Box<EtcdCluster>),
}

/// Everything that runs; killed when dropped.
#[derive(Debug)]
pub struct World {
    /// The processes, started in this order.
    pub leaseholds: Vec<Leasehold>,
    /// The fronts for clients of Redis.
    pub(crate) fronts: Vec<Front>,
    /// The servers that they use.
    pub store: Store,
    /// The proxy to Redis of clients that do not use leasehold.
    foreign: Option<Proxy>,
    /// The proxies of processes with vanished hosts: the servers do not see their ends.
    dark: Vec<Proxy>,
}

impl World {
    /// Starts everything, and returns once every process serves. `seed` chooses
    /// what the settings leave open (whether Redis persists, or demands replicas).
    pub async fn start(settings: &Settings, seed: u64) -> anyhow::Result<Self> {
        std::fs::create_dir_all(&settings.folder)?;
        let mut rng = fastrand::Rng::with_seed(seed);
        let store = match settings.backend {
            Backend::Memory => Store::Memory,
            Backend::Redis => {
                let server = RedisServer::start(&settings.folder, rng.bool()).await?;
                Store::Redis(Box::new(server))
            }
            Backend::RedisSentinel => {
                let deployment = Deployment::start(&settings.folder, rng.bool()).await?;
                Store::RedisSentinel(Box::new(deployment))
            }
            Backend::RedisCluster => {
                let cluster = RedisCluster::start(&settings.folder, rng.bool(), rng.bool());
                Store::RedisCluster(Box::new(cluster.await?))
            }
            Backend::Etcd => {
                let cluster = EtcdCluster::start(&settings.etcd, &settings.folder).await?;
                Store::Etcd(Box::new(cluster))
            }
        };
        let (leaseholds, fronts) = prepare::all(settings, &store).await?;
        let foreign = match &store {
            Store::Redis(redis) => Some(Proxy::start(redis.address()).await),
            // Elsewhere a client that knows one server would go on with a former master.
            _ => None,
        };
        let mut world = Self { leaseholds, fronts, store, foreign, dark: Vec::new() };
        world.serve().await?;
        Ok(world)
    }

    /// Starts a world with two processes of this build (one on memory), in a temporary
    /// folder.
    pub async fn for_test(backend: Backend, seed: u64) -> anyhow::Result<(Self, TempDir)> {
        Self::with(backend, seed, 0, None).await
    }

    /// Like [`World::for_test`], with this `operationTimeout`.
    pub async fn with_operation_timeout(
        backend: Backend,
        seed: u64,
        operation_timeout: &'static str,
    ) -> anyhow::Result<(Self, TempDir)> {
        Self::with(backend, seed, 0, Some(operation_timeout)).await
    }

    /// Like [`World::for_test`], with fronts for clients of Redis.
    pub async fn with_fronts(
        backend: Backend,
        seed: u64,
        fronts: usize,
    ) -> anyhow::Result<(Self, TempDir)> {
        Self::with(backend, seed, fronts, None).await
    }

    async fn with(
        backend: Backend,
        seed: u64,
        fronts: usize,
        operation_timeout: Option<&'static str>,
    ) -> anyhow::Result<(Self, TempDir)> {
        let folder = tempfile::tempdir()?;
        let settings = Settings {
            backend,
            leasehold: program(),
            etcd: "etcd".into(),
            processes: 2,
            fronts,
            operation_timeout,
            folder: folder.path().to_owned(),
        };
        Ok((Self::start(&settings, seed).await?, folder))
    }

    /// The component socket of each process: the same path after its restart.
    pub fn sockets(&self) -> Vec<PathBuf> {
        self.leaseholds.iter().map(|leasehold| leasehold.socket().to_owned()).collect()
    }

    /// Where clients that do not use leasehold reach Redis: the same address after
    /// a failover.
    pub fn redis_address(&self) -> Option<&str> {
        self.foreign.as_ref().map(Proxy::address)
    }

    /// Where clients reach each front: the same address after its restart.
    pub fn fronts(&self) -> Vec<String> {
        self.fronts.iter().map(|front| front.way.address().to_owned()).collect()
    }

    /// Every leasehold process, those of fronts included.
    pub(crate) fn processes(&self) -> impl Iterator<Item = &Leasehold> {
        let fronts = self.fronts.iter().map(|front| &front.process);
        self.leaseholds.iter().chain(fronts)
    }

    /// Like [`World::processes`], mutable.
    pub(crate) fn processes_mut(&mut self) -> impl Iterator<Item = &mut Leasehold> {
        let fronts = self.fronts.iter_mut().map(|front| &mut front.process);
        self.leaseholds.iter_mut().chain(fronts)
    }

    /// Directs new connections to this Redis server.
    pub(crate) fn lead_to(&self, redis: SocketAddr) {
        let ways = self.processes().flat_map(|leasehold| &leasehold.proxies);
        for proxy in ways.chain(&self.foreign) {
            proxy.lead_to(redis);
        }
    }

    /// Which backend it is.
    pub fn backend(&self) -> Backend {
        match self.store {
            Store::Memory => Backend::Memory,
            Store::Redis(_) => Backend::Redis,
            Store::RedisSentinel(_) => Backend::RedisSentinel,
            Store::RedisCluster(_) => Backend::RedisCluster,
            Store::Etcd(_) => Backend::Etcd,
        }
    }

    /// The promotions of replicas since the last call, which may have lost writes.
    pub(crate) fn promotions(&self) -> anyhow::Result<Vec<Promotion>> {
        match &self.store {
            Store::RedisSentinel(deployment) => deployment.promotions(),
            Store::RedisCluster(cluster) => cluster.promotions(),
            Store::Memory | Store::Redis(_) | Store::Etcd(_) => Ok(Vec::new()),
        }
    }

    /// Kills a leasehold process.
    pub(crate) async fn kill_leasehold(&mut self, number: usize) -> anyhow::Result<()> {
        let leasehold = &mut self.leaseholds[number];
        // A crash must not be mistaken for this end.
        leasehold.has_not_crashed()?;
        leasehold.kill();
        self.after_kill().await
    }

    /// Kills a leasehold process with its host: its servers still have its connections, and
    /// it is started again elsewhere.
    pub(crate) async fn vanish_leasehold(&mut self, number: usize) -> anyhow::Result<()> {
        let ways = prepare::ways(&self.store).await?;
        let leasehold = &mut self.leaseholds[number];
        for proxy in &leasehold.proxies {
            let (requests, replies) = (Flow::Swallow, Flow::Swallow);
            proxy.set(Conduct { requests, replies, ..Conduct::default() });
        }
        leasehold.kill();
        self.dark.extend(leasehold.use_ways(ways)?);
        self.after_kill().await
    }

    /// Kills the process of a front.
    pub(crate) async fn kill_front(&mut self, number: usize) -> anyhow::Result<()> {
        let process = &mut self.fronts[number].process;
        process.has_not_crashed()?;
        process.kill();
        self.after_kill().await
    }

    async fn after_kill(&mut self) -> anyhow::Result<()> {
        match &mut self.store {
            Store::Etcd(etcd) => etcd.excuse_leases().await,
            _ => Ok(()),
        }
    }

    /// Starts the processes that do not run, and leads the clients of Redis to the ports of
    /// those.
    pub(crate) async fn start_again(&mut self) -> anyhow::Result<()> {
        for leasehold in &mut self.leaseholds {
            leasehold.start()?;
        }
        for front in &mut self.fronts {
            front.start().await?;
        }
        Ok(())
    }

    /// Ends all faults; returns once everything answers.
    pub async fn heal(&mut self) -> anyhow::Result<()> {
        for leasehold in self.processes_mut() {
            leasehold.proxies.iter().for_each(Proxy::heal);
            if leasehold.runs() {
                leasehold.resume()?;
            }
        }
        self.fronts.iter().for_each(|front| front.way.heal());
        match &mut self.store {
            Store::Memory => {}
            Store::Redis(redis) => redis.heal().await?,
            Store::RedisSentinel(deployment) => deployment.heal().await?,
            Store::RedisCluster(cluster) => cluster.heal().await?,
            Store::Etcd(etcd) => etcd.heal().await?,
        }
        self.serve().await
    }

    /// Returns once an ended fault has no more effects: etcd's members agree, a Redis master
    /// has its replicas, and every process reaches its backend again.
    pub async fn settle(&self) -> anyhow::Result<()> {
        match &self.store {
            Store::Etcd(etcd) => etcd.agree().await?,
            Store::RedisSentinel(deployment) => drop(deployment.whole().await?),
            Store::RedisCluster(cluster) => drop(cluster.whole().await?),
            Store::Memory | Store::Redis(_) => {}
        }
        self.ready().await
    }

    /// Starts the processes that do not run; returns once all serve.
    async fn serve(&mut self) -> anyhow::Result<()> {
        self.start_again().await?;
        self.ready().await
    }

    /// Returns once every process locks and unlocks.
    pub async fn ready(&self) -> anyhow::Result<()> {
        let all = join_all(self.leaseholds.iter().map(Leasehold::ready)).await;
        let fronts = join_all(self.fronts.iter().map(Front::ready)).await;
        all.into_iter().chain(fronts).collect()
    }

    /// The leftovers on the backend after everything was unlocked or has
    /// expired. Waits as long as something may still expire. Leftovers in a
    /// process's memory cannot be seen.
    pub async fn leftovers(&mut self) -> anyhow::Result<Vec<String>> {
        let processes = self.processes().count();
        match &self.store {
            Store::Memory => Ok(Vec::new()),
            Store::Redis(redis) => leftovers::settle(async || redis.leftovers().await).await,
            Store::RedisSentinel(deployment) => {
                leftovers::settle(async || deployment.leftovers().await).await
            }
            Store::RedisCluster(cluster) => {
                leftovers::settle(async || cluster.leftovers().await).await
            }
            Store::Etcd(etcd) => {
                leftovers::settle(async || etcd.leftovers(processes).await).await
            }
        }
    }

    /// Stops leasehold gracefully. Returns the leftovers on the backend that
    /// would not end by themselves within a minute.
    pub async fn left_after_stop(&mut self) -> anyhow::Result<Vec<String>> {
        let drained = self.processes_mut().map(async |leasehold| leasehold.drain().await);
        join_all(drained).await.into_iter().collect::<anyhow::Result<()>>()?;
        let Store::Etcd(etcd) = &self.store else { return Ok(Vec::new()) };
        let mut left = etcd.lasting_leases().await?;
        if left.len() > LISTED_MAX {
            let more = left.len() - LISTED_MAX;
            left.truncate(LISTED_MAX);
            left.push(format!("{more} more leases that nobody needs"));
        }
        Ok(left)
    }

    /// The resources that each leasehold process uses.
    pub fn weights(&self) -> Vec<Weight> {
        self.processes().filter_map(Leasehold::weight).collect()
    }

    /// Ends everything, leasehold first and gracefully.
    pub async fn stop(mut self) {
        join_all(self.processes_mut().map(async |leasehold| {
            let _ = leasehold.resume();
            let _ = leasehold.drain().await;
            leasehold.kill();
        }))
        .await;
        match &mut self.store {
            Store::Memory => {}
            Store::Redis(redis) => redis.kill(),
            Store::RedisSentinel(deployment) => deployment.stop(),
            Store::RedisCluster(cluster) => cluster.stop(),
            Store::Etcd(etcd) => {
                for member in etcd.members() {
                    member.kill();
                }
            }
        }
    }
}

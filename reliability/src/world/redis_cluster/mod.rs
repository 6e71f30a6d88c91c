//! A Redis Cluster of three masters, each with a replica.
//!
//! A master and its replica are a shard: one of them has the slots of the shard, except those
//! that a fault has moved.

mod moves;
mod node;

use std::{net::SocketAddr, ops::RangeInclusive, path::Path, time::Duration};

use anyhow::{bail, ensure};
use leasehold_testkit::{
    ports::free_address,
    proxy::{Conduct, Proxy},
    redis::RedisServer,
    redis_cluster::RedisCluster as Cluster,
    wait::eventually,
};
use tokio::time::timeout;

use super::{
    offsets::{Offsets, Promotion},
    redis::{channels, leftovers},
    replicating::{Replicating, setup},
};
use moves::{Visit, of_shard};
use node::{Node, REPLICA, View, client};

/// How many shards there are.
pub(crate) const SHARDS: usize = 3;
const NODES: usize = 2 * SHARDS;
/// After what time a node counts as gone: a busy machine is slow for longer than the second of
/// other tests.
const NODE_TIMEOUT_MS: &str = "2000";
/// How soon a replica must replace its master.
const FAILED_OVER_WITHIN: Duration = Duration::from_secs(30);
/// How long a replica that was ordered to replace its master may take; it gives up after 5 s.
const ORDERED_WITHIN: Duration = Duration::from_secs(6);
const ORDERS_MAX: usize = 5;
/// How soon the Cluster must be as at its start once there is no fault.
const WHOLE_WITHIN: Duration = Duration::from_secs(30);

/// Nodes that clients and other nodes reach through proxies.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<Node>,
    /// The slots of each shard.
    shares: Vec<RangeInclusive<u16>>,
    offsets: Offsets,
    visits: Vec<Visit>,
}

impl RedisCluster {
    /// Starts everything. Masters without replicas refuse writes if it `demands_replicas`. If it
    /// `is_all_or_nothing`, no node serves while a slot has no master.
    pub async fn start(
        folder: &Path,
        demands_replicas: bool,
        is_all_or_nothing: bool,
    ) -> anyhow::Result<Self> {
        let folder = folder.join("redis");
        let coverage = if is_all_or_nothing { "yes" } else { "no" };
        let others = [
            ["--cluster-node-timeout", NODE_TIMEOUT_MS],
            ["--cluster-require-full-coverage", coverage],
            ["--cluster-allow-replica-migration", "no"],
            ["--cluster-replica-validity-factor", "0"],
        ];
        let setups = (0..NODES)
            .map(|number| setup(&folder, number, demands_replicas, &others.concat()))
            .collect::<Result<Vec<_>, _>>()?;
        // This waits without giving its thread away.
        let start = move || Cluster::start_with(SHARDS, 1, |node| setups[node].clone());
        let cluster = tokio::task::spawn_blocking(start).await?;
        let share = |shard| cluster.share(shard).start..=cluster.share(shard).end - 1;
        let shares = (0..SHARDS).map(share).collect();
        let urls: Vec<_> = cluster.nodes.iter().map(RedisServer::url).collect();
        let mut nodes = Vec::new();
        for server in cluster.nodes {
            let proxy = Proxy::start_with_origins(server.address(), free_address(), client);
            let at = Replicating { proxy: proxy.await?, server };
            nodes.push(Node::new(at).await?);
        }
        let offsets = Offsets::watch(&urls);
        let started = Self { nodes, shares, offsets, visits: Vec::new() };
        started.whole().await?;
        Ok(started)
    }

    /// Where the nodes serve clients.
    pub fn addresses(&self) -> anyhow::Result<Vec<SocketAddr>> {
        self.nodes.iter().map(|node| Ok(node.at.proxy.address().parse()?)).collect()
    }

    /// The proxies to the nodes.
    pub(crate) fn proxies(&self) -> impl Iterator<Item = &Proxy> {
        self.nodes.iter().map(|node| &node.at.proxy)
    }

    /// The process IDs of the nodes that run.
    pub fn ids(&self) -> impl Iterator<Item = u32> {
        self.nodes.iter().filter_map(|node| node.at.id())
    }

    /// The promotions since the last call, which may have lost writes of their shards.
    pub fn promotions(&self) -> anyhow::Result<Vec<Promotion>> {
        let promotions = self.offsets.promotions()?.into_iter();
        Ok(promotions.flat_map(|it| of_shard(&it, &self.shares, &self.visits)).collect())
    }

    /// Returns the master of each shard once all nodes agree that the Cluster is as at its start,
    /// except for failovers.
    pub async fn whole(&self) -> anyhow::Result<[usize; SHARDS]> {
        eventually(WHOLE_WITHIN, "the Cluster is whole", async || {
            let views = futures_util::future::try_join_all(self.nodes.iter().map(Node::view));
            let views = views.await?;
            ensure!(
                views.iter().all(|view| *view == views[0]),
                "the nodes disagree: {views:?}"
            );
            let mut masters = [0; SHARDS];
            for (shard, master) in masters.iter_mut().enumerate() {
                *master = self.leader(shard, &views[0])?;
            }
            for (number, node) in self.nodes.iter().enumerate() {
                let wanted = match masters.contains(&number) {
                    true => "state=online",
                    false => "master_link_status:up",
                };
                let replication = node.at.replication().await?;
                ensure!(replication.contains(wanted), "node {number} is not {wanted}");
            }
            Ok(masters)
        })
        .await
    }

    /// The node of a shard that has all its slots, if the other one is its replica.
    fn leader(&self, shard: usize, view: &View) -> anyhow::Result<usize> {
        let share = &self.shares[shard];
        let slots = format!("{}-{}", share.start(), share.end());
        for master in [shard, shard + SHARDS] {
            let replica = other_of(master);
            let leads = [self.nodes[master].name(), "master".into(), "-".into(), slots.clone()];
            let follows =
                [self.nodes[replica].name(), "slave".into(), self.nodes[master].id.clone()];
            if view.iter().any(|line| *line == leads)
                && view.iter().any(|line| *line == follows)
            {
                return Ok(master);
            }
        }
        bail!("shard {shard} is not whole: {view:?}")
    }

    /// The node of a shard that is a master by its own view.
    async fn master_of(&self, shard: usize) -> anyhow::Result<usize> {
        for number in [shard, shard + SHARDS] {
            if self.is_master(number).await.is_ok_and(|is_master| is_master) {
                return Ok(number);
            }
        }
        bail!("shard {shard} has no master")
    }

    async fn is_master(&self, number: usize) -> anyhow::Result<bool> {
        Ok(self.nodes[number].at.replication().await?.contains("role:master"))
    }

    /// Orders the replica of this master to replace it, in this way.
    pub(crate) async fn order_failover(
        &self,
        master: usize,
        how: &[&str],
    ) -> anyhow::Result<()> {
        let replica = other_of(master);
        for _ in 0..ORDERS_MAX {
            let order: redis::RedisResult<()> =
                self.nodes[replica].ask(&[&["FAILOVER"], how].concat()).await;
            let replaced = timeout(ORDERED_WITHIN, self.failed_over(master));
            // On a slow machine it may be given up.
            if order.is_ok() && replaced.await.is_ok_and(|replaced| replaced.is_ok()) {
                return Ok(());
            }
        }
        bail!("node {replica} does not replace its master")
    }

    /// Returns once the replica of this master is a master.
    pub(crate) async fn failed_over(&self, master: usize) -> anyhow::Result<()> {
        eventually(FAILED_OVER_WITHIN, "the replica is a master", async || {
            ensure!(self.is_master(other_of(master)).await?, "node {master} is not replaced");
            Ok(())
        })
        .await
    }

    /// A node.
    pub(crate) fn node(&mut self, number: usize) -> &mut Replicating {
        &mut self.nodes[number].at
    }

    /// Starts a node that was killed.
    pub(crate) async fn restart(&mut self, number: usize) -> anyhow::Result<()> {
        self.nodes[number].at.restart().await?;
        self.nodes[number].announce().await
    }

    /// Cuts a node off from the other nodes; clients still reach it.
    pub(crate) fn isolate(&self, number: usize) {
        self.cut_replica_off(number);
        for (other, node) in self.nodes.iter().enumerate() {
            let shunned = vec![self.nodes[number].id.clone()];
            node.bus.set(if other == number {
                Conduct::partition()
            } else {
                Conduct { shunned, ..Conduct::default() }
            });
        }
    }

    /// Makes the replica of this master miss what comes next.
    pub(crate) fn cut_replica_off(&self, master: usize) {
        let shunned = vec![REPLICA.to_owned()];
        self.nodes[master].at.proxy.set(Conduct { shunned, ..Conduct::default() });
    }

    /// Ends every partition.
    pub(crate) fn reunite(&self) {
        for node in &self.nodes {
            node.bus.heal();
            node.at.reunite();
        }
    }

    /// Ends all faults.
    pub async fn heal(&mut self) -> anyhow::Result<()> {
        self.reunite();
        for node in &mut self.nodes {
            // A fault that failed may have left it killed or suspended.
            if node.at.id().is_some() {
                node.at.resume()?;
            }
            node.at.restart().await?;
            node.announce().await?;
        }
        self.whole().await.map(drop)
    }

    /// The keys that should not exist ([`leftovers`]).
    pub async fn leftovers(&self) -> anyhow::Result<Vec<String>> {
        let (mut all, mut left) = (Vec::new(), Vec::new());
        let masters = self.whole().await?;
        for master in masters {
            all.extend(channels(&mut self.nodes[master].at.connect().await?).await?);
        }
        for master in masters {
            left.extend(leftovers(&mut self.nodes[master].at.connect().await?, &all).await?);
        }
        Ok(left)
    }

    /// Kills everything.
    pub fn stop(&mut self) {
        for node in &mut self.nodes {
            node.at.kill();
        }
    }
}

/// The other node of its shard.
pub(crate) fn other_of(node: usize) -> usize {
    (node + SHARDS) % NODES
}

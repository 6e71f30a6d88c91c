//! A Redis Cluster of three masters, each with a replica.
//!
//! A master and its replica are a shard: one of them has the slots of the shard, except those
//! that a fault has moved.

use std::{net::SocketAddr, ops::RangeInclusive, path::Path, time::Duration};

use anyhow::{bail, ensure};
use leasehold_testkit::{
    ports::free_address,
    proxy::{Conduct, Proxy},
    redis::RedisServer,
    redis_cluster::RedisCluster as Cluster,
    wait::eventually,
};
use redis::{FromRedisValue, aio::MultiplexedConnection, cmd};
use tokio::time::timeout;

use super::{
    offsets::{Offsets, Promotion},
    redis::{channels, connect, leftovers},
    replicating::{Replicating, setup},
};
use crate::{clock::now_ns, slots::slot_of};

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
const MOVED_WITHIN: Duration = Duration::from_secs(15);
/// How many keys are moved at a time.
const KEYS_MOVED: usize = 100;
/// What the proxies call a connection of a replica.
const REPLICA: &str = "replica";

/// Nodes that clients and other nodes reach through proxies.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<Node>,
    /// The slots of each shard.
    shares: Vec<RangeInclusive<u16>>,
    offsets: Offsets,
    visits: Vec<Visit>,
}

#[derive(Debug)]
struct Node {
    at: Replicating,
    /// Before the port that other nodes connect to.
    bus: Proxy,
    id: String,
}

/// A slot that was moved from its shard to another one, and back.
#[derive(Debug)]
struct Visit {
    slot: u16,
    shard: usize,
    from_ns: u64,
    until_ns: u64,
}

/// What a node says of all, sorted.
type View = Vec<Vec<String>>;

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

    /// Slots of a shard in which there are locks, or queues.
    pub(crate) async fn used_slots(&self, shard: usize) -> anyhow::Result<Vec<u16>> {
        let mut connection = self.nodes[self.master_of(shard).await?].at.connect().await?;
        let keys: Vec<Vec<u8>> = cmd("KEYS").arg("*").query_async(&mut connection).await?;
        let used = keys.iter().filter(|key| !key.starts_with(b"\x01c"));
        let mut slots: Vec<_> = used.map(|key| slot_of(key)).collect();
        slots.sort_unstable();
        slots.dedup();
        Ok(slots)
    }

    /// Records that a slot is about to leave its shard for another one.
    pub(crate) fn begin_visit(&mut self, slot: u16, shard: usize) {
        self.visits.push(Visit { slot, shard, from_ns: now_ns(), until_ns: u64::MAX });
    }

    /// Records that all slots are back.
    pub(crate) fn end_visits(&mut self) {
        let now_ns = now_ns();
        for visit in &mut self.visits {
            visit.until_ns = visit.until_ns.min(now_ns);
        }
    }

    /// Begins to move a slot between shards, and moves this share of its keys.
    pub(crate) async fn open_slot(
        &self,
        slot: u16,
        from: usize,
        to: usize,
        part: f64,
    ) -> anyhow::Result<()> {
        eventually(MOVED_WITHIN, "the slot is open", async || {
            let (source, target) = (self.master_of(from).await?, self.master_of(to).await?);
            self.open(slot, source, target).await?;
            let mut connection = self.nodes[source].at.connect().await?;
            let mut count = cmd("CLUSTER");
            count.arg("COUNTKEYSINSLOT").arg(slot);
            let keys: u32 = count.query_async(&mut connection).await?;
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let most = (f64::from(keys) * part) as usize;
            self.move_keys(slot, &mut connection, target, most).await.map(drop)
        })
        .await
    }

    async fn open(&self, slot: u16, source: usize, target: usize) -> anyhow::Result<()> {
        let (slot, ids) =
            (slot.to_string(), [source, target].map(|node| &*self.nodes[node].id));
        // The target refuses this if it has the slot already.
        let import = ["SETSLOT", &slot, "IMPORTING", ids[0]];
        if self.nodes[target].ask::<()>(&import).await.is_ok() {
            let () = self.nodes[source].ask(&["SETSLOT", &slot, "MIGRATING", ids[1]]).await?;
        }
        Ok(())
    }

    /// Moves a slot between shards, also one that is open.
    pub(crate) async fn move_slot(
        &self,
        slot: u16,
        from: usize,
        to: usize,
    ) -> anyhow::Result<()> {
        eventually(MOVED_WITHIN, "the slot has moved", async || {
            let (source, target) = (self.master_of(from).await?, self.master_of(to).await?);
            self.open(slot, source, target).await?;
            let mut connection = self.nodes[source].at.connect().await?;
            while self.move_keys(slot, &mut connection, target, KEYS_MOVED).await? > 0 {}
            let text = slot.to_string();
            let owned = ["SETSLOT", &text, "NODE", &self.nodes[target].id];
            // The new owner first: otherwise nobody would have the slot.
            let () = self.nodes[target].ask(&owned).await?;
            for shard in (0..SHARDS).filter(|shard| *shard != to) {
                let () = self.nodes[self.master_of(shard).await?].ask(&owned).await?;
            }
            Ok(())
        })
        .await
    }

    /// Returns how many keys were moved.
    async fn move_keys(
        &self,
        slot: u16,
        source: &mut MultiplexedConnection,
        target: usize,
        most: usize,
    ) -> anyhow::Result<usize> {
        let mut get = cmd("CLUSTER");
        get.arg("GETKEYSINSLOT").arg(slot).arg(most);
        let keys: Vec<Vec<u8>> = get.query_async(source).await?;
        if !keys.is_empty() {
            let mut migrate = cmd("MIGRATE");
            migrate.arg("127.0.0.1").arg(self.nodes[target].at.server.port());
            migrate.arg("").arg(0).arg(5_000).arg("KEYS").arg(&keys);
            let _: String = migrate.query_async(source).await?;
        }
        Ok(keys.len())
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

impl Node {
    async fn new(at: Replicating) -> anyhow::Result<Self> {
        let mut connection = at.connect().await?;
        let mut port = cmd("CONFIG");
        port.arg("GET").arg("cluster-port");
        let (_, port): (String, u16) = port.query_async(&mut connection).await?;
        let bus = format!("127.0.0.1:{port}");
        let bus = Proxy::start_with_origins(bus, free_address(), sender).await?;
        let id = cmd("CLUSTER").arg("MYID").query_async(&mut connection).await?;
        let node = Self { at, bus, id };
        node.announce().await?;
        Ok(node)
    }

    /// Lets it name the addresses of its proxies to others.
    async fn announce(&self) -> anyhow::Result<()> {
        let mut set = cmd("CONFIG");
        set.arg("SET").arg(&["cluster-announce-ip", "127.0.0.1"]);
        set.arg(&["cluster-announce-port", self.at.port()]);
        set.arg(&["cluster-announce-bus-port", self.bus_port()]);
        Ok(set.query_async(&mut self.at.connect().await?).await?)
    }

    /// The port at which other nodes reach it.
    fn bus_port(&self) -> &str {
        self.bus.address().rsplit_once(':').map_or("", |(_, port)| port)
    }

    /// Its ID and its address.
    fn name(&self) -> String {
        format!("{} {}@{}", self.id, self.at.proxy.address(), self.bus_port())
    }

    async fn ask<T: FromRedisValue>(&self, command: &[&str]) -> redis::RedisResult<T> {
        let mut cluster = cmd("CLUSTER");
        cluster.arg(command);
        let mut connection = redis::Client::open(self.at.server.url())?
            .get_multiplexed_async_connection()
            .await?;
        cluster.query_async(&mut connection).await
    }

    /// The name, role, master and slots of each node.
    async fn view(&self) -> anyhow::Result<View> {
        let mut connection = connect(&self.at.server.url()).await?;
        let mut nodes = cmd("CLUSTER");
        let text: String = nodes.arg("NODES").query_async(&mut connection).await?;
        let lines = text.lines().map(|line| {
            let words: Vec<_> = line.split(' ').collect();
            let [id, address, flags, master, _, _, _, _, slots @ ..] = &words[..] else {
                bail!("{line}");
            };
            let address = address.split(',').next().unwrap_or_default();
            let name = format!("{id} {address}");
            let fixed = [&*name, flags.trim_start_matches("myself,"), *master];
            Ok(fixed.iter().chain(slots).map(|word| (*word).to_owned()).collect())
        });
        let mut view = lines.collect::<anyhow::Result<View>>()?;
        view.sort_unstable();
        Ok(view)
    }
}

/// What a promotion may have lost: of the slots of its shard what the replica had not received,
/// and all of those that moved meanwhile, because their keys were copied.
fn of_shard(
    promotion: &Promotion,
    shares: &[RangeInclusive<u16>],
    visits: &[Visit],
) -> Vec<Promotion> {
    let shard = promotion.server % SHARDS;
    let share = &shares[shard];
    let visits = visits.iter().filter(|visit| {
        (visit.shard == shard || share.contains(&visit.slot))
            && visit.until_ns >= promotion.kept_ns
            && visit.from_ns <= promotion.by_ns
    });
    let moved: Vec<_> = visits.map(|visit| visit.slot..=visit.slot).collect();
    let mut all = vec![Promotion { slots: Some(vec![share.clone()]), ..promotion.clone() }];
    if !moved.is_empty() {
        all.push(Promotion { kept_ns: 0, slots: Some(moved), ..promotion.clone() });
    }
    all
}

/// The other node of its shard.
pub(crate) fn other_of(node: usize) -> usize {
    (node + SHARDS) % NODES
}

/// Who connects to a node: a replica begins with a PING.
fn client(head: &[u8]) -> Option<String> {
    const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";
    let head = head.get(..PING.len())?;
    Some(if head == PING { REPLICA } else { "client" }.to_owned())
}

/// The ID of the node that connects to another's bus: it stands in the head of each message.
fn sender(head: &[u8]) -> Option<String> {
    let id = head.strip_prefix(b"RCmb")?.get(36..76)?;
    Some(String::from_utf8_lossy(id).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARES: [RangeInclusive<u16>; SHARDS] = [0..=9, 10..=19, 20..=29];

    /// The moment from which on writes in these slots may be lost by a promotion of node 4.
    fn lost(visits: &[Visit]) -> Vec<(u64, Vec<RangeInclusive<u16>>)> {
        let promotion =
            Promotion { server: 4, after_ns: 90, by_ns: 100, kept_ns: 50, slots: None };
        let all = of_shard(&promotion, &SHARES, visits).into_iter();
        all.map(|it| (it.kept_ns, it.slots.unwrap_or_default())).collect()
    }

    #[test]
    fn a_promotion_loses_writes_of_its_shard() {
        assert_eq!(lost(&[]), [(50, vec![10..=19])]);
    }

    #[test]
    fn a_slot_that_moves_during_a_failover_may_lose_everything() {
        let visit = |slot, shard, from_ns, until_ns| Visit { slot, shard, from_ns, until_ns };
        for (slot, shard) in [(3, 1), (13, 0)] {
            for (from_ns, until_ns) in [(0, 50), (100, 200), (60, 70)] {
                let moved = lost(&[visit(slot, shard, from_ns, until_ns)]);
                assert_eq!(moved, [(50, vec![10..=19]), (0, vec![slot..=slot])]);
            }
            for (from_ns, until_ns) in [(0, 49), (101, 200)] {
                let moved = lost(&[visit(slot, shard, from_ns, until_ns)]);
                assert_eq!(moved, [(50, vec![10..=19])]);
            }
        }
        assert_eq!(lost(&[visit(3, 2, 60, 70)]), [(50, vec![10..=19])], "between other shards");
    }

    #[test]
    fn the_first_bytes_of_a_connection_show_whose_it_is() {
        assert_eq!(client(b"*1\r\n$4\r\nPING\r\n").as_deref(), Some(REPLICA));
        assert_eq!(client(b"*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n").as_deref(), Some("client"));
        assert_eq!(client(b"*1\r\n$4"), None, "not enough");
        let head = [b"RCmb".as_slice(), &[0; 36], &[b'a'; 40], &[1; 9]].concat();
        assert_eq!(sender(&head), Some("a".repeat(40)));
        assert_eq!(sender(&head[..79]), None);
    }
}

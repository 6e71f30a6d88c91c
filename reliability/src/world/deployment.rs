//! A Redis master, two replicas, and three Sentinels that watch them.

use std::{collections::HashMap, net::SocketAddr, path::Path, time::Duration};

use anyhow::{Context as _, ensure};
use leasehold_testkit::{
    proxy::Proxy,
    redis::RedisServer,
    sentinel::{MASTER_NAME, Sentinels},
    wait::eventually,
};
use redis::{FromRedisValue, cmd};

use super::{
    offsets::{Offsets, Promotion},
    redis::{channels, connect, leftovers},
    replicating::{Replicating, setup},
};

const SERVERS: usize = 3;
const REPLICAS: usize = SERVERS - 1;
/// How many Sentinels there are.
pub(crate) const SENTINELS: usize = 3;
/// Sentinels take a master for down after this time. A busy machine is slow for longer than
/// the half second of other tests.
const DOWN_AFTER_MS: u32 = 1_500;
/// How soon Sentinels must make another server the master: a failover may have to wait for 6 s
/// after the one before.
const FAILED_OVER_WITHIN: Duration = Duration::from_secs(40);
/// How soon the deployment must be as at its start once there is no fault.
const WHOLE_WITHIN: Duration = Duration::from_secs(30);

/// Servers that clients, replicas and Sentinels reach through proxies.
#[derive(Debug)]
pub struct Deployment {
    servers: Vec<Replicating>,
    sentinels: Sentinels,
    offsets: Offsets,
}

impl Deployment {
    /// Starts everything. Masters without replicas refuse writes if it `demands_replicas`.
    pub async fn start(folder: &Path, demands_replicas: bool) -> anyhow::Result<Self> {
        let folder = folder.join("redis");
        let mut servers = Vec::new();
        for number in 0..SERVERS {
            let setup = setup(&folder, number, demands_replicas, &[])?;
            let started = tokio::task::spawn_blocking(move || RedisServer::launch(&setup));
            let server = started.await??;
            let proxy = Proxy::start(server.address()).await;
            servers.push(Replicating { server, proxy });
            servers[number].announce().await?;
        }
        let master = servers[0].proxy.address().to_owned();
        for replica in &servers[1..] {
            replica.follow(&servers[0]).await?;
        }
        let urls: Vec<_> = servers.iter().map(|server| server.server.url()).collect();
        let offsets = Offsets::watch(&urls);
        // This waits without giving its thread away.
        let sentinels = tokio::task::spawn_blocking(move || {
            let patience =
                format!("sentinel down-after-milliseconds {MASTER_NAME} {DOWN_AFTER_MS}");
            Sentinels::watch(&master, SENTINELS, REPLICAS, &[&patience])
        });
        let deployment = Self { servers, sentinels: sentinels.await?, offsets };
        deployment.whole().await?;
        Ok(deployment)
    }

    /// Where the Sentinels listen.
    pub fn sentinels(&self) -> anyhow::Result<Vec<SocketAddr>> {
        let all = self.sentinels.all.iter();
        all.map(|sentinel| Ok(sentinel.address().parse()?)).collect()
    }

    /// The promotions since the last call, which may have lost writes.
    pub fn promotions(&self) -> anyhow::Result<Vec<Promotion>> {
        self.offsets.promotions()
    }

    /// Returns the number of the master once all Sentinels name it and the others follow it. A
    /// server that goes on as a master beside it is made a replica, as Sentinels do after
    /// some seconds.
    pub async fn whole(&self) -> anyhow::Result<usize> {
        eventually(WHOLE_WITHIN, "a master has two replicas", async || {
            let mut named = None;
            for number in 0..SENTINELS {
                let master = self.master_by(number).await?;
                ensure!(*named.get_or_insert(master) == master, "Sentinels disagree");
            }
            let master = named.context("there is no Sentinel")?;
            for (number, server) in self.servers.iter().enumerate() {
                if number != master {
                    server.must_follow(&self.servers[master]).await?;
                }
            }
            self.servers[master].must_lead().await?;
            Ok(master)
        })
        .await
    }

    /// The master that a Sentinel sees, if it sees that nothing is wrong.
    async fn master_by(&self, sentinel: usize) -> anyhow::Result<usize> {
        let described: HashMap<String, String> = self.ask(sentinel, &["MASTER"]).await?;
        let flags = described.get("flags").map_or("", String::as_str);
        ensure!(flags == "master", "Sentinel {sentinel} has the master as {flags}");
        let replicas: Vec<HashMap<String, String>> = self.ask(sentinel, &["REPLICAS"]).await?;
        let well = replicas.iter().filter(|it| it.get("flags").is_some_and(|it| it == "slave"));
        ensure!(well.count() == REPLICAS, "Sentinel {sentinel} misses replicas");
        self.number_of(described.get("port").context("no port")?)
    }

    /// The master that a Sentinel names.
    async fn named_by(&self, sentinel: usize) -> anyhow::Result<usize> {
        let address: (String, String) =
            self.ask(sentinel, &["GET-MASTER-ADDR-BY-NAME"]).await?;
        self.number_of(&address.1)
    }

    async fn ask<T: FromRedisValue>(
        &self,
        sentinel: usize,
        question: &[&str],
    ) -> anyhow::Result<T> {
        let url = format!("redis://{}/", self.sentinels.all[sentinel].address());
        let mut connection = connect(&url).await?;
        let mut sentinel = cmd("SENTINEL");
        sentinel.arg(question).arg(MASTER_NAME);
        Ok(sentinel.query_async(&mut connection).await?)
    }

    fn number_of(&self, port: &str) -> anyhow::Result<usize> {
        let ends = |server: &Replicating| server.port() == port;
        self.servers.iter().position(ends).with_context(|| format!("nobody has port {port}"))
    }

    /// Orders a failover from a master that works.
    pub(crate) async fn order_failover(&self) -> anyhow::Result<()> {
        // A replica may just have connected again, and does not count then.
        eventually(FAILED_OVER_WITHIN, "a failover begins", async || {
            self.ask::<()>(0, &["FAILOVER"]).await
        })
        .await
    }

    /// Returns the number of the new master once a Sentinel names another than `former`.
    pub(crate) async fn failed_over(&self, former: usize) -> anyhow::Result<usize> {
        eventually(FAILED_OVER_WITHIN, "another server is named as the master", async || {
            for sentinel in 0..SENTINELS {
                if let Ok(master) = self.named_by(sentinel).await
                    && master != former
                {
                    return Ok(master);
                }
            }
            anyhow::bail!("server {former} is still named")
        })
        .await
    }

    /// Makes a replica miss what comes next: it keeps its data, and follows a server that is
    /// not there.
    pub(crate) async fn cut_replica_off(&self, number: usize) -> anyhow::Result<()> {
        let mut connection = self.servers[number].connect().await?;
        let nowhere = ["127.0.0.1", "1"];
        Ok(cmd("REPLICAOF").arg(&nowhere).query_async(&mut connection).await?)
    }

    /// The numbers of all servers but this one.
    pub(crate) fn others(number: usize) -> impl Iterator<Item = usize> {
        (0..SERVERS).filter(move |other| *other != number)
    }

    /// A server.
    pub(crate) fn server(&mut self, number: usize) -> &mut Replicating {
        &mut self.servers[number]
    }

    /// Starts a killed server as a replica of another.
    pub(crate) async fn restart(&mut self, number: usize, master: usize) -> anyhow::Result<()> {
        self.servers[number].restart().await?;
        self.servers[number].follow(&self.servers[master]).await
    }

    /// Kills a Sentinel.
    pub(crate) fn kill_sentinel(&mut self, number: usize) {
        self.sentinels.all[number].process.kill();
    }

    /// Starts a killed Sentinel.
    pub(crate) fn restart_sentinel(&mut self, number: usize) -> anyhow::Result<()> {
        self.sentinels.all[number].process.start()
    }

    /// The IDs of all processes that run.
    pub fn ids(&self) -> impl Iterator<Item = u32> {
        let servers = self.servers.iter().filter_map(Replicating::id);
        let sentinels = self.sentinels.all.iter().filter_map(|it| it.process.id());
        servers.chain(sentinels)
    }

    /// Ends all faults.
    pub async fn heal(&mut self) -> anyhow::Result<()> {
        for sentinel in &mut self.sentinels.all {
            sentinel.process.start()?;
        }
        for server in &mut self.servers {
            server.reunite();
            // A fault that failed may have left it killed.
            server.server.process.start()?;
            server.resume()?;
        }
        self.whole().await.map(drop)
    }

    /// The keys that should not exist ([`leftovers`]).
    pub async fn leftovers(&self) -> anyhow::Result<Vec<String>> {
        let master = self.whole().await?;
        let mut connection = self.servers[master].connect().await?;
        let channels = channels(&mut connection).await?;
        leftovers(&mut connection, &channels).await
    }

    /// Kills everything.
    pub fn stop(&mut self) {
        for sentinel in &mut self.sentinels.all {
            sentinel.process.kill();
        }
        for server in &mut self.servers {
            server.kill();
        }
    }
}

impl Replicating {
    /// Lets its master name the address of its proxy to Sentinels.
    async fn announce(&self) -> anyhow::Result<()> {
        let mut set = cmd("CONFIG");
        set.arg("SET").arg(&["replica-announce-ip", "127.0.0.1"]);
        set.arg(&["replica-announce-port", self.port()]);
        Ok(set.query_async(&mut self.connect().await?).await?)
    }

    async fn follow(&self, master: &Self) -> anyhow::Result<()> {
        self.announce().await?;
        let mut follow = cmd("REPLICAOF");
        follow.arg("127.0.0.1").arg(master.port());
        Ok(follow.query_async(&mut self.connect().await?).await?)
    }

    /// Fails unless it has all that this master writes.
    async fn must_follow(&self, master: &Self) -> anyhow::Result<()> {
        let replication = self.replication().await?;
        let port = format!("master_port:{}", master.port());
        if !replication.lines().any(|line| line == port) {
            self.follow(master).await?;
        }
        let is_up = replication.lines().any(|line| line == "master_link_status:up");
        ensure!(is_up, "a replica has not connected yet");
        Ok(())
    }

    /// Fails unless it is a master whose replicas are all online.
    async fn must_lead(&self) -> anyhow::Result<()> {
        let replication = self.replication().await?;
        let online = replication.lines().filter(|line| line.contains("state=online"));
        ensure!(online.count() == REPLICAS, "replicas are missing");
        Ok(())
    }
}

//! Verifies that a fault happened, independent of the fault's own code.

use std::{fs, time::Duration};

use anyhow::{Context as _, ensure};
use leasehold_reliability::{
    faults::{Injected, Voids},
    world::{
        Store, World, etcd::EtcdCluster, leasehold::Leasehold, member::Member,
        redis::RedisServer,
    },
};
use redis::{aio::MultiplexedConnection, cmd};
use tokio::{
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_util::task::AbortOnDropHandle;

/// A key that shows whether data were kept.
const MARKER: &str = "\x01cmarker";
/// `redis.sha1hex('return 1')`.
const SCRIPT: &str = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";

/// The state before a fault, to compare with afterwards.
pub(crate) struct Witness {
    processes: Vec<u32>,
    /// Completes once a temporary effect was observed.
    meanwhile: Option<AbortOnDropHandle<()>>,
    redis: Option<BeforeRedis>,
    /// The master, or those of the shards.
    masters: Vec<usize>,
    migrations: u64,
    revision: Option<i64>,
}

struct BeforeRedis {
    run: String,
    /// How far its clock is from the machine's, in milliseconds.
    ahead_ms: i64,
    connection: MultiplexedConnection,
}

impl Witness {
    /// Records the state before the fault.
    pub(crate) async fn before(world: &mut World, fault: &str) -> anyhow::Result<Self> {
        let (mut redis, mut masters, mut revision) = (None, Vec::new(), None);
        match &world.store {
            Store::Redis(server) => {
                let mut connection = server.connect().await?;
                let () = cmd("SET").arg(MARKER).arg(1).query_async(&mut connection).await?;
                let load = ["LOAD", "return 1"];
                let script: String =
                    cmd("SCRIPT").arg(&load).query_async(&mut connection).await?;
                ensure!(script == SCRIPT);
                let run = run_id(&mut connection).await?;
                let ahead_ms = ahead_ms(&mut connection).await?;
                redis = Some(BeforeRedis { run, ahead_ms, connection });
            }
            Store::RedisSentinel(deployment) => masters.push(deployment.whole().await?),
            Store::RedisCluster(cluster) => masters.extend(cluster.whole().await?),
            Store::Etcd(cluster) => revision = Some(current_revision(cluster).await?),
            Store::Memory => {}
        }
        let processes = processes(world);
        let meanwhile = meanwhile(world, fault, &processes).await?;
        Ok(Self {
            processes,
            meanwhile: meanwhile.map(AbortOnDropHandle::new),
            redis,
            masters,
            migrations: migrations(world).await?,
            revision,
        })
    }

    /// Whether the fault was observed. Fails if it did something else.
    pub(crate) async fn has_seen(
        mut self,
        world: &mut World,
        injected: &Injected,
    ) -> anyhow::Result<bool> {
        let now = processes(world);
        let restarted = now.iter().filter(|id| !self.processes.contains(id)).count();
        match injected.name.as_str() {
            "leasehold-killed" | "leasehold-vanished" | "leasehold-restarted" => {
                return Ok(restarted == 1);
            }
            "leasehold-restarted-in-turn" => return Ok(restarted == world.leaseholds.len()),
            "etcd-leader-killed" | "etcd-member-killed" => return Ok(restarted == 1),
            "etcd-restarted-in-turn" | "etcd-all-down" => return Ok(restarted == 3),
            "etcd-used-follower-killed" | "etcd-used-follower-suspended" => {
                let number = injected.detail.trim_start_matches('m').chars().next();
                let number = number.and_then(|digit| digit.to_digit(10)).context("whom?")?;
                let number = usize::try_from(number)?;
                let Store::Etcd(cluster) = &world.store else { anyhow::bail!("no etcd") };
                ensure!(cluster.leader().await? != number, "m{number} leads");
                if injected.name.ends_with("-killed") {
                    return Ok(restarted == 1);
                }
            }
            name if name.starts_with("network-") => return Ok(true),
            _ => {}
        }
        let happened = self.meanwhile.as_ref().is_none_or(|it| it.is_finished());
        let masters = match &world.store {
            Store::RedisSentinel(deployment) => vec![deployment.whole().await?],
            Store::RedisCluster(cluster) => cluster.whole().await?.into(),
            _ => Vec::new(),
        };
        if !masters.is_empty() {
            let is_so = match injected.name.as_str() {
                "sentinel-master-stalls" | "cluster-master-stalls" => true,
                "sentinel-killed" | "cluster-replica-killed" => restarted == 1,
                name if name.starts_with("cluster-slots-") => {
                    migrations(world).await? > self.migrations
                }
                _ => masters != self.masters,
            };
            return Ok(happened && is_so);
        }
        if self.meanwhile.is_some() {
            return Ok(happened);
        }
        if injected.name.contains("-holder-") || injected.name == "etcd-lease-revoked" {
            let keeps = injected.name == "redis-holder-without-expiry";
            return Ok(keeps == (injected.voids == Voids::Nothing));
        }
        match &world.store {
            Store::Redis(server) => {
                let before = self.redis.take().context("no look at Redis before")?;
                redis_shows(server, injected, before).await
            }
            Store::Etcd(cluster) => {
                let before = self.revision.context("no look at etcd before")?;
                etcd_shows(cluster, injected, before).await
            }
            _ => Ok(false),
        }
    }
}

/// How often the nodes of a Cluster have sent keys to others.
async fn migrations(world: &World) -> anyhow::Result<u64> {
    let Store::RedisCluster(cluster) = &world.store else { return Ok(0) };
    let mut sum = 0;
    for address in cluster.addresses()? {
        let client = redis::Client::open(format!("redis://{address}"))?;
        let mut connection = client.get_multiplexed_async_connection().await?;
        let stats: String =
            cmd("INFO").arg("commandstats").query_async(&mut connection).await?;
        let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_migrate:calls="));
        let calls = calls.and_then(|calls| calls.split(',').next()).unwrap_or("0");
        sum += calls.parse::<u64>()?;
    }
    Ok(sum)
}

fn processes(world: &mut World) -> Vec<u32> {
    let mut ids: Vec<u32> = world.leaseholds.iter().filter_map(Leasehold::id).collect();
    match &mut world.store {
        Store::Memory => {}
        Store::Redis(redis) => ids.extend(redis.id()),
        Store::RedisSentinel(deployment) => ids.extend(deployment.ids()),
        Store::RedisCluster(cluster) => ids.extend(cluster.ids()),
        Store::Etcd(etcd) => ids.extend(etcd.members().iter().filter_map(Member::id)),
    }
    ids
}

/// Watches for a temporary effect; ends when it was observed.
async fn meanwhile(
    world: &mut World,
    fault: &str,
    processes: &[u32],
) -> anyhow::Result<Option<JoinHandle<()>>> {
    if fault.ends_with("-suspended") || fault.ends_with("-stalls") {
        let processes = processes.to_vec();
        let at_once = if fault == "etcd-all-suspended" { 3 } else { 1 };
        return Ok(Some(tokio::spawn(async move {
            while processes.iter().filter(|id| is_stopped(**id)).count() < at_once {
                sleep(Duration::from_millis(5)).await;
            }
        })));
    }
    match &mut world.store {
        Store::Redis(server) if fault == "redis-out-of-memory" => {
            let mut connection = server.connect().await?;
            Ok(Some(tokio::spawn(async move {
                let mut set = async || -> redis::RedisResult<()> {
                    cmd("SET").arg("\x01cfull").arg(1).query_async(&mut connection).await
                };
                while !set().await.is_err_and(|why| why.to_string().contains("OOM")) {
                    sleep(Duration::from_millis(5)).await;
                }
            })))
        }
        Store::Etcd(cluster) if fault == "etcd-out-of-space" => {
            let mut client = cluster.client().await?;
            Ok(Some(tokio::spawn(async move {
                let mut put = async || client.put("/witness", "", None).await;
                while !put().await.is_err_and(|why| why.to_string().contains("space exceeded"))
                {
                    sleep(Duration::from_millis(5)).await;
                }
            })))
        }
        // A member without a majority cannot answer this reliably.
        Store::Etcd(cluster) if fault.ends_with("-isolated") => {
            let mut clients = Vec::new();
            for member in cluster.members() {
                clients.push(member.client().await?);
            }
            Ok(Some(tokio::spawn(async move {
                let mut all_answer = true;
                while all_answer {
                    for client in &mut clients {
                        let get = timeout(Duration::from_millis(700), client.get("x", None));
                        all_answer &= get.await.is_ok();
                    }
                    sleep(Duration::from_millis(20)).await;
                }
            })))
        }
        _ => Ok(None),
    }
}

fn is_stopped(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|state| state.starts_with('T'))
}

async fn redis_shows(
    server: &RedisServer,
    injected: &Injected,
    mut before: BeforeRedis,
) -> anyhow::Result<bool> {
    let mut now = server.connect().await?;
    let marker: bool = cmd("EXISTS").arg(MARKER).query_async(&mut now).await?;
    let restarted = run_id(&mut now).await? != before.run;
    Ok(match injected.name.as_str() {
        "redis-restarted" => restarted && marker == (injected.voids == Voids::Nothing),
        "redis-restarted-empty" => restarted && !marker && injected.voids != Voids::Nothing,
        "redis-failed-over" => {
            let role =
                async |connection: &mut MultiplexedConnection| -> anyhow::Result<String> {
                    let info: String =
                        cmd("INFO").arg("replication").query_async(connection).await?;
                    let line = info.lines().find_map(|line| line.strip_prefix("role:"));
                    Ok(line.context("no role")?.to_owned())
                };
            restarted
                && marker
                && role(&mut now).await? == "master"
                && role(&mut before.connection).await? == "slave"
        }
        "redis-flushed" => !restarted && !marker && injected.voids != Voids::Nothing,
        "redis-library-flushed" => {
            let exists = ["EXISTS", SCRIPT];
            let there: Vec<bool> = cmd("SCRIPT").arg(&exists).query_async(&mut now).await?;
            there == [false]
        }
        // Ours is a normal one.
        "redis-clients-killed-normal" => {
            cmd("PING").query_async::<String>(&mut before.connection).await.is_err()
        }
        "redis-clients-killed-pubsub" | "redis-client-killed-by-id" => {
            !injected.detail.contains(": 0 killed")
        }
        "redis-clock-forward" => ahead_ms(&mut now).await? > before.ahead_ms + 400,
        "redis-clock-back" => ahead_ms(&mut now).await? < before.ahead_ms - 100,
        other => anyhow::bail!("no witness for {other}"),
    })
}

async fn run_id(connection: &mut MultiplexedConnection) -> anyhow::Result<String> {
    let info: String = cmd("INFO").arg("server").query_async(connection).await?;
    let line = info.lines().find(|line| line.starts_with("run_id:"));
    Ok(line.context("no run_id")?.to_owned())
}

/// By `TIME` and the time stamp of a file that is touched now.
async fn ahead_ms(connection: &mut MultiplexedConnection) -> anyhow::Result<i64> {
    let file = tempfile::tempfile()?;
    let here = file.metadata()?.modified()?.duration_since(std::time::UNIX_EPOCH)?;
    let (seconds, micros): (i64, i64) = cmd("TIME").query_async(connection).await?;
    Ok(seconds * 1000 + micros / 1000 - i64::try_from(here.as_millis())?)
}

async fn etcd_shows(
    cluster: &EtcdCluster,
    injected: &Injected,
    before: i64,
) -> anyhow::Result<bool> {
    let now = current_revision(cluster).await?;
    Ok(match injected.name.as_str() {
        "etcd-restored" => injected.voids == Voids::GrantsAndTokens,
        "etcd-restored-bumped" => now > before + 100_000_000,
        "etcd-compacted" => {
            let old = etcd_client::GetOptions::new().with_revision(before);
            cluster.client().await?.get("x", Some(old)).await.is_err()
        }
        "etcd-session-revoked" => injected.detail.contains("queue again"),
        other => anyhow::bail!("no witness for {other}"),
    })
}

async fn current_revision(cluster: &EtcdCluster) -> anyhow::Result<i64> {
    let answer = cluster.client().await?.get("x", None).await?;
    Ok(answer.header().context("no header")?.revision())
}

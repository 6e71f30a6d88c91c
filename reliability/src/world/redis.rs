//! One Redis server.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use leasehold_testkit::{
    clock_shim::ClockShim,
    redis::{RedisServer as Server, RedisSetup},
    wait::eventually,
};
use redis::{aio::MultiplexedConnection, cmd};

const READY_WITHIN: Duration = Duration::from_secs(15);
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// A redis-server whose clock can be set.
#[derive(Debug)]
pub struct RedisServer {
    server: Server,
    data: PathBuf,
    clock: ClockShim,
    persists: bool,
    folder: PathBuf,
    /// How many servers were started in its folder.
    started: u32,
    /// The master before the last failover, a replica now.
    former: Option<Server>,
}

impl RedisServer {
    /// Starts a server that keeps its data over a restart if it `persists`.
    pub async fn start(folder: &Path, persists: bool) -> anyhow::Result<Self> {
        let folder = folder.join("redis");
        fs::create_dir_all(&folder)?;
        let clock = ClockShim::new(&folder)?;
        let (server, data) = launch(&folder, 0, &clock, persists).await?;
        Ok(Self { server, data, clock, persists, folder, started: 1, former: None })
    }

    /// Starts a replica that takes over without losing a write. The former
    /// master continues as its replica until [`heal`](Self::heal), and keeps its
    /// connections.
    pub async fn fail_over(&mut self) -> anyhow::Result<()> {
        self.former = None;
        let of_master = self.connect().await?;
        let (replica, data) =
            launch(&self.folder, self.started, &self.clock, self.persists).await?;
        self.started += 1;
        let master = std::mem::replace(&mut self.server, replica);
        let follow = ["127.0.0.1".to_owned(), master.port().to_string()];
        (self.data, self.former) = (data, Some(master));
        let of_replica = self.connect().await?;
        let () = cmd("REPLICAOF").arg(&follow).query_async(&mut of_replica.clone()).await?;
        eventually(READY_WITHIN, "the replica follows", async || {
            is_so(&mut of_replica.clone(), "master_link_status:up").await
        })
        .await?;
        // Its link may be up before the master counts it as online.
        eventually(READY_WITHIN, "the master hands over", async || {
            let port = self.server.port().to_string();
            let to = ["TO", "127.0.0.1", &port, "TIMEOUT", "5000"];
            let mut of_master = of_master.clone();
            Ok(cmd("FAILOVER").arg(&to).query_async::<()>(&mut of_master).await?)
        })
        .await?;
        eventually(READY_WITHIN, "the replica has taken over", async || {
            is_so(&mut of_master.clone(), "role:slave").await?;
            is_so(&mut of_replica.clone(), "role:master").await
        })
        .await
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.server.port()))
    }

    /// Whether a restart keeps its data.
    pub fn persists(&self) -> bool {
        self.persists
    }

    /// Its clock.
    pub fn clock(&mut self) -> &mut ClockShim {
        &mut self.clock
    }

    /// A connection past the proxies.
    pub async fn connect(&self) -> anyhow::Result<MultiplexedConnection> {
        connect(&self.server.url()).await
    }

    /// Returns once it answers, with its data loaded.
    pub async fn ready(&mut self) -> anyhow::Result<()> {
        eventually(READY_WITHIN, "Redis answers", async || {
            anyhow::ensure!(self.server.process.runs(), "redis-server has ended");
            let pong: String = cmd("PING").query_async(&mut self.connect().await?).await?;
            anyhow::ensure!(pong == "PONG", "{pong}");
            Ok(())
        })
        .await
    }

    /// Its process ID while it runs.
    pub fn id(&self) -> Option<u32> {
        self.server.process.id()
    }

    /// Kills it.
    pub fn kill(&mut self) {
        self.server.kill();
    }

    /// Removes its data files; only while it does not run.
    pub fn lose_data(&self) -> anyhow::Result<()> {
        fs::remove_dir_all(&self.data)?;
        Ok(fs::create_dir_all(&self.data)?)
    }

    /// Starts it, if it does not run, and returns once it answers.
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        eventually(READY_WITHIN, "Redis starts", async || {
            self.server.process.start()?;
            self.ready().await
        })
        .await
    }

    /// Suspends it.
    pub fn suspend(&self) -> anyhow::Result<()> {
        self.server.process.suspend()
    }

    /// Resumes it.
    pub fn resume(&self) -> anyhow::Result<()> {
        self.server.process.resume()
    }

    /// Ends all faults.
    pub async fn heal(&mut self) -> anyhow::Result<()> {
        self.former = None;
        if self.server.process.runs() {
            self.resume()?;
        }
        self.restart().await?;
        let mut connection = self.connect().await?;
        Ok(cmd("CONFIG").arg(&["SET", "maxmemory", "0"]).query_async(&mut connection).await?)
    }

    /// The keys that should not exist ([`leftovers`]).
    pub async fn leftovers(&self) -> anyhow::Result<Vec<String>> {
        let mut connection = self.connect().await?;
        let channels = channels(&mut connection).await?;
        leftovers(&mut connection, &channels).await
    }
}

/// A connection to a server.
pub(super) async fn connect(url: &str) -> anyhow::Result<MultiplexedConnection> {
    let config = redis::AsyncConnectionConfig::new()
        .set_connection_timeout(Some(ANSWER_WITHIN))
        .set_response_timeout(Some(ANSWER_WITHIN));
    redis::Client::open(url)?
        .get_multiplexed_async_connection_with_config(&config)
        .await
        .context("Redis does not answer")
}

/// The channels that processes listen on at this server.
pub(super) async fn channels(
    connection: &mut MultiplexedConnection,
) -> anyhow::Result<Vec<Vec<u8>>> {
    Ok(cmd("PUBSUB").arg("CHANNELS").query_async(connection).await?)
}

/// The keys that should not exist: all keys that belong to no running process, except token
/// counters, questions, and waiters of processes that have gone, which end with their queue's
/// expiry.
pub(super) async fn leftovers(
    connection: &mut MultiplexedConnection,
    channels: &[Vec<u8>],
) -> anyhow::Result<Vec<String>> {
    let keys: Vec<Vec<u8>> = cmd("KEYS").arg("*").query_async(connection).await?;
    let mut left = Vec::new();
    for key in keys {
        if key.starts_with(b"\x01c") {
            continue;
        }
        let ttl_ms: i64 = cmd("PTTL").arg(&key).query_async(connection).await?;
        if ttl_ms == -2 || key.starts_with(b"\x01a") && ttl_ms > 0 {
            continue;
        }
        if key.starts_with(b"\x01q") && ttl_ms > 0 {
            let places: Vec<Vec<u8>> =
                cmd("ZRANGE").arg(&key).arg(0).arg(-1).query_async(connection).await?;
            if !places.iter().any(|place| is_of_living(place, channels)) {
                continue;
            }
        }
        let name = String::from_utf8_lossy(&key).escape_debug().to_string();
        left.push(format!("{name} (expires in {ttl_ms} ms)"));
    }
    Ok(left)
}

/// Starts a server on a free port. Also returns the folder of its data.
async fn launch(
    folder: &Path,
    number: u32,
    clock: &ClockShim,
    persists: bool,
) -> anyhow::Result<(Server, PathBuf)> {
    let data = folder.join(format!("data-{number}"));
    fs::create_dir_all(&data)?;
    let appends = if persists { "yes" } else { "no" };
    // An answered write is on the disk.
    let arguments = ["--appendonly", appends, "--appendfsync", "always"].into_iter();
    let arguments = arguments
        .chain(["--enable-debug-command", "local", "--repl-diskless-sync-delay", "0"])
        .map(Into::into);
    let variables = clock.variables();
    let setup = RedisSetup {
        arguments: arguments.collect(),
        variables: variables.map(|(name, value)| (name.into(), value.into())).into(),
        data: Some(data.clone()),
        log: Some(folder.join(format!("log-{number}"))),
    };
    let server = tokio::task::spawn_blocking(move || Server::launch(&setup)).await??;
    Ok((server, data))
}

async fn is_so(connection: &mut MultiplexedConnection, line: &str) -> anyhow::Result<()> {
    let info: String = cmd("INFO").arg("replication").query_async(connection).await?;
    anyhow::ensure!(info.lines().any(|it| it == line), "no {line} in {info}");
    Ok(())
}

/// Whether a place in a queue belongs to a live process: it begins with the 32
/// digits of the process, which name the channel that a live process is
/// subscribed to.
fn is_of_living(place: &[u8], channels: &[Vec<u8>]) -> bool {
    let Some(process) = place.get(..32) else { return true };
    channels.iter().any(|channel| channel.strip_prefix(b"\x01n") == Some(process))
}

//! A Redis server that is a master or a replica.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use leasehold_testkit::{
    proxy::{Conduct, Proxy},
    redis::{RedisServer, RedisSetup},
    wait::eventually,
};
use redis::{aio::MultiplexedConnection, cmd};

use super::redis::connect;

const READY_WITHIN: Duration = Duration::from_secs(15);

/// A server that clients and other servers reach through a proxy.
#[derive(Debug)]
pub(crate) struct Replicating {
    pub(super) server: RedisServer,
    pub(super) proxy: Proxy,
}

/// How a server with this number is started. Masters without replicas refuse writes if it
/// `demands_replicas`.
pub(super) fn setup(
    folder: &Path,
    number: usize,
    demands_replicas: bool,
    others: &[&str],
) -> anyhow::Result<RedisSetup> {
    let data: PathBuf = folder.join(format!("data-{number}"));
    fs::create_dir_all(&data)?;
    let mut arguments = vec!["--repl-diskless-sync-delay", "0"];
    if demands_replicas {
        arguments.extend(["--min-replicas-to-write", "1", "--min-replicas-max-lag", "2"]);
    }
    arguments.extend(others);
    Ok(RedisSetup {
        arguments: arguments.into_iter().map(Into::into).collect(),
        data: Some(data),
        log: Some(folder.join(format!("log-{number}"))),
        ..RedisSetup::default()
    })
}

impl Replicating {
    /// The port at which everybody reaches it.
    pub(super) fn port(&self) -> &str {
        self.proxy.address().rsplit_once(':').map_or("", |(_, port)| port)
    }

    /// A connection past its proxy.
    pub(super) async fn connect(&self) -> anyhow::Result<MultiplexedConnection> {
        connect(&self.server.url()).await
    }

    /// What it says of its replication.
    pub(super) async fn replication(&self) -> anyhow::Result<String> {
        let mut info = cmd("INFO");
        info.arg("replication");
        Ok(info.query_async(&mut self.connect().await?).await?)
    }

    /// Its process ID while it runs.
    pub(super) fn id(&self) -> Option<u32> {
        self.server.process.id()
    }

    /// Kills it: its data are lost.
    pub(crate) fn kill(&mut self) {
        self.server.kill();
    }

    /// Starts it after it was killed, and returns once it answers.
    pub(crate) async fn restart(&mut self) -> anyhow::Result<()> {
        // The port may not be free at once, and the process ends then.
        eventually(READY_WITHIN, "Redis answers", async || {
            self.server.process.start()?;
            self.replication().await.map(drop)
        })
        .await
    }

    /// Suspends it.
    pub(crate) fn suspend(&self) -> anyhow::Result<()> {
        self.server.process.suspend()
    }

    /// Resumes it.
    pub(crate) fn resume(&self) -> anyhow::Result<()> {
        self.server.process.resume()
    }

    /// Cuts it off from everybody.
    pub(crate) fn cut_off(&self) {
        self.proxy.set(Conduct::partition());
    }

    /// Ends that.
    pub(crate) fn reunite(&self) {
        self.proxy.heal();
    }
}

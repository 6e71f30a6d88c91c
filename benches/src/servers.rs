//! The servers that are measured: child processes that end with the run.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use leasehold_testkit::{leasehold::Leasehold, process::Process, redis::RedisServer};
use tempfile::TempDir;
use tokio::{
    net::UnixStream,
    time::{Instant, sleep},
};
use tonic::transport::Channel;

use crate::client::{over_socket, over_tcp};

/// The name of the sidecar's store.
pub(crate) const STORE: &str = "locks";
/// The app ID of the sidecar.
pub(crate) const APP_ID: &str = "bench";
const READY_WITHIN: Duration = Duration::from_secs(20);

/// A server of the component protocol in a folder of its own.
pub(crate) struct Component {
    process: Process,
    _dir: TempDir,
    pub(crate) socket: PathBuf,
}

impl Component {
    /// leasehold with one store.
    pub(crate) async fn leasehold(binary: &Path, store: &str) -> Result<Self> {
        Self::leasehold_with(binary, store, &[]).await
    }

    /// The same, with more flags.
    pub(crate) async fn leasehold_with(
        binary: &Path,
        store: &str,
        more: &[&str],
    ) -> Result<Self> {
        ensure!(
            binary.exists(),
            "{} is missing; build it first: cargo build --release --bin leasehold",
            binary.display()
        );
        let dir = tempfile::tempdir()?;
        let socket = dir.path().join(format!("{store}.sock"));
        let process = Process::new(binary)
            .arguments(["serve", "--store", store, "--socket-folder"])
            .arguments([dir.path()])
            .arguments(more);
        Self::start(process, dir, socket).await
    }

    /// The baseline, with these flags.
    pub(crate) async fn bare(over: &[&str]) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let socket = dir.path().join("bare.sock");
        let process = Process::new(std::env::current_exe()?)
            .arguments(["bare", "--socket"])
            .arguments([&socket])
            .arguments(over);
        Self::start(process, dir, socket).await
    }

    async fn start(mut process: Process, dir: TempDir, socket: PathBuf) -> Result<Self> {
        process.start()?;
        let give_up = Instant::now() + READY_WITHIN;
        while UnixStream::connect(&socket).await.is_err() {
            ensure!(Instant::now() < give_up, "{} does not answer", socket.display());
            sleep(Duration::from_millis(1)).await;
        }
        Ok(Self { process, _dir: dir, socket })
    }

    /// Its process ID.
    pub(crate) fn pid(&self) -> Result<u32> {
        self.process.id().context("the component has ended")
    }
}

/// leasehold's sidecar over Redis.
pub(crate) struct Sidecar {
    leasehold: Leasehold,
    _dir: TempDir,
    listens: Listens,
}

enum Listens {
    Port(u16),
    Socket(PathBuf),
}

impl Sidecar {
    /// On new TCP ports, with more flags.
    pub(crate) async fn on_ports(
        binary: &Path,
        redis: &RedisServer,
        flags: &[&str],
    ) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let mut all = vec!["--dapr-grpc-port", "0", "--dapr-http-port", "0"];
        all.extend(["--dapr-listen-addresses", "127.0.0.1"]);
        all.extend(flags);
        let mut leasehold = start_sidecar(binary, redis, &dir, &all)?;
        let (grpc, _) = leasehold.listening().await?;
        Ok(Self { leasehold, _dir: dir, listens: Listens::Port(grpc.port()) })
    }

    /// On Unix sockets.
    pub(crate) async fn on_sockets(binary: &Path, redis: &RedisServer) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let socket = dir.path().join(format!("dapr-{APP_ID}-grpc.socket"));
        let folder = dir.path().to_string_lossy().into_owned();
        let leasehold = start_sidecar(binary, redis, &dir, &["--unix-domain-socket", &folder])?;
        let sidecar = Self { leasehold, _dir: dir, listens: Listens::Socket(socket) };
        let give_up = Instant::now() + READY_WITHIN;
        while sidecar.channel().await.is_err() {
            ensure!(Instant::now() < give_up, "the sidecar does not answer");
            sleep(Duration::from_millis(5)).await;
        }
        Ok(sidecar)
    }

    /// A connection to its gRPC API.
    pub(crate) async fn channel(&self) -> Result<Channel> {
        Ok(match &self.listens {
            Listens::Port(port) => over_tcp(*port).await?,
            Listens::Socket(socket) => over_socket(socket).await?,
        })
    }

    /// Its process ID.
    pub(crate) fn pid(&self) -> Result<u32> {
        self.leasehold.process.id().context("the sidecar has ended")
    }
}

fn start_sidecar(
    binary: &Path,
    redis: &RedisServer,
    dir: &TempDir,
    flags: &[&str],
) -> Result<Leasehold> {
    write_component(dir.path(), "redis", &[("redisHost", &redis.address())])?;
    let process = Process::new(binary)
        .arguments(["sidecar", "--app-id", APP_ID, "--resources-path"])
        .arguments([dir.path()])
        .arguments(flags);
    Leasehold::launch(process)
}

/// Writes the YAML of a store of this type into a folder.
pub(crate) fn write_component(
    folder: &Path,
    kind: &str,
    properties: &[(&str, &str)],
) -> Result<()> {
    let item =
        |(name, value): &(&str, &str)| format!("  - {{name: {name}, value: \"{value}\"}}\n");
    let items: String = properties.iter().map(item).collect();
    let yaml = format!(
        "apiVersion: dapr.io/v1alpha1\nkind: Component\nmetadata: {{name: {STORE}}}\n\
         spec:\n  type: lock.{kind}\n  version: v1\n  metadata:\n{items}"
    );
    Ok(std::fs::write(folder.join("locks.yaml"), yaml)?)
}

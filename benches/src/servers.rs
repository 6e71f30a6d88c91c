//! Servers of a run: child processes that end with it.

use std::{
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Result, bail, ensure};
use tempfile::TempDir;
use tokio::{net::UnixStream, time::Instant};

const READY_WITHIN: Duration = Duration::from_secs(20);

/// A child process, killed when dropped.
pub(crate) struct Server(Child);

impl Server {
    fn start(command: &mut Command) -> Result<Self> {
        Ok(Self(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?))
    }

    /// Its process ID.
    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A Redis server of this run alone, without persistence.
pub(crate) struct Redis {
    _server: Server,
    _dir: TempDir,
    port: u16,
}

impl Redis {
    pub(crate) async fn start() -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let port = free_port()?;
        let server = Server::start(
            Command::new("redis-server")
                .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
                .args(["--loglevel", "warning", "--port", &port.to_string()])
                .arg("--dir")
                .arg(dir.path()),
        )?;
        ready(|| TcpStream::connect(("127.0.0.1", port)).is_ok()).await?;
        Ok(Self { _server: server, _dir: dir, port })
    }

    pub(crate) fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.host())
    }
}

/// A server of the component protocol in a folder of its own.
pub(crate) struct Component {
    pub(crate) server: Server,
    _dir: TempDir,
    pub(crate) socket: PathBuf,
}

impl Component {
    /// leasehold with one store.
    pub(crate) async fn leasehold(binary: &Path, store: &str) -> Result<Self> {
        ensure!(
            binary.exists(),
            "{} is missing; build it first: cargo build --release --bin leasehold",
            binary.display()
        );
        let dir = tempfile::tempdir()?;
        let socket = dir.path().join(format!("{store}.sock"));
        let mut command = Command::new(binary);
        command.args(["serve", "--store", store, "--socket-folder"]).arg(dir.path());
        Self::started(Server::start(command.stderr(Stdio::null()))?, dir, socket).await
    }

    /// The baseline over Redis, or the service that does nothing.
    pub(crate) async fn bare(redis: Option<&Redis>) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let socket = dir.path().join("bare.sock");
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["bare", "--socket"]).arg(&socket);
        if let Some(redis) = redis {
            command.args(["--redis", &redis.url()]);
        }
        Self::started(Server::start(&mut command)?, dir, socket).await
    }

    async fn started(server: Server, dir: TempDir, socket: PathBuf) -> Result<Self> {
        let give_up = Instant::now() + READY_WITHIN;
        while UnixStream::connect(&socket).await.is_err() {
            ensure!(Instant::now() < give_up, "{} does not answer", socket.display());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(Self { server, _dir: dir, socket })
    }
}

async fn ready(mut answers: impl FnMut() -> bool) -> Result<()> {
    let give_up = Instant::now() + READY_WITHIN;
    while !answers() {
        if Instant::now() >= give_up {
            bail!("a server did not answer within {READY_WITHIN:?}");
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

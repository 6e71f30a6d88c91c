//! Servers of a run: child processes that end with it.

use std::{
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
    time::Instant,
};
use tonic::transport::Channel;

use crate::client::{over_socket, over_tcp};

/// The name of the sidecar's store.
pub(crate) const STORE: &str = "locks";
/// The app that the sidecar is for.
pub(crate) const APP_ID: &str = "bench";
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

/// An etcd server of this run alone.
pub(crate) struct Etcd {
    pub(crate) server: Server,
    _dir: TempDir,
    port: u16,
    pub(crate) version: String,
}

impl Etcd {
    pub(crate) async fn start(binary: &Path) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let (port, peer_port) = (free_port()?, free_port()?);
        let (client, peer) =
            (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{peer_port}"));
        let server = Server::start(
            Command::new(binary)
                .arg("--data-dir")
                .arg(dir.path())
                .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
                .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
                .args(["--initial-cluster", &format!("default={peer}")])
                .stderr(Stdio::null()),
        )?;
        let mut etcd = Self { server, _dir: dir, port, version: String::new() };
        let give_up = Instant::now() + READY_WITHIN;
        etcd.version = loop {
            match etcd.get("/version").await {
                Ok(body) => break version(&body),
                Err(error) if Instant::now() >= give_up => return Err(error),
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        };
        Ok(etcd)
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Raft entries applied so far.
    pub(crate) async fn raft_writes(&self) -> Result<f64> {
        metric(&self.get("/metrics").await?, "etcd_server_proposals_applied_total")
    }

    /// gRPC messages received so far.
    pub(crate) async fn requests(&self) -> Result<f64> {
        metric(&self.get("/metrics").await?, "grpc_server_msg_received_total")
    }

    async fn get(&self, path: &str) -> Result<String> {
        let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", self.port)).await?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await?;
        let mut body = String::new();
        stream.read_to_string(&mut body).await?;
        Ok(body)
    }
}

/// The sum of a metric over all its labels.
fn metric(body: &str, name: &str) -> Result<f64> {
    let mut sum = 0.0;
    for line in body.lines().filter(|line| line.starts_with(name)) {
        sum += line.rsplit(' ').next().unwrap_or_default().parse::<f64>()?;
    }
    Ok(sum)
}

fn version(body: &str) -> String {
    body.split("etcdserver\":\"")
        .nth(1)
        .and_then(|rest| rest.split('"').next())
        .unwrap_or("of an unknown version")
        .to_owned()
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

    /// The baseline, as its flags say.
    pub(crate) async fn bare(over: &[&str]) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let socket = dir.path().join("bare.sock");
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["bare", "--socket"]).arg(&socket).args(over);
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

/// leasehold's sidecar over Redis.
pub(crate) struct Sidecar {
    pub(crate) server: Server,
    _dir: TempDir,
    listens: Listens,
}

enum Listens {
    Port(u16),
    Socket(PathBuf),
}

impl Sidecar {
    /// On TCP ports of its own, with more flags.
    pub(crate) async fn on_ports(binary: &Path, redis: &Redis, flags: &[&str]) -> Result<Self> {
        let (grpc, http) = (free_port()?, free_port()?);
        let (grpc_text, http_text) = (grpc.to_string(), http.to_string());
        let mut all = vec!["--dapr-grpc-port", &grpc_text, "--dapr-http-port", &http_text];
        all.extend(["--dapr-listen-addresses", "127.0.0.1"]);
        all.extend(flags);
        Self::start(binary, redis, tempfile::tempdir()?, &all, Listens::Port(grpc)).await
    }

    /// On Unix sockets.
    pub(crate) async fn on_sockets(binary: &Path, redis: &Redis) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let socket = dir.path().join(format!("dapr-{APP_ID}-grpc.socket"));
        let folder = dir.path().to_string_lossy().into_owned();
        let flags = ["--unix-domain-socket", &folder];
        Self::start(binary, redis, dir, &flags, Listens::Socket(socket)).await
    }

    async fn start(
        binary: &Path,
        redis: &Redis,
        dir: TempDir,
        flags: &[&str],
        listens: Listens,
    ) -> Result<Self> {
        let yaml = format!(
            "apiVersion: dapr.io/v1alpha1\nkind: Component\nmetadata: {{name: {STORE}}}\n\
             spec:\n  type: lock.redis\n  version: v1\n  metadata:\n  \
             - {{name: redisHost, value: \"{}\"}}\n",
            redis.host()
        );
        std::fs::write(dir.path().join("locks.yaml"), yaml)?;
        let mut command = Command::new(binary);
        command.args(["sidecar", "--app-id", APP_ID, "--resources-path"]).arg(dir.path());
        let server = Server::start(command.args(flags).stderr(Stdio::null()))?;
        let sidecar = Self { server, _dir: dir, listens };
        let give_up = Instant::now() + READY_WITHIN;
        while sidecar.channel().await.is_err() {
            ensure!(Instant::now() < give_up, "the sidecar does not answer");
            tokio::time::sleep(Duration::from_millis(5)).await;
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

/// A port that nobody listens on, from below those that the system hands out by itself:
/// else a connection could take it before the server does.
fn free_port() -> Result<u16> {
    let mut ports = std::iter::repeat_with(|| fastrand::u16(10_000..32_000)).take(1_000);
    ports
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .context("no free port between 10000 and 32000")
}

//! A sidecar with its store and a proxy, for tests in any language.
//!
//! Starts the store's server, `leasehold sidecar` with the store `lockstore` and the app ID
//! `app`, and a proxy before the sidecar's gRPC port. Prints one line of JSON when
//! everything answers:
//!
//! ```json
//! {"grpcPort":4001,"httpPort":4002,"proxyPort":4003,"redisPort":null}
//! ```
//!
//! Then it reads commands from its standard input, one on each line, and answers each with a
//! line: `ok`, or `error: ` and the reason. Everything ends when its standard input does, and
//! at SIGTERM and SIGINT. SIGKILL leaves its child processes running.
//!
//! | command | what it does |
//! |---|---|
//! | `suspend`, `resume` | SIGSTOP and SIGCONT for the sidecar |
//! | `kill` | SIGKILL for the sidecar |
//! | `stop` | SIGTERM for the sidecar; answered once it has ended |
//! | `start` | starts the sidecar again, on the same ports |
//! | `stall`, `heal` | the proxy keeps bytes back in both directions, or lets them pass |
//! | `cut` | the proxy ends its connections |
//! | `vanish` | the proxy's connections fall silent for ever, and new ones are fine |
#![allow(clippy::print_stdout, reason = "its standard output is its interface")]

use std::{env, fs, path::Path, time::Duration};

use anyhow::{Context as _, bail};
use leasehold_testkit::{
    etcd::{EtcdServer, Version},
    leasehold::{Leasehold, program},
    ports::free_port,
    process::Process,
    proxy::{Conduct, Proxy},
    redis::RedisServer,
    wait::eventually,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines, Stdin},
    net::TcpStream,
    signal::{
        ctrl_c,
        unix::{SignalKind, signal},
    },
};

const USAGE: &str = "usage: leasehold-test-sidecar memory|redis|etcd [SIDECAR-ARGUMENT...]
LEASEHOLD names the leasehold binary; without it, the one beside this program is used.
Further arguments, such as --app-port, are passed on to the sidecar.";
/// How long a server may take to start, or to end.
const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = env::args().skip(1);
    let backend = arguments.next().context(USAGE)?;
    let mut setup = Setup::start(&backend, arguments.collect()).await?;
    println!("{}", setup.ports()?);
    let mut commands = BufReader::new(tokio::io::stdin()).lines();
    let mut terminated = signal(SignalKind::terminate())?;
    tokio::select! {
        ended = setup.serve(&mut commands) => ended,
        // Its child processes must not outlive it.
        _ = terminated.recv() => Ok(()),
        interrupted = ctrl_c() => Ok(interrupted?),
    }
}

/// The server of a store; it ends when this is dropped.
enum Server {
    Memory,
    Redis(RedisServer),
    Etcd(Box<EtcdServer>),
}

impl Server {
    async fn start(backend: &str) -> anyhow::Result<Self> {
        Ok(match backend {
            "memory" => Self::Memory,
            "redis" => Self::Redis(RedisServer::start()),
            "etcd" => Self::Etcd(Box::new(EtcdServer::start(Version::V34).await)),
            other => bail!("there is no backend {other:?}\n{USAGE}"),
        })
    }

    /// The component YAML of the store.
    fn component(&self) -> String {
        let (kind, name, value) = match self {
            Self::Memory => ("memory", "ttl", "30s".to_owned()),
            Self::Redis(server) => {
                ("redis", "redisHost", format!("127.0.0.1:{}", server.port()))
            }
            Self::Etcd(server) => ("etcd", "endpoints", server.address().to_owned()),
        };
        format!(
            "apiVersion: dapr.io/v1alpha1\nkind: Component\nmetadata: {{ name: lockstore }}\n\
             spec:\n  type: lock.{kind}\n  version: v1\n  metadata:\n  - name: {name}\n    \
             value: \"{value}\"\n"
        )
    }

    fn redis_port(&self) -> Option<u16> {
        if let Self::Redis(server) = self { Some(server.port()) } else { None }
    }
}

/// The sidecar with its store and its proxy.
struct Setup {
    sidecar: Leasehold,
    proxy: Proxy,
    server: Server,
    grpc_port: u16,
    http_port: u16,
    _components: TempDir,
}

impl Setup {
    async fn start(backend: &str, arguments: Vec<String>) -> anyhow::Result<Self> {
        let server = Server::start(backend).await?;
        let components = tempfile::tempdir()?;
        fs::write(components.path().join("lockstore.yaml"), server.component())?;
        let (grpc_port, http_port) = (free_port(), free_port());
        let sidecar = sidecar(components.path(), grpc_port, http_port, &arguments)?;
        let proxy = Proxy::start(format!("127.0.0.1:{grpc_port}")).await;
        let setup =
            Self { sidecar, proxy, server, grpc_port, http_port, _components: components };
        setup.answers().await?;
        Ok(setup)
    }

    /// Waits until the sidecar listens.
    async fn answers(&self) -> anyhow::Result<()> {
        eventually(PATIENCE, "the sidecar listens", async || {
            for port in [self.grpc_port, self.http_port] {
                TcpStream::connect(("127.0.0.1", port)).await?;
            }
            anyhow::Ok(())
        })
        .await
        .with_context(|| self.sidecar.log())
    }

    fn ports(&self) -> anyhow::Result<Value> {
        let (_, proxy_port) = self.proxy.address().rsplit_once(':').context("no port")?;
        Ok(json!({
            "grpcPort": self.grpc_port,
            "httpPort": self.http_port,
            "proxyPort": proxy_port.parse::<u16>()?,
            "redisPort": self.server.redis_port(),
        }))
    }

    /// Carries out commands until the input ends.
    async fn serve(&mut self, commands: &mut Lines<BufReader<Stdin>>) -> anyhow::Result<()> {
        while let Some(command) = commands.next_line().await? {
            match self.carry_out(command.trim()).await {
                Ok(()) => println!("ok"),
                Err(error) => println!("error: {}", format!("{error:#}").replace('\n', " ")),
            }
        }
        Ok(())
    }

    async fn carry_out(&mut self, command: &str) -> anyhow::Result<()> {
        let process = &mut self.sidecar.process;
        match command {
            "suspend" => process.suspend()?,
            "resume" => process.resume()?,
            "kill" => process.kill(),
            "stop" => drop(process.terminate(PATIENCE).await?),
            "start" => {
                process.start()?;
                self.answers().await?;
            }
            "stall" => self.proxy.set(Conduct::partition()),
            "heal" => self.proxy.heal(),
            "cut" => self.proxy.cut(),
            "vanish" => self.proxy.vanish(),
            other => bail!("there is no command {other:?}"),
        }
        Ok(())
    }
}

fn sidecar(
    components: &Path,
    grpc_port: u16,
    http_port: u16,
    arguments: &[String],
) -> anyhow::Result<Leasehold> {
    let process = Process::new(program())
        .arguments(["sidecar", "--app-id", "app", "--dapr-listen-addresses", "127.0.0.1"])
        .arguments(["--dapr-grpc-port", &grpc_port.to_string()])
        .arguments(["--dapr-http-port", &http_port.to_string()])
        .arguments([Path::new("--resources-path"), components])
        .arguments(arguments);
    Leasehold::launch(process)
}

//! Lock and unlock through the Redis front: under daprd's built-in component beside the same
//! component on Redis itself, and by a client of Redis beside the component's socket.

use std::{net::SocketAddr, path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use leasehold_proto::dapr::dapr_client::DaprClient;
use leasehold_testkit::{
    etcd::EtcdServer, ports::free_port, process::Process, redis::RedisServer,
};
use redis::{Script, aio::MultiplexedConnection};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::{
    Options,
    client::{Client, over_tcp},
    cycles,
    report::{Figures, median, median_of, row, table},
    servers::{Component, STORE, write_component},
    sidecar::Dapr,
    stores::version,
};

const READY_WITHIN: Duration = Duration::from_secs(30);

/// A server of a protocol, on a port.
struct Server {
    _process: Process,
    _dir: TempDir,
    port: u16,
}

impl Server {
    /// A front on a store of this type.
    async fn front(binary: &Path, kind: &str, properties: &[(&str, &str)]) -> Result<Self> {
        let port = free_port();
        Self::start(kind, properties, port, |folder| {
            Process::new(binary)
                .arguments(["redis-front", "--store", STORE, "--listen"])
                .arguments([format!("127.0.0.1:{port}")])
                .arguments([Path::new("--resources-path"), folder])
        })
        .await
    }

    /// daprd with its built-in component on this server.
    async fn daprd(binary: &Path, redis: &str) -> Result<Self> {
        ensure!(
            binary.exists(),
            "{} is missing; build it: conformance/daprd/build --stock",
            binary.display()
        );
        let port = free_port();
        Self::start("redis", &[("redisHost", redis)], port, |folder| {
            Process::new(binary)
                .arguments(["--app-id", "bench", "--dapr-grpc-port", &port.to_string()])
                .arguments(["--dapr-http-port", &free_port().to_string()])
                .arguments(["--dapr-internal-grpc-port", &free_port().to_string()])
                .arguments(["--dapr-listen-addresses", "127.0.0.1"])
                .arguments(["--enable-metrics=false", "--log-level", "error"])
                .arguments([Path::new("--resources-path"), folder])
                .variable("DAPR_COMPONENTS_SOCKETS_FOLDER", folder.join("sockets"))
        })
        .await
    }

    async fn start(
        kind: &str,
        properties: &[(&str, &str)],
        port: u16,
        process: impl FnOnce(&Path) -> Process,
    ) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        write_component(dir.path(), kind, properties)?;
        let mut process = process(dir.path());
        process.start()?;
        let give_up = Instant::now() + READY_WITHIN;
        while tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            ensure!(Instant::now() < give_up, "nothing listens on port {port}");
            sleep(Duration::from_millis(5)).await;
        }
        Ok(Self { _process: process, _dir: dir, port })
    }

    fn address(&self) -> String {
        SocketAddr::from(([127, 0, 0, 1], self.port)).to_string()
    }

    async fn dapr(&self) -> Result<Dapr> {
        let give_up = Instant::now() + READY_WITHIN;
        loop {
            let client = Dapr::Alpha1(DaprClient::new(over_tcp(self.port).await?));
            let tried = cycles::measure(&client, 1, Duration::from_millis(1)).await;
            // daprd listens before its components are ready.
            match tried {
                Ok(_) => return Ok(client),
                Err(error) if Instant::now() >= give_up => return Err(error),
                Err(_) => sleep(Duration::from_millis(50)).await,
            }
        }
    }
}

/// A client of Redis with a connection for each caller, as in most libraries.
struct Resp {
    client: redis::Client,
    connection: Option<MultiplexedConnection>,
    unlock: Script,
}

impl Resp {
    fn new(address: &str) -> Result<Self> {
        let unlock = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
                      return redis.call('DEL', KEYS[1]) else return 0 end";
        let client = redis::Client::open(format!("redis://{address}/"))?;
        Ok(Self { client, connection: None, unlock: Script::new(unlock) })
    }
}

impl Clone for Resp {
    fn clone(&self) -> Self {
        Self { client: self.client.clone(), connection: None, unlock: self.unlock.clone() }
    }
}

impl Resp {
    async fn connection(&mut self) -> Result<&mut MultiplexedConnection> {
        if self.connection.is_none() {
            self.connection = Some(self.client.get_multiplexed_async_connection().await?);
        }
        self.connection.as_mut().context("connected just now")
    }
}

impl cycles::Api for Resp {
    async fn lock(&mut self, resource: &str) -> Result<String> {
        let mut set = redis::cmd("SET");
        set.arg(resource).arg(resource).arg("NX").arg("PX").arg(30_000);
        let taken: Option<String> = set.query_async(self.connection().await?).await?;
        ensure!(taken.is_some(), "{resource} is held");
        Ok(resource.into())
    }

    async fn unlock(&mut self, resource: &str, proof: String) -> Result<()> {
        let unlock = self.unlock.clone();
        let mut call = unlock.key(resource);
        let ended: i64 = call.arg(proof).invoke_async(self.connection().await?).await?;
        ensure!(ended == 1, "{resource} was not unlocked");
        Ok(())
    }
}

/// Both comparisons.
pub(crate) async fn compare(options: &Options, daprd: &Path) -> Result<()> {
    through_daprd(options, daprd).await?;
    beside_the_socket(options).await
}

async fn through_daprd(options: &Options, daprd: &Path) -> Result<()> {
    table(
        "Stock daprd, alpha1: cycles/s (medians)",
        &["callers", "on Redis", "on the front on Redis", "front/Redis"],
    );
    let redis = RedisServer::start();
    let host = redis.address();
    let front = Server::front(&options.leasehold, "redis", &[("redisHost", &host)]).await?;
    let (on_redis, on_front) =
        (Server::daprd(daprd, &host).await?, Server::daprd(daprd, &front.address()).await?);
    let (on_redis, on_front) =
        ((on_redis.dapr().await?, on_redis), (on_front.dapr().await?, on_front));
    for &callers in &options.callers {
        let (mut theirs, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..options.rounds {
            theirs.push(cycles::measure(&on_redis.0, callers, options.duration()).await?);
            ours.push(cycles::measure(&on_front.0, callers, options.duration()).await?);
        }
        compared(callers, &theirs, &ours);
    }
    Ok(())
}

async fn beside_the_socket(options: &Options) -> Result<()> {
    let redis = RedisServer::start();
    let host = redis.address();
    socket_and_front(options, "Redis", "redis", &[("redisHost", &host)]).await?;
    for binary in &options.etcd {
        let etcd = EtcdServer::launch(binary, &[]).await?;
        let title = format!("etcd {}", version(&etcd).await?);
        socket_and_front(options, &title, "etcd", &[("endpoints", etcd.address())]).await?;
    }
    Ok(())
}

async fn socket_and_front(
    options: &Options,
    title: &str,
    kind: &str,
    properties: &[(&str, &str)],
) -> Result<()> {
    table(
        &format!("{title}: a client of Redis at the front, cycles/s (medians)"),
        &["callers", "the component's socket", "the front", "front/socket"],
    );
    let component = Component::leasehold(&options.leasehold, kind).await?;
    let front = Server::front(&options.leasehold, kind, properties).await?;
    let client = Client::connect(&component.socket, properties).await?;
    let resp = Resp::new(&front.address())?;
    for &callers in &options.callers {
        let (mut theirs, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..options.rounds {
            theirs.push(cycles::measure(&client, callers, options.duration()).await?);
            ours.push(cycles::measure(&resp, callers, options.duration()).await?);
        }
        compared(callers, &theirs, &ours);
    }
    Ok(())
}

fn compared(callers: usize, theirs: &[Figures], ours: &[Figures]) {
    let ratios =
        ours.iter().zip(theirs).map(|(ours, theirs)| ours.rate / theirs.rate).collect();
    row(&[
        callers.to_string(),
        format!("{:.0}", median_of(theirs, |figures| figures.rate)),
        format!("{:.0}", median_of(ours, |figures| figures.rate)),
        format!("{:.2}", median(ratios)),
    ]);
}

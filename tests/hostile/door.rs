//! Where a process is spoken to.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use tempfile::TempDir;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite},
    net::{TcpStream, UnixStream},
    time::{Instant, sleep, timeout},
};

use crate::support::leasehold::Leasehold;

/// Longer than any of the limits on slow peers, on a machine that is busy.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// What is attacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// The component's socket.
    Component,
    /// The sidecar's gRPC port.
    Grpc,
    /// The sidecar's HTTP port.
    Http,
}

/// A connection of either kind.
pub trait Wire: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Wire for T {}

/// A process of leasehold over a memory store.
pub struct Target {
    pub process: Leasehold,
    pub door: Door,
    place: Place,
    _yaml: TempDir,
}

#[derive(Clone)]
pub enum Place {
    Socket(PathBuf),
    Port(SocketAddr),
}

impl Target {
    pub async fn start(door: Door) -> Self {
        let yaml = tempfile::tempdir().unwrap();
        if door == Door::Component {
            let process = Leasehold::serve("memory", &[]);
            let place = Place::Socket(process.socket("memory"));
            return Self { process, door, place, _yaml: yaml };
        }
        let component = "apiVersion: dapr.io/v1alpha1\nkind: Component\nmetadata: {name: mem}\n\
                         spec: {type: lock.memory, version: v1}\n";
        std::fs::write(yaml.path().join("mem.yaml"), component).unwrap();
        let process = Leasehold::spawn(&[
            "sidecar",
            "--app-id",
            "app",
            "--dapr-listen-addresses",
            "127.0.0.1",
            "--dapr-grpc-port",
            "0",
            "--dapr-http-port",
            "0",
            "--resources-path",
            yaml.path().to_str().unwrap(),
        ]);
        let give_up = Instant::now() + PATIENCE;
        let (grpc, http) = loop {
            if let [grpc, http] = *listening(&process.log()) {
                break (grpc, http);
            }
            assert!(Instant::now() < give_up, "it does not listen: {}", process.log());
            sleep(Duration::from_millis(5)).await;
        };
        let place = Place::Port(if door == Door::Grpc { grpc } else { http });
        Self { process, door, place, _yaml: yaml }
    }

    pub fn place(&self) -> Place {
        self.place.clone()
    }

    pub async fn connect(&self) -> Box<dyn Wire> {
        self.place.connect().await
    }
}

impl Place {
    pub async fn connect(&self) -> Box<dyn Wire> {
        match self {
            Self::Socket(path) => Box::new(UnixStream::connect(path).await.unwrap()),
            Self::Port(address) => Box::new(TcpStream::connect(address).await.unwrap()),
        }
    }
}

/// The addresses of the log, gRPC's first. A line that is still being written
/// has no end yet.
fn listening(log: &str) -> Vec<SocketAddr> {
    let ended = log.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    ended
        .filter_map(|line| line.trim_end().split_once("listening address="))
        .map(|(_, address)| address.parse().unwrap())
        .collect()
}

/// Reads until the other side ends the connection, which it must; what it said.
pub async fn until_closed(wire: &mut (dyn Wire + '_)) -> Vec<u8> {
    let mut said = Vec::new();
    let ended = timeout(PATIENCE, async {
        let mut part = [0; 4096];
        while let Ok(count @ 1..) = wire.read(&mut part).await {
            said.extend_from_slice(&part[..count]);
            said.truncate(64 * 1024);
        }
    });
    assert!(ended.await.is_ok(), "still connected after {PATIENCE:?}");
    said
}

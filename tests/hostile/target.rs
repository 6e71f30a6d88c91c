//! The process that is attacked, and connections to it.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use leasehold_testkit::leasehold::Leasehold;
use tempfile::TempDir;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite},
    net::{TcpStream, UnixStream},
    time::timeout,
};

/// Longer than any of the limits on slow peers, on a machine that is busy.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The attacked interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interface {
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
    pub interface: Interface,
    endpoint: Address,
    _yaml: TempDir,
}

#[derive(Clone)]
pub enum Address {
    Socket(PathBuf),
    Port(SocketAddr),
}

impl Target {
    pub async fn start(interface: Interface) -> Self {
        let yaml = tempfile::tempdir().unwrap();
        if interface == Interface::Component {
            let process = Leasehold::serve("memory", &[]);
            let endpoint = Address::Socket(process.socket("memory"));
            return Self { process, interface, endpoint, _yaml: yaml };
        }
        let component = "apiVersion: dapr.io/v1alpha1\nkind: Component\nmetadata: {name: mem}\n\
                         spec: {type: lock.memory, version: v1}\n";
        std::fs::write(yaml.path().join("mem.yaml"), component).unwrap();
        let mut process = Leasehold::sidecar(yaml.path(), &[], &[]);
        let (grpc, http) = process.listening().await.unwrap();
        let endpoint = Address::Port(if interface == Interface::Grpc { grpc } else { http });
        Self { process, interface, endpoint, _yaml: yaml }
    }

    pub fn endpoint(&self) -> Address {
        self.endpoint.clone()
    }

    pub async fn connect(&self) -> Box<dyn Wire> {
        self.endpoint.connect().await
    }
}

impl Address {
    pub async fn connect(&self) -> Box<dyn Wire> {
        match self {
            Self::Socket(path) => Box::new(UnixStream::connect(path).await.unwrap()),
            Self::Port(address) => Box::new(TcpStream::connect(address).await.unwrap()),
        }
    }
}

/// Reads until the other side ends the connection, which it must. Returns what it sent.
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

//! The addresses and sockets that the sidecar listens on.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    path::Path,
};

use leasehold_net::{
    listener::Listener,
    socket::{Socket, SocketError},
};
use tokio::net::TcpListener;
use tracing::info;

use super::{
    api::browsers::Reach,
    options::{Listen, Options},
};

/// Why the sidecar cannot listen; names the flag to change.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// An address could not be bound.
    #[error(
        "cannot listen on {address}: {error}; choose another --dapr-grpc-port, \
         --dapr-http-port or --dapr-listen-addresses"
    )]
    Tcp {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        error: io::Error,
    },
    /// This machine has none of the addresses.
    #[error("this machine has none of the --dapr-listen-addresses")]
    NoAddress,
    /// A socket could not be opened.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The system does not say where a listener listens.
    #[error("the address of a listener is not known: {0}")]
    Address(io::Error),
}

/// What each API listens on.
pub(super) struct Listeners {
    pub(super) grpc: Vec<Listener>,
    pub(super) http: Vec<Listener>,
}

impl Listeners {
    /// Opens what the options name.
    pub(super) async fn open(options: &Options) -> Result<Self, ListenError> {
        Ok(match &options.listen {
            Listen::Ports { addresses, grpc, http } => Self {
                grpc: tcp(addresses, *grpc, "gRPC").await?,
                http: tcp(addresses, *http, "HTTP").await?,
            },
            Listen::Sockets(folder) => {
                let path = |api| folder.join(format!("dapr-{}-{api}.socket", options.app_id));
                Self {
                    grpc: vec![unix(&path("grpc"), "gRPC").await?],
                    http: vec![unix(&path("http"), "HTTP").await?],
                }
            }
        })
    }

    /// The widest reach of the listeners.
    pub(super) fn reach(&self) -> Result<Reach, ListenError> {
        let mut reach = Reach::Processes;
        for listener in self.grpc.iter().chain(&self.http) {
            let Some(address) = listener.address().map_err(ListenError::Address)? else {
                continue;
            };
            if !address.ip().to_canonical().is_loopback() {
                return Ok(Reach::Network);
            }
            reach = Reach::Machine;
        }
        Ok(reach)
    }
}

/// Binds a port on every address. An address that this machine does not have (an IPv6
/// loopback, for instance) is left out, as long as one remains.
async fn tcp(addresses: &[IpAddr], port: u16, api: &str) -> Result<Vec<Listener>, ListenError> {
    let mut listeners = Vec::new();
    for address in addresses {
        let address = SocketAddr::new(*address, port);
        match TcpListener::bind(address).await {
            Ok(listener) => {
                let address = listener.local_addr().map_err(ListenError::Address)?;
                info!(%address, api, "listening");
                listeners.push(Listener::Tcp(listener));
            }
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
                info!(%address, api, "this machine does not have the address");
            }
            Err(error) => return Err(ListenError::Tcp { address, error }),
        }
    }
    if listeners.is_empty() { Err(ListenError::NoAddress) } else { Ok(listeners) }
}

async fn unix(path: &Path, api: &str) -> Result<Listener, ListenError> {
    let socket = Socket::open(path, None, "--unix-domain-socket").await?;
    info!(socket = %path.display(), api, "listening");
    Ok(Listener::Unix(socket))
}

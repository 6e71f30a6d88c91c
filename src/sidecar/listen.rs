//! The addresses and sockets that the sidecar listens on.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    path::Path,
};

use tokio::net::{TcpListener, UnixListener};
use tracing::info;

use crate::net::socket::{Socket, SocketError, SocketFile};

/// Why the sidecar cannot listen; names the flag to change.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// An address is not to be had.
    #[error(
        "cannot listen on {address}: {error}; choose another --dapr-grpc-port, \
         --dapr-http-port or --dapr-listen-addresses"
    )]
    Tcp {
        /// Which.
        address: SocketAddr,
        /// Why.
        error: io::Error,
    },
    /// This machine has none of the addresses.
    #[error("this machine has none of the --dapr-listen-addresses")]
    NoAddress,
    /// A socket is not to be had.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// A listener does not say where it listens.
    #[error("the address of a listener is not known: {0}")]
    Address(io::Error),
}

/// A bound listener.
#[derive(Debug)]
pub(super) enum Listener {
    Tcp(TcpListener),
    Unix {
        /// Removes the socket's file at the end.
        _file: SocketFile,
        listener: UnixListener,
    },
}

/// Binds a port on every address. One that this machine does not have (an IPv6
/// loopback, say) is left out, as long as one remains.
pub(super) async fn tcp(addresses: &[IpAddr], port: u16) -> Result<Vec<Listener>, ListenError> {
    let mut listeners = Vec::new();
    for address in addresses {
        let address = SocketAddr::new(*address, port);
        match TcpListener::bind(address).await {
            Ok(listener) => {
                let address = listener.local_addr().map_err(ListenError::Address)?;
                info!(%address, "listening");
                listeners.push(Listener::Tcp(listener));
            }
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
                info!(%address, "this machine does not have the address");
            }
            Err(error) => return Err(ListenError::Tcp { address, error }),
        }
    }
    if listeners.is_empty() { Err(ListenError::NoAddress) } else { Ok(listeners) }
}

/// Binds a Unix socket. A dead one's file is replaced; a live server's, and
/// what is no socket, stays.
pub(super) async fn unix(path: &Path) -> Result<Listener, ListenError> {
    let (file, listener) = Socket::open(path, None, "--unix-domain-socket").await?.into_parts();
    info!(socket = %path.display(), "listening");
    Ok(Listener::Unix { _file: file, listener })
}

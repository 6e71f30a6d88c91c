//! What a front listens on.

use std::{io, net::SocketAddr};

use leasehold_net::{
    listener::Listener,
    socket::{Socket, SocketError},
};
use tokio::net::TcpListener;
use tracing::info;

use super::options::FrontOptions;

/// Why a front cannot listen; names the option to change.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address could not be bound.
    #[error("the Redis front cannot listen on {address}: {error}; choose another --listen")]
    Tcp {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        error: io::Error,
    },
    /// The socket could not be opened.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The system does not say where a listener listens.
    #[error("the address of a listener is not known: {0}")]
    Address(io::Error),
}

/// Opens what the options name.
pub(super) async fn open(options: &FrontOptions) -> Result<Vec<Listener>, ListenError> {
    let mut listeners = Vec::new();
    if let Some(address) = options.listen {
        let tcp = TcpListener::bind(address).await;
        let listener = tcp.map_err(|error| ListenError::Tcp { address, error })?;
        let address = listener.local_addr().map_err(ListenError::Address)?;
        info!(%address, store = options.store, "listening for clients of Redis");
        listeners.push(Listener::Tcp(listener));
    }
    if let Some(path) = &options.unix_socket {
        let socket = Socket::open(path, None, "--unix-socket").await?;
        info!(socket = %path.display(), store = options.store, "listening for clients of Redis");
        listeners.push(Listener::Unix(socket));
    }
    Ok(listeners)
}

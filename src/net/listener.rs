//! What a server listens on.

use std::{
    io,
    net::SocketAddr,
    os::fd::{AsRawFd, RawFd},
    path::Path,
    time::Duration,
};

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tracing::debug;

use super::socket::{Socket, SocketError};

/// The interval of TCP keep-alive probes, as in Go.
const PROBE_INTERVAL: Duration = Duration::from_secs(15);

/// Why a server cannot listen; names the flags to change.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// A port could not be opened.
    #[error("cannot listen on {address}: {error}; choose another {flags}")]
    Tcp {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        error: io::Error,
        /// The flags that name the address.
        flags: &'static str,
    },
    /// A socket could not be opened.
    #[error(transparent)]
    Socket(#[from] SocketError),
}

/// A port or a Unix socket. Nothing listens there any more once it is dropped.
#[derive(Debug)]
pub enum Listener {
    /// A port, and its address.
    Tcp(TcpListener, SocketAddr),
    /// A Unix socket.
    Unix(Socket),
}

/// An accepted connection.
#[derive(Debug)]
pub enum Stream {
    /// Over TCP.
    Tcp(TcpStream),
    /// Over a Unix socket.
    Unix(UnixStream),
}

impl Stream {
    /// Sends a few bytes to a peer that was just accepted, if they fit into its buffer.
    pub(super) fn send_now(&self, bytes: &[u8]) {
        let _ = match self {
            Self::Tcp(stream) => SockRef::from(stream).send(bytes),
            Self::Unix(stream) => SockRef::from(stream).send(bytes),
        };
    }
}

impl AsRawFd for Stream {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            Self::Tcp(stream) => stream.as_raw_fd(),
            Self::Unix(stream) => stream.as_raw_fd(),
        }
    }
}

impl Listener {
    /// Opens a port; 0 lets the system choose. `flags` are those that name it on the command line.
    pub async fn bind(address: SocketAddr, flags: &'static str) -> Result<Self, ListenError> {
        let bound = TcpListener::bind(address).await;
        let bound = bound.and_then(|listener| Ok((listener.local_addr()?, listener)));
        match bound {
            Ok((address, listener)) => Ok(Self::Tcp(listener, address)),
            Err(error) => Err(ListenError::Tcp { address, error, flags }),
        }
    }

    /// The address, if it is a port.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(_, address) => Some(*address),
            Self::Unix(_) => None,
        }
    }

    /// The path, if it is a Unix socket.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Tcp(..) => None,
            Self::Unix(socket) => Some(socket.path()),
        }
    }

    /// Accepts the next connection. No connection is lost if this is cancelled.
    pub(super) async fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp(listener, _) => {
                let (stream, _) = listener.accept().await?;
                let _ = stream.set_nodelay(true);
                keep_alive(&stream);
                Ok(Stream::Tcp(stream))
            }
            Self::Unix(socket) => socket.accept().await.map(Stream::Unix),
        }
    }
}

/// Lets the system notice a peer whose machine has vanished.
fn keep_alive(stream: &TcpStream) {
    let probes = TcpKeepalive::new().with_time(PROBE_INTERVAL).with_interval(PROBE_INTERVAL);
    if let Err(error) = SockRef::from(stream).set_tcp_keepalive(&probes) {
        debug!(%error, "a connection is without TCP keep-alive");
    }
}

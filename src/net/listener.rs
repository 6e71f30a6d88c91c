//! What a server listens on.

use std::{
    io,
    net::SocketAddr,
    os::fd::{AsRawFd, RawFd},
    time::Duration,
};

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tracing::debug;

use super::socket::Socket;

/// The interval of TCP keep-alive probes, as in Go.
const PROBE_INTERVAL: Duration = Duration::from_secs(15);

/// A port or a Unix socket. Nothing listens there any more once it is dropped.
#[derive(Debug)]
pub enum Listener {
    /// A port.
    Tcp(TcpListener),
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
    /// The address, if it is a port.
    pub fn address(&self) -> io::Result<Option<SocketAddr>> {
        match self {
            Self::Tcp(listener) => listener.local_addr().map(Some),
            Self::Unix(_) => Ok(None),
        }
    }

    /// Accepts the next connection. No connection is lost if this is cancelled.
    pub(super) async fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp(listener) => {
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

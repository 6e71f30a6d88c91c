//! The addresses and sockets that the sidecar listens on.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tracing::info;

/// A bound listener.
#[derive(Debug)]
pub(super) enum Listener {
    Tcp(TcpListener),
    Unix {
        listener: UnixListener,
        /// Removes the socket's file at the end.
        _file: SocketFile,
    },
}

/// A socket's file, removed when dropped.
#[derive(Debug)]
pub(super) struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Binds a port on every address. One that this machine does not have (an IPv6
/// loopback, say) is left out, as long as one remains.
pub(super) async fn tcp(addresses: &[IpAddr], port: u16) -> anyhow::Result<Vec<Listener>> {
    let mut listeners = Vec::new();
    for address in addresses {
        let address = SocketAddr::new(*address, port);
        match TcpListener::bind(address).await {
            Ok(listener) => {
                info!(address = %listener.local_addr()?, "listening");
                listeners.push(Listener::Tcp(listener));
            }
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
                info!(%address, "this machine does not have the address");
            }
            Err(error) => {
                return Err(error).with_context(|| {
                    format!(
                        "cannot listen on {address}; choose another --dapr-grpc-port, \
                         --dapr-http-port or --dapr-listen-addresses"
                    )
                });
            }
        }
    }
    if listeners.is_empty() {
        bail!("none of --dapr-listen-addresses can be listened on");
    }
    Ok(listeners)
}

/// Binds a Unix socket. A dead one's file is replaced, a live server's never.
pub(super) async fn unix(path: &Path) -> anyhow::Result<Listener> {
    if path.exists() {
        if UnixStream::connect(path).await.is_ok() {
            bail!("{} is in use by another process", path.display());
        }
        std::fs::remove_file(path)
            .with_context(|| format!("cannot replace the dead socket {}", path.display()))?;
    }
    let listener = UnixListener::bind(path)
        .with_context(|| format!("cannot listen on the socket {}", path.display()))?;
    info!(socket = %path.display(), "listening");
    Ok(Listener::Unix { listener, _file: SocketFile(path.to_owned()) })
}

//! The addresses and sockets that the sidecar listens on.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    path::Path,
};

use leasehold_net::{
    listener::{ListenError, Listener},
    socket::{Socket, SocketError},
};
use tracing::{field::display, info};

use super::{
    api::browsers::Reach,
    options::{Listen, Options},
};

const FLAGS: &str = "--dapr-grpc-port, --dapr-http-port or --dapr-listen-addresses";

/// What each API listens on.
pub(super) struct Listeners {
    pub(super) grpc: Vec<Listener>,
    pub(super) http: Vec<Listener>,
}

impl Listeners {
    /// Opens what the options name.
    pub(super) async fn open(options: &Options) -> Result<Self, ListenError> {
        let (grpc, http) = match &options.listen {
            Listen::Ports { addresses, grpc, http } => {
                (tcp(addresses, *grpc).await?, tcp(addresses, *http).await?)
            }
            Listen::Sockets(folder) => {
                let path = |api| folder.join(format!("dapr-{}-{api}.socket", options.app_id));
                (vec![unix(&path("grpc")).await?], vec![unix(&path("http")).await?])
            }
        };
        for (api, listeners) in [("gRPC", &grpc), ("HTTP", &http)] {
            for listener in listeners {
                let address = listener.address().map(display);
                let socket = listener.path().map(|path| display(path.display()));
                info!(address, socket, api, "listening");
            }
        }
        Ok(Self { grpc, http })
    }

    /// The widest reach of the listeners.
    pub(super) fn reach(&self) -> Reach {
        let listeners = self.grpc.iter().chain(&self.http);
        let addresses: Vec<_> = listeners.filter_map(Listener::address).collect();
        if addresses.is_empty() {
            Reach::Processes
        } else if addresses.iter().all(|address| address.ip().to_canonical().is_loopback()) {
            Reach::Machine
        } else {
            Reach::Network
        }
    }
}

/// The error for an IPv6 address on a kernel without IPv6.
const NO_SUCH_FAMILY: i32 = rustix::io::Errno::AFNOSUPPORT.raw_os_error();

/// Opens a port on every address. An address that this machine does not have (an IPv6
/// loopback, for instance) is left out, as long as one remains.
async fn tcp(addresses: &[IpAddr], port: u16) -> Result<Vec<Listener>, ListenError> {
    let (mut listeners, mut missing) = (Vec::new(), None);
    for address in addresses {
        match Listener::bind(SocketAddr::new(*address, port), FLAGS).await {
            Ok(listener) => listeners.push(listener),
            Err(ListenError::Tcp { error, .. })
                if error.kind() == io::ErrorKind::AddrNotAvailable
                    || error.raw_os_error() == Some(NO_SUCH_FAMILY) =>
            {
                info!(%address, "this machine does not have the address");
                missing = Some(ListenError::Tcp {
                    address: SocketAddr::new(*address, port),
                    error,
                    flags: FLAGS,
                });
            }
            Err(error) => return Err(error),
        }
    }
    match missing {
        Some(missing) if listeners.is_empty() => Err(missing),
        _ => Ok(listeners),
    }
}

async fn unix(path: &Path) -> Result<Listener, SocketError> {
    Ok(Listener::Unix(Socket::open(path, None, "--unix-domain-socket").await?))
}

//! A front as a whole: listen, serve, drain.

use std::{
    net::SocketAddr,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use leasehold_net::{
    accepted::Accepted,
    acceptor::Acceptor,
    listener::{ListenError, Listener, Stream},
    peer::Peer,
    quiet::quiet,
    socket::Socket,
};
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tracing::{debug, field::display, info, warn};

use super::{
    connection::Connection,
    locks::{FindStore, Locks},
    options::FrontOptions,
    scripts::Scripts,
    session::{Session, Shared},
};

/// How many connections a front serves at a time.
const CONNECTIONS_MAX: usize = 4096;
/// The reply to a client beyond the limit.
const TOO_MANY: &[u8] = b"-ERR max number of clients reached\r\n";
/// How long the handshake of TLS may take.
const TLS_WITHIN: Duration = Duration::from_secs(10);
/// How long a drain waits for the answers to commands.
const ANSWERED_WITHIN: Duration = Duration::from_secs(2);

/// A running front. It stops when this is dropped.
pub struct Front {
    acceptor: Acceptor,
    shared: Arc<Shared>,
    addresses: Vec<SocketAddr>,
}

impl Front {
    /// Opens what the options name, and begins to serve the store that `find` finds.
    pub async fn start(options: FrontOptions, find: FindStore) -> Result<Self, ListenError> {
        let mut listeners = Vec::new();
        if let Some(address) = options.listen {
            listeners.push(Listener::bind(address, "--listen").await?);
        }
        if let Some(path) = &options.unix_socket {
            listeners.push(Listener::Unix(Socket::open(path, None, "--unix-socket").await?));
        }
        let shared = Arc::new(Shared {
            locks: Locks::new(&options.store, find),
            scripts: Scripts::default(),
            password: options.password,
            may_delete: options.allow_delete,
            sessions: AtomicU64::new(0),
        });
        let acceptor = Acceptor::new(CONNECTIONS_MAX, TOO_MANY);
        let mut addresses = Vec::new();
        for listener in listeners {
            let address = listener.address().map(display);
            let socket = listener.path().map(|path| display(path.display()));
            info!(address, socket, store = options.store, "listening for clients of Redis");
            addresses.extend(listener.address());
            serve(&acceptor, listener, &shared, options.tls.as_ref());
        }
        Ok(Self { acceptor, shared, addresses })
    }

    /// The addresses of its ports.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Refuses new locks. Renewals and unlocks are served for as long as they keep coming, as by
    /// a component; then it stops listening, and ends each connection when its commands are
    /// answered.
    pub async fn drain(self) {
        self.shared.locks.drain();
        let locks = &self.shared.locks;
        if !quiet(|| self.acceptor.is_idle(), || locks.calls_of_holders_begun()).await {
            info!("clients of Redis keep calling; their connections end now");
        }
        if !self.acceptor.close(Instant::now() + ANSWERED_WITHIN).await {
            warn!("commands of Redis clients are left unanswered at the end of the drain");
        }
    }
}

fn serve(
    acceptor: &Acceptor,
    listener: Listener,
    shared: &Arc<Shared>,
    tls: Option<&TlsAcceptor>,
) {
    // The permissions of a Unix socket protect it.
    let tls = tls.filter(|_| matches!(listener, Listener::Tcp(..))).cloned();
    let shared = Arc::clone(shared);
    acceptor.accept(listener, move |stream, closing| {
        converse(stream, Arc::clone(&shared), tls.clone(), closing)
    });
}

async fn converse(
    stream: Stream,
    shared: Arc<Shared>,
    tls: Option<TlsAcceptor>,
    closing: CancellationToken,
) {
    let peer = match &stream {
        Stream::Tcp(stream) => {
            stream.peer_addr().map_or_else(|_| "tcp".to_owned(), |at| at.to_string())
        }
        Stream::Unix(stream) => {
            let pid = Peer::of(stream).and_then(|peer| peer.pid);
            pid.map_or_else(|| "unix".to_owned(), |pid| format!("pid-{pid}"))
        }
    };
    let session = Session::new(shared, peer);
    let accepted = Accepted::from(stream);
    let transport = accepted.transport();
    let Some(tls) = tls else {
        Connection::new(accepted, transport, session).serve(&closing).await;
        return;
    };
    let handshake = timeout(TLS_WITHIN, tls.accept(accepted));
    let Some(handshake) = closing.run_until_cancelled(handshake).await else { return };
    match handshake {
        Ok(Ok(stream)) => Connection::new(stream, transport, session).serve(&closing).await,
        Ok(Err(error)) => debug!(%error, "a client of the Redis front did not speak TLS"),
        Err(_) => debug!("a client of the Redis front did not finish its TLS handshake"),
    }
}

//! Serves a router on listeners, with limits on connections, streams, headers
//! and slow clients.

use std::{
    convert::Infallible, future::poll_fn, pin::pin, sync::Arc, task::Poll, time::Duration,
};

use axum::{Router, body::Body, http::Request};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep, timeout_at},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::ServiceExt as _;
use tracing::{Level, debug, warn};

use super::listen::Listener;
use crate::{
    edge::{flush_tracker::FlushTracker, peer::Peer},
    net::{
        accepted::Accepted,
        http1::{Exchange, HeaderTimeout},
        preface::PrefaceTimeout,
    },
};

/// How many connections a port takes at once; more wait to be accepted.
const CONNECTIONS_MAX: usize = 16_384;
/// Above the limit on waiters, so that waiting never starves other calls.
const STREAMS_MAX: u32 = 250_000;
/// How many calls may be reset before they are taken up: a client that gives
/// up on many waits at once is no attack yet.
const RESETS_MAX: usize = 1024;
/// As in the component: as many waits as a store allows may begin at once.
const UNREAD_BYTES_MAX: u32 = 64 * 1024 * 1024;
const HEADERS_BYTES_MAX: u32 = 64 * 1024;
/// More of the shortest ones would not fit into the bytes.
const HEADERS_MAX: usize = 4_096;
/// Within what time a client must have started its protocol.
const OPENING_TIMEOUT: Duration = Duration::from_secs(10);
/// How often an HTTP/2 client is asked whether it is still there.
const KEEP_ALIVE_PERIOD: Duration = Duration::from_secs(20);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// How often the system asks an idle TCP connection's peer, as Go does.
const PROBE_PERIOD: Duration = Duration::from_secs(15);
/// Before trying again to accept when the process is short of something.
const ACCEPT_DELAY: Duration = Duration::from_millis(50);

/// What a port speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Speaks {
    /// HTTP/2 only.
    Grpc,
    /// HTTP/1 and HTTP/2 without TLS.
    Http,
}

/// One port's server.
#[derive(Clone)]
pub(super) struct Server {
    router: Router,
    speaks: Speaks,
    builder: auto::Builder<TokioExecutor>,
    connections: Arc<Semaphore>,
    /// Stops accepting, and ends connections when their calls are answered.
    closing: CancellationToken,
    tasks: TaskTracker,
}

impl Server {
    pub(super) fn new(router: Router, speaks: Speaks) -> Self {
        Self {
            router,
            speaks,
            builder: builder(speaks),
            connections: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
            closing: CancellationToken::new(),
            tasks: TaskTracker::new(),
        }
    }

    /// Starts to serve a listener.
    pub(super) fn serve(&self, listener: Listener) {
        let server = self.clone();
        self.tasks.spawn(async move {
            let closing = server.closing.clone();
            closing.run_until_cancelled(server.accept(listener)).await;
        });
    }

    /// Ends every connection once its calls are answered, or at `deadline`.
    pub(super) async fn close(&self, deadline: Instant) {
        self.closing.cancel();
        self.tasks.close();
        if timeout_at(deadline, self.tasks.wait()).await.is_err() {
            warn!("calls are left unanswered at the end of the drain");
        }
    }

    async fn accept(self, listener: Listener) {
        loop {
            let Ok(place) = Arc::clone(&self.connections).acquire_owned().await else { return };
            let accepted = match &listener {
                Listener::Tcp(listener) => listener.accept().await.map(|(stream, _)| {
                    let _ = stream.set_nodelay(true);
                    keep_alive(&stream);
                    self.spawn(stream, None, place);
                }),
                Listener::Unix { listener, .. } => {
                    listener.accept().await.map(|(stream, _)| {
                        let peer = Peer::of(&stream);
                        self.spawn(stream, peer, place);
                    })
                }
            };
            if let Err(error) = accepted {
                warn!(%error, "a connection was not accepted");
                sleep(ACCEPT_DELAY).await;
            }
        }
    }

    fn spawn<S>(&self, stream: S, peer: Option<Peer>, place: OwnedSemaphorePermit)
    where
        S: AsyncRead + AsyncWrite + Into<Accepted> + Send + Unpin + 'static,
    {
        let server = self.clone();
        self.tasks.spawn(async move {
            let exchange = Exchange::default();
            match server.speaks {
                Speaks::Grpc => {
                    server.converse(stream, peer, exchange, std::future::pending()).await;
                }
                Speaks::Http => {
                    let stream: Accepted = stream.into();
                    let abandoned = abandoned(stream.clone(), exchange.clone());
                    server.converse(stream, peer, exchange, abandoned).await;
                }
            }
            drop(place);
        });
    }

    /// Serves one connection until its end, or until `abandoned`: then the call
    /// that is under way is dropped with it.
    async fn converse(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        peer: Option<Peer>,
        exchange: Exchange,
        abandoned: impl Future<Output = ()>,
    ) {
        let stream = PrefaceTimeout::new(FlushTracker::new(stream), OPENING_TIMEOUT);
        let writes = stream.stream().writes();
        let stream = HeaderTimeout::new(stream, exchange.clone());
        let service = service_fn(|request: Request<Incoming>| {
            let version = request.version();
            let told = tracing::enabled!(Level::DEBUG)
                .then(|| (request.method().clone(), request.uri().path().to_owned()));
            let began = Instant::now();
            let call = exchange.begin(version);
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(writes.of(version));
            if let Some(peer) = peer {
                request.extensions_mut().insert(peer);
            }
            let answering = self.router.clone().oneshot(request);
            async move {
                let answer = answering.await?;
                if let Some((method, path)) = told {
                    let status = answer.status().as_u16();
                    debug!(%method, path, status, took = ?began.elapsed(), "answered");
                }
                Ok::<_, Infallible>(answer.map(|body| call.until_sent(body)))
            }
        });
        let connection =
            self.builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
        let (mut connection, mut abandoned) = (pin!(connection), pin!(abandoned));
        // A connection is asked first: what its client sent before it left is
        // read before that counts.
        let ended = tokio::select! {
            biased;
            ended = &mut connection => ended,
            () = &mut abandoned => return,
            () = self.closing.cancelled() => {
                connection.as_mut().graceful_shutdown();
                tokio::select! {
                    biased;
                    ended = connection => ended,
                    () = abandoned => return,
                }
            }
        };
        if let Err(error) = ended {
            debug!(%error, "a connection broke off");
        }
    }
}

/// Ends when the peer has closed the connection while a call is under way.
///
/// hyper notices that by itself only while it has nothing left to parse: bytes
/// behind the request would hide it for as long as the call lasts.
async fn abandoned(peer: Accepted, exchange: Exchange) {
    peer.closed_by_peer().await;
    // A call begins where the connection is polled, which is in the same task.
    poll_fn(|_| if exchange.is_under_way() { Poll::Ready(()) } else { Poll::Pending }).await;
}

/// Lets the system notice a peer that has vanished without a word.
fn keep_alive(stream: &TcpStream) {
    let probes = TcpKeepalive::new().with_time(PROBE_PERIOD).with_interval(PROBE_PERIOD);
    if let Err(error) = SockRef::from(stream).set_tcp_keepalive(&probes) {
        debug!(%error, "a connection is without TCP keep-alive");
    }
}

fn builder(speaks: Speaks) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        // hyper's own counts the time of an idle connection too: see net::http1.
        .header_read_timeout(None)
        .max_buf_size(HEADERS_BYTES_MAX as usize)
        // hyper takes 100 by itself, daprd as many as fit.
        .max_headers(HEADERS_MAX)
        // A client that closes its side has gone away: its call ends with it.
        .half_close(false);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .initial_connection_window_size(UNREAD_BYTES_MAX)
        .max_pending_accept_reset_streams(RESETS_MAX)
        .max_local_error_reset_streams(RESETS_MAX)
        .max_header_list_size(HEADERS_BYTES_MAX)
        .keep_alive_interval(KEEP_ALIVE_PERIOD)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT);
    match speaks {
        Speaks::Grpc => builder.http2_only(),
        Speaks::Http => builder,
    }
}

//! Serves requests on listeners, with limits on connections, streams, headers and slow
//! peers.

use std::{
    convert::Infallible,
    future::{pending, poll_fn},
    panic::AssertUnwindSafe,
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use axum::{Router, body::Body, response::Response};
use futures_util::FutureExt as _;
use http::Request;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::Semaphore,
    time::{Instant, sleep, timeout_at},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::ServiceExt as _;
use tracing::{debug, error, warn};

use super::{
    accepted::Accepted,
    config::{AtLimit, Config, Protocols},
    connection::Connection,
    exchange::{Exchange, Phase},
    listener::{Listener, Stream},
    peer::Peer,
};

/// How long to pause after a connection could not be accepted, for example because the process
/// has no file descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Responds to requests. Clones share what they respond with.
pub(crate) trait Respond: Clone + Send + Sync + 'static {
    /// The response to one request. Only the future may panic.
    fn respond(self, request: Request<Body>) -> impl Future<Output = Response> + Send;
}

impl Respond for Router {
    async fn respond(self, request: Request<Body>) -> Response {
        self.oneshot(request).await.unwrap_or_else(|never| match never {})
    }
}

/// Serves on any number of listeners. It stops when this is dropped.
pub(crate) struct Server<R>(Arc<Shared<R>>);

struct Shared<R> {
    responder: R,
    config: Config,
    builder: auto::Builder<TokioExecutor>,
    places: Arc<Semaphore>,
    /// Stops accepting, and ends connections once their calls are answered.
    closing: CancellationToken,
    listeners: TaskTracker,
    connections: TaskTracker,
}

impl<R> std::fmt::Debug for Server<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("config", &self.0.config).finish_non_exhaustive()
    }
}

impl<R: Respond> Server<R> {
    pub(crate) fn new(responder: R, config: Config) -> Self {
        Self(Arc::new(Shared {
            responder,
            builder: config.builder(),
            places: Arc::new(Semaphore::new(config.connections_max)),
            closing: CancellationToken::new(),
            listeners: TaskTracker::new(),
            connections: TaskTracker::new(),
            config,
        }))
    }

    /// Starts to serve a listener.
    pub(crate) fn serve(&self, listener: Listener) {
        let accepting = Arc::clone(&self.0).accept(listener);
        let closing = self.0.closing.clone();
        self.0.listeners.spawn(closing.run_until_cancelled_owned(accepting));
    }

    /// Whether nobody is connected.
    pub(crate) fn is_idle(&self) -> bool {
        self.0.connections.is_empty()
    }

    /// Stops listening, and ends every connection once its calls are answered. Returns
    /// whether all have ended by `deadline`.
    pub(crate) async fn close(&self, deadline: Instant) -> bool {
        let shared = &self.0;
        shared.closing.cancel();
        shared.listeners.close();
        shared.connections.close();
        let ended = async {
            shared.listeners.wait().await;
            shared.connections.wait().await;
        };
        timeout_at(deadline, ended).await.is_ok()
    }
}

impl<R> Drop for Server<R> {
    fn drop(&mut self) {
        self.0.closing.cancel();
    }
}

impl<R: Respond> Shared<R> {
    async fn accept(self: Arc<Self>, listener: Listener) {
        loop {
            let reserved = match self.config.at_limit {
                AtLimit::Wait => Arc::clone(&self.places).acquire_owned().await.ok(),
                AtLimit::Close => None,
            };
            let stream = match listener.accept().await {
                Ok(stream) => stream,
                Err(error) => {
                    warn!(%error, "a connection could not be accepted");
                    sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let place = reserved.or_else(|| Arc::clone(&self.places).try_acquire_owned().ok());
            let Some(place) = place else {
                warn!(limit = self.config.connections_max, "one connection too many, closed");
                continue;
            };
            let shared = Arc::clone(&self);
            self.connections.spawn(async move {
                match stream {
                    Stream::Tcp(stream) => shared.serve(stream, None).await,
                    Stream::Unix(stream) => {
                        let peer = Peer::of(&stream);
                        shared.serve(stream, peer).await;
                    }
                }
                drop(place);
            });
        }
    }

    /// Serves one connection until it ends.
    async fn serve<S>(&self, stream: S, peer: Option<Peer>)
    where
        S: AsyncRead + AsyncWrite + Into<Accepted> + Send + Unpin + 'static,
    {
        match self.config.protocols {
            Protocols::Http2 => {
                let connection = Connection::accepted(stream, self.config.held_bytes_max);
                self.converse(connection, peer, pending()).await;
            }
            Protocols::Http1AndHttp2 => {
                let stream: Accepted = stream.into();
                let watched = stream.clone();
                let connection = Connection::accepted(stream, self.config.held_bytes_max);
                let abandoned = abandoned(watched, connection.exchange());
                self.converse(connection, peer, abandoned).await;
            }
        }
    }

    /// Serves one connection until it ends, or until `abandoned` does: then the call that is
    /// under way is dropped with it.
    async fn converse<S>(
        &self,
        connection: Connection<S>,
        peer: Option<Peer>,
        abandoned: impl Future<Output = ()>,
    ) where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (exchange, writes) = (connection.exchange(), connection.writes());
        let service = service_fn(|request: Request<Incoming>| {
            let version = request.version();
            let call = exchange.begin(version);
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(writes.of(version));
            if let Some(peer) = peer {
                request.extensions_mut().insert(peer);
            }
            let response = respond(self.responder.clone(), request, self.config.panicked);
            async move { Ok::<_, Infallible>(response.await.map(|body| call.until_sent(body))) }
        });
        let connection = self.builder.serve_connection(TokioIo::new(connection), service);
        let (mut connection, mut abandoned) = (pin!(connection), pin!(abandoned));
        // The connection is polled first: what its peer sent before it left is read before
        // its leaving counts.
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
            debug!(%error, "a connection failed");
        }
    }
}

/// The response to one request. A panic costs one response, not the connection; the panic hook
/// has logged where it was.
fn respond(
    responder: impl Respond,
    request: Request<Body>,
    panicked: fn() -> Response,
) -> impl Future<Output = Response> + Send {
    let uri = request.uri().clone();
    AssertUnwindSafe(responder.respond(request)).catch_unwind().map(move |responded| {
        responded.unwrap_or_else(|_| {
            let path = uri.path();
            error!(path, "a call panicked; this is a defect, please report it");
            panicked()
        })
    })
}

/// Ends when the peer has closed the connection while a call is under way.
///
/// hyper notices that by itself only while it has nothing left to parse: bytes behind the
/// request would hide it for as long as the call lasts.
async fn abandoned(peer: Accepted, exchange: Exchange) {
    peer.closed_by_peer().await;
    // A call begins where the connection is polled, which is in the same task.
    poll_fn(|_| if exchange.phase() == Phase::Call { Poll::Ready(()) } else { Poll::Pending })
        .await;
}

#[cfg(test)]
mod tests {
    use axum::{http::StatusCode, response::IntoResponse as _, routing::get};
    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test]
    async fn a_panic_is_answered_without_its_message() {
        let router = Router::new()
            .route("/", get(async || -> &'static str { panic!("a secret of ours") }));
        let panicked = || StatusCode::INTERNAL_SERVER_ERROR.into_response();
        let response = respond(router, Request::new(Body::empty()), panicked).await;
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert!(body.is_empty(), "{body:?}");
    }
}

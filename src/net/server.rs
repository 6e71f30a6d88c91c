//! Serves requests on listeners, with limits on connections, streams, headers and slow
//! peers.

use std::{
    convert::Infallible,
    future::{pending, poll_fn},
    panic::AssertUnwindSafe,
    pin::pin,
    sync::Arc,
    task::Poll,
};

use axum::{Router, body::Body, response::Response};
use futures_util::FutureExt as _;
use http::Request;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use leasehold_lock::LockError;
use leasehold_util::cork::Corked;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use tracing::{debug, error};

use super::{
    accepted::{Accepted, Transport},
    acceptor::Acceptor,
    config::{Config, Protocols},
    delivery::{AnswerBody, attach},
    http1_call::Http1Call,
    listener::{Listener, Stream},
    peer::Peer,
    preface::PrefaceTimeout,
    wire::Arrival,
};

/// Responds to requests. Cheap to clone.
pub trait Respond: Clone + Send + Sync + 'static {
    /// The response to one request. Only the future may panic.
    fn respond(self, request: Request<Body>) -> impl Future<Output = Response> + Send;
}

impl Respond for Router {
    async fn respond(self, request: Request<Body>) -> Response {
        self.oneshot(request).await.unwrap_or_else(|never| match never {})
    }
}

/// Serves on any number of listeners. It stops when this is dropped.
pub struct Server<R> {
    acceptor: Acceptor,
    shared: Arc<Shared<R>>,
}

struct Shared<R> {
    responder: R,
    config: Config,
    builder: auto::Builder<TokioExecutor>,
}

impl<R: Respond> Server<R> {
    /// Serves no connection yet.
    pub fn new(responder: R, config: Config) -> Self {
        Self {
            acceptor: Acceptor::new(config.connections_max, b""),
            shared: Arc::new(Shared { responder, builder: config.builder(), config }),
        }
    }

    /// Starts to serve a listener.
    pub fn serve(&self, listener: Listener) {
        let shared = Arc::clone(&self.shared);
        self.acceptor.accept(listener, move |stream, closing| {
            let shared = Arc::clone(&shared);
            async move {
                let peer = match &stream {
                    Stream::Tcp(_) => None,
                    Stream::Unix(stream) => Peer::of(stream),
                };
                shared.serve(stream.into(), peer, closing).await;
            }
        });
    }

    /// Whether nobody is connected.
    pub fn is_idle(&self) -> bool {
        self.acceptor.is_idle()
    }

    /// Stops listening, and ends every connection once its calls are answered. Returns
    /// whether all have ended by `deadline`.
    pub async fn close(&self, deadline: Instant) -> bool {
        self.acceptor.close(deadline).await
    }
}

impl<R: Respond> Shared<R> {
    /// Serves one connection until it ends.
    async fn serve(&self, stream: Accepted, peer: Option<Peer>, closing: CancellationToken) {
        let http1_call = Http1Call::default();
        match self.config.protocols {
            Protocols::Http2 => {
                self.converse(stream, peer, http1_call, pending(), closing).await;
            }
            Protocols::Http1AndHttp2 => {
                let abandoned = abandoned(stream.transport(), http1_call.clone());
                self.converse(stream, peer, http1_call, abandoned, closing).await;
            }
        }
    }

    /// Serves one connection until it ends, or until `abandoned` completes: then the call
    /// under way is dropped with it.
    async fn converse(
        &self,
        stream: Accepted,
        peer: Option<Peer>,
        http1_call: Http1Call,
        abandoned: impl Future<Output = ()>,
        closing: CancellationToken,
    ) {
        let answers = stream.answers();
        let connection = Corked::new(PrefaceTimeout::new(stream), self.config.held_bytes_max);
        let failed = self.config.failed;
        let service = service_fn(|request: Request<Incoming>| {
            let (call, answers) = (http1_call.begin(request.version()), answers.clone());
            let arrival = Arrival::now(request.headers());
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(arrival);
            if let Some(peer) = peer {
                request.extensions_mut().insert(peer);
            }
            let response = respond(self.responder.clone(), request, failed);
            async move {
                let response = response.await;
                let response = attach(response, &answers, arrival.deadline)
                    .unwrap_or_else(|late| AnswerBody::without_grant(failed(late)));
                Ok::<_, Infallible>(response.map(|body| body.of(call)))
            }
        });
        let connection = self.builder.serve_connection(TokioIo::new(connection), service);
        let (mut connection, mut abandoned) = (pin!(connection), pin!(abandoned));
        // The connection is polled first, so that what its peer sent before it left is
        // read before the call is dropped.
        let ended = tokio::select! {
            biased;
            ended = &mut connection => ended,
            () = &mut abandoned => return,
            () = closing.cancelled() => {
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
    failed: fn(LockError) -> Response,
) -> impl Future<Output = Response> + Send {
    let uri = request.uri().clone();
    AssertUnwindSafe(responder.respond(request)).catch_unwind().map(move |responded| {
        responded.unwrap_or_else(|_| {
            let path = uri.path();
            error!(path, "a call panicked; this is a defect, please report it");
            failed(LockError::Internal)
        })
    })
}

/// Completes when the peer has closed the connection while a call is under way.
///
/// hyper itself notices that only while it has nothing left to parse: bytes after the
/// request would hide it until the call ends.
async fn abandoned(peer: Transport, http1_call: Http1Call) {
    peer.closed_by_peer().await;
    // A call begins where the connection is polled, which is in the same task.
    poll_fn(|_| if http1_call.is_call_under_way() { Poll::Ready(()) } else { Poll::Pending })
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
        let failed = |_| StatusCode::INTERNAL_SERVER_ERROR.into_response();
        let response = respond(router, Request::new(Body::empty()), failed).await;
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert!(body.is_empty(), "{body:?}");
    }
}

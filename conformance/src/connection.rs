//! A gRPC connection to a Unix socket.

use std::{
    future::Future,
    io,
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::Uri;
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioIo},
};
use tokio::net::UnixStream;
use tonic::{
    body::Body,
    metadata::{Ascii, MetadataValue},
};

use crate::wire::Wire;

/// The HTTP/2 client of the generated clients. tonic's own `Channel` ends a call at its
/// deadline by itself, and would hide what the store answers.
pub(crate) type Http = Client<Connector, Body>;

/// One HTTP/2 connection to a socket, opened by its first call. Clones share
/// it.
#[derive(Clone)]
pub(crate) struct Connection {
    http: Http,
    wire: Arc<Wire>,
}

impl Connection {
    pub(crate) fn new(socket: &Path) -> Self {
        let wire = Arc::new(Wire::default());
        let connector = Connector { socket: socket.to_owned(), wire: Arc::clone(&wire) };
        let http = Client::builder(TokioExecutor::new())
            .http2_only(true)
            .http2_initial_max_send_streams(1024)
            .http2_max_concurrent_reset_streams(1024)
            .retry_canceled_requests(false)
            .build(connector);
        Self { http, wire }
    }

    pub(crate) fn http(&self) -> Http {
        self.http.clone()
    }

    pub(crate) fn wire(&self) -> &Wire {
        &self.wire
    }

    /// The origin of every request: a socket has no host, and servers refuse
    /// a path in its place.
    pub(crate) fn origin() -> Uri {
        Uri::from_static("http://localhost")
    }
}

/// An instance of the store over a connection.
#[derive(Clone)]
pub(crate) struct Instance {
    pub(crate) connection: Connection,
    /// The value of `x-component-instance`; calls have no such header when `None`.
    pub(crate) name: Option<MetadataValue<Ascii>>,
}

/// Opens the socket, whatever the address of the request.
#[derive(Clone)]
pub(crate) struct Connector {
    socket: PathBuf,
    wire: Arc<Wire>,
}

impl tower::Service<Uri> for Connector {
    type Response = TokioIo<UnixStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _uri: Uri) -> Self::Future {
        let Self { socket, wire } = self.clone();
        Box::pin(async move { Ok(TokioIo::new(wire.connect(&socket).await?)) })
    }
}

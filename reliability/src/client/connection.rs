//! The clients' connection to one leasehold process.

use std::{
    io,
    path::{Path, PathBuf},
    pin::Pin,
    task::{Context, Poll},
};

use http::Uri;
use hyper_util::{
    client::legacy::{
        Client,
        connect::{Connected, Connection},
    },
    rt::{TokioExecutor, TokioIo},
};
use leasehold_proto::{
    components::lock_store_client::LockStoreClient, locks::inspection_client::InspectionClient,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::UnixStream,
};
use tonic::body::Body;

/// Not tonic's `Channel`, which ends a call at its deadline by itself: a late answer
/// would be lost.
type Http = Client<Connector, Body>;

/// A leasehold process, as its clients reach it: both services, over one connection.
#[derive(Clone, Debug)]
pub struct Process {
    pub(crate) store: LockStoreClient<Http>,
    pub(crate) inspection: InspectionClient<Http>,
}

/// A client of the socket; it connects by itself, and again after a restart.
#[must_use]
pub fn process(socket: &Path) -> Process {
    let http = Client::builder(TokioExecutor::new())
        .http2_only(true)
        .http2_initial_max_send_streams(1024)
        .http2_max_concurrent_reset_streams(1024)
        .retry_canceled_requests(false)
        .build(Connector { socket: socket.to_owned() });
    let origin = Uri::from_static("http://localhost");
    Process {
        store: LockStoreClient::with_origin(http.clone(), origin.clone()),
        inspection: InspectionClient::with_origin(http, origin),
    }
}

/// Opens the socket, whatever the address.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    socket: PathBuf,
}

impl tower::Service<Uri> for Connector {
    type Response = TokioIo<Stream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _uri: Uri) -> Self::Future {
        let socket = self.socket.clone();
        Box::pin(async move { Ok(TokioIo::new(Stream(UnixStream::connect(socket).await?))) })
    }
}

/// A Unix stream that hyper takes as a connection.
#[derive(Debug)]
pub(crate) struct Stream(UnixStream);

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, into)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

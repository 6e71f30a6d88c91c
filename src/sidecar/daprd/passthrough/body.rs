//! The bodies of answers from daprd.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body::{Body, Frame};
use hyper::body::Incoming;
use tokio::sync::OwnedSemaphorePermit;
use tower::BoxError;

use super::{
    endpoint::Endpoint,
    protocol::Protocol,
    refusal::{Refusal, is_reset},
};

/// The body of an answer, passed on frame by frame. The call counts as under way until
/// the body is dropped; dropping it early cancels the call.
///
/// It does not report its size: with one, a server would add a Content-Length that daprd did not
/// send.
pub(super) struct PassedBody {
    inner: Incoming,
    protocol: Protocol,
    endpoint: Endpoint,
    /// Completes when daprd no longer answers.
    lost: BoxFuture<'static, BoxError>,
    ended: bool,
    _call: OwnedSemaphorePermit,
}

impl PassedBody {
    pub(super) fn new(
        inner: Incoming,
        protocol: Protocol,
        endpoint: Endpoint,
        lost: BoxFuture<'static, BoxError>,
        call: OwnedSemaphorePermit,
    ) -> Self {
        Self { inner, protocol, endpoint, lost, ended: false, _call: call }
    }
}

impl Body for PassedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let error = match Pin::new(&mut self.inner).poll_frame(context) {
            Poll::Ready(Some(Err(error))) => error.into(),
            Poll::Ready(frame) => {
                return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
            }
            Poll::Pending => ready!(self.lost.as_mut().poll(context)),
        };
        self.ended = true;
        // The server passes the code of a reset on to its caller. When the connection to daprd
        // is lost, trailers show a gRPC client that it was not the sidecar's; over HTTP, the
        // body can only be cut.
        Poll::Ready(Some(if self.protocol == Protocol::Grpc && !is_reset(&*error) {
            Ok(Frame::trailers(Refusal::Broken(self.endpoint.clone(), error).into_trailers()))
        } else {
            Err(error)
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.ended || self.inner.is_end_stream()
    }
}

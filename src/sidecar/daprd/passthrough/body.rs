//! The bodies of answers from daprd.

use std::{
    error::Error,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::sync::OwnedSemaphorePermit;
use tonic::Status;

use super::{endpoint::Endpoint, refusal::Refusal};
use crate::error_chain::chain;

/// The body of an answer, passed on frame by frame. The call counts as under way until
/// the body is dropped; dropping it early cancels the call.
pub(super) struct PassedBody {
    inner: Incoming,
    /// Named in the trailers that tell a gRPC caller that the connection to daprd was lost.
    /// `None` once they were sent, and for HTTP, which can only break off the body.
    grpc_endpoint: Option<Endpoint>,
    ended: bool,
    _call: OwnedSemaphorePermit,
}

impl PassedBody {
    pub(super) fn http(inner: Incoming, call: OwnedSemaphorePermit) -> Self {
        Self { inner, grpc_endpoint: None, ended: false, _call: call }
    }

    pub(super) fn grpc(inner: Incoming, from: Endpoint, call: OwnedSemaphorePermit) -> Self {
        Self { inner, grpc_endpoint: Some(from), ended: false, _call: call }
    }
}

impl Body for PassedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(context));
        let Some(Err(error)) = frame else { return Poll::Ready(frame) };
        self.ended = true;
        match self.grpc_endpoint.take() {
            // Without trailers a client would blame the sidecar.
            Some(endpoint) if !is_reset(&error) => {
                let status = Refusal::Broken(endpoint, chain(&error)).into_status();
                let trailers = Frame::trailers(trailers_of(&status));
                Poll::Ready(Some(Ok(trailers)))
            }
            _ => Poll::Ready(Some(Err(error))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ended || self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        // A known size would make a server add a Content-Length that daprd did
        // not send.
        if self.grpc_endpoint.is_some() { SizeHint::default() } else { self.inner.size_hint() }
    }
}

/// Whether daprd itself reset the stream. The sidecar's server repeats the error code to
/// its caller.
pub(super) fn is_reset(error: &(dyn Error + 'static)) -> bool {
    std::iter::successors(Some(error), |error| (*error).source())
        .filter_map(|error| error.downcast_ref::<h2::Error>())
        .any(|error| error.is_reset() && error.is_remote())
}

/// A status as trailers; without its message if that cannot be a header's value.
fn trailers_of(status: &Status) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    if status.add_header(&mut trailers).is_err() {
        trailers.insert(Status::GRPC_STATUS, i32::from(status.code()).into());
    }
    trailers
}

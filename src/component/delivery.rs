//! Whether the transport took an answer.
//!
//! A grant travels with its receipt in the response's extensions. This layer
//! moves it into the body, where it is accepted when the transport polls the
//! end of it, its trailers: a response that is dropped before that (the stream was reset, the
//! connection is gone) releases its grant at once.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tonic::{Status, body::Body};

use crate::lock::Receipt;

/// Ties the receipt in a response's extensions, if any, to its body.
pub(crate) fn deliver(mut response: http::Response<Body>) -> http::Response<Body> {
    match response.extensions_mut().remove::<Receipt>() {
        None => response,
        Some(receipt) => {
            response.map(|body| Body::new(Receipted { body, receipt: Some(receipt) }))
        }
    }
}

struct Receipted {
    body: Body,
    receipt: Option<Receipt>,
}

impl HttpBody for Receipted {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        let ended = match &frame {
            Some(Ok(frame)) => frame.is_trailers(),
            Some(Err(_)) => false,
            None => true,
        };
        if ended && let Some(receipt) = self.receipt.take() {
            receipt.accept();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

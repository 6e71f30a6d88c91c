//! Whether the transport took an answer.
//!
//! A grant travels with its receipt in the response's extensions. This layer
//! moves it into the body, which accepts it when the transport polls the end,
//! the trailers: a response that is dropped before that (the stream was reset,
//! the connection is gone) releases its grant at once.
//!
//! The transport polls a whole answer ahead of the socket, and drops what it
//! has not written when it then reads that the caller cancelled. So the end of
//! an answer to a wait, whose caller may well have gone meanwhile, is held
//! back until the connection has written its beginning. A try is answered in
//! one piece: its caller is there, and that is a write less.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tonic::{Status, body::Body};

use super::writes::Writes;
use crate::lock::Receipt;

/// What travels with a grant's answer.
#[derive(Clone)]
pub(super) struct Delivery {
    /// To be accepted.
    pub(super) receipt: Receipt,
    /// The writes of the connection, if the end is to wait for one of them.
    pub(super) writes: Option<Writes>,
}

/// Ties the delivery in a response's extensions, if any, to its body.
pub(crate) fn deliver(mut response: http::Response<Body>) -> http::Response<Body> {
    match response.extensions_mut().remove::<Delivery>() {
        None => response,
        Some(Delivery { receipt, writes }) => {
            let receipt = Some(receipt);
            response.map(|body| Body::new(Receipted { body, writes, data_at: None, receipt }))
        }
    }
}

struct Receipted {
    body: Body,
    writes: Option<Writes>,
    /// How many writes there were when the transport took the data.
    data_at: Option<u64>,
    receipt: Option<Receipt>,
}

impl HttpBody for Receipted {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let (Some(writes), Some(count)) = (&self.writes, self.data_at) {
            ready!(writes.poll_more_than(count, context));
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        let ended = match &frame {
            Some(Ok(frame)) => frame.is_trailers(),
            Some(Err(_)) => false,
            None => true,
        };
        if ended {
            if let Some(receipt) = self.receipt.take() {
                receipt.accept();
            }
        } else {
            self.data_at = self.writes.as_ref().map(Writes::count);
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

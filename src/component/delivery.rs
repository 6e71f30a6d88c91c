//! Whether the transport took an answer.
//!
//! A grant travels with its receipt in the response's extensions. This layer
//! moves it into the body, where it is accepted when the transport polls the
//! end of it, its trailers: a response that is dropped before that (the stream
//! was reset, the connection is gone) releases its grant at once.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::task::yield_now;
use tonic::{Status, body::Body};

use crate::lock::Receipt;

/// What travels with a grant's answer.
#[derive(Clone)]
pub(super) struct Delivery {
    pub(super) receipt: Receipt,
    /// Whether its caller has waited for it. Many a caller stops waiting just
    /// then, and what says so may lie unread at the connection.
    pub(super) waited: bool,
}

/// Ties the receipt in a response's extensions, if any, to its body.
pub(super) fn deliver(mut response: http::Response<Body>) -> http::Response<Body> {
    match response.extensions_mut().remove::<Delivery>() {
        None => response,
        Some(Delivery { receipt, waited }) => response.map(|body| {
            let news: Option<BoxFuture<'static, ()>> =
                waited.then(|| -> BoxFuture<'static, ()> { Box::pin(yield_now()) });
            Body::new(Receipted { body, receipt: Some(receipt), news })
        }),
    }
}

struct Receipted {
    body: Body,
    receipt: Option<Receipt>,
    /// One turn of the runtime, in which the connection reads what has come:
    /// a caller that has gone by then is not answered.
    news: Option<BoxFuture<'static, ()>>,
}

impl HttpBody for Receipted {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(news) = &mut self.news {
            ready!(news.as_mut().poll(context));
            self.news = None;
        }
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

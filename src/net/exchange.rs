//! Whether a call is under way on an HTTP/1 connection, which has one at a time.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use http::Version;
use http_body::{Body, Frame, SizeHint};

/// Whether a call is under way on an HTTP/1 connection; unused for HTTP/2. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Exchange(Arc<AtomicBool>);

impl Exchange {
    /// Begins a call, which is under way until the returned value is dropped.
    pub(super) fn begin(&self, version: Version) -> Call {
        let is_http1 = version < Version::HTTP_2;
        if is_http1 {
            self.0.store(true, Ordering::Relaxed);
        }
        Call(is_http1.then(|| self.clone()))
    }

    pub(super) fn is_call_under_way(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A call that is under way until this is dropped.
#[derive(Debug)]
pub(super) struct Call(Option<Exchange>);

impl Call {
    /// Makes the call last as long as the body of its response.
    pub(super) fn until_sent<B>(self, body: B) -> CallBody<B> {
        CallBody { body, _call: self }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if let Some(exchange) = &self.0 {
            exchange.0.store(false, Ordering::Relaxed);
        }
    }
}

/// The body of a response. Its call ends when it is dropped.
#[derive(Debug)]
pub(super) struct CallBody<B> {
    body: B,
    _call: Call,
}

impl<B: Body + Unpin> Body for CallBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

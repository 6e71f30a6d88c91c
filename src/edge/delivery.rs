//! Whether the transport took an answer.
//!
//! A grant travels with its answer, in the response's extensions. [`settle`]
//! moves it into the body, which accepts it when the transport polls the end: a
//! response that is dropped before that (the caller cancelled, the connection
//! is gone) releases its grant at once.
//!
//! HTTP/2 polls a whole answer ahead of the socket, and drops what it has not
//! written when it then reads that the caller cancelled. So the end of an
//! answer whose caller may well have gone meanwhile is held back until the
//! connection has written its beginning.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::Response;
use http_body::{Body, Frame, SizeHint};

use super::writes::Writes;
use crate::lock::Receipt;

type Accept = Box<dyn FnOnce() + Send>;

/// A grant on its way to the caller. Clones share one grant; dropping the last
/// without having accepted it releases the grant.
#[derive(Clone)]
pub(crate) struct Delivery {
    accept: Arc<Mutex<Option<Accept>>>,
    /// The writes of the connection, if the end is to wait for one of them.
    writes: Option<Writes>,
}

impl Delivery {
    /// What is done when the transport took the answer. What it owns is
    /// dropped instead if it did not.
    pub(crate) fn new(accept: impl FnOnce() + Send + 'static) -> Self {
        Self { accept: Arc::new(Mutex::new(Some(Box::new(accept)))), writes: None }
    }

    /// A grant that is only to be received.
    pub(crate) fn of(receipt: Receipt) -> Self {
        Self::new(move || receipt.accept())
    }

    /// Has the end of the answer wait until the connection has written its
    /// beginning.
    pub(crate) fn once_written(self, writes: Option<Writes>) -> Self {
        Self { writes, ..self }
    }

    fn accept(&self) {
        let accept = self.accept.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(accept) = accept {
            accept();
        }
    }
}

/// Ties the delivery in a response's extensions, if any, to its body.
pub(crate) fn settle<B>(mut response: Response<B>) -> Response<Settling<B>> {
    let delivery = response.extensions_mut().remove::<Delivery>();
    response.map(|inner| Settling { inner, delivery, data_at: None })
}

/// A body that settles its delivery when it has been polled to its end.
pub(crate) struct Settling<B> {
    inner: B,
    delivery: Option<Delivery>,
    /// How many writes there were when the transport took the data.
    data_at: Option<u64>,
}

impl<B: Body<Data = Bytes> + Unpin> Body for Settling<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let writes = self.delivery.as_ref().and_then(|delivery| delivery.writes.clone());
        if let (Some(writes), Some(count)) = (&writes, self.data_at) {
            ready!(writes.poll_more_than(count, context));
        }
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(context));
        let ended = match &frame {
            None => true,
            Some(Ok(frame)) if frame.is_trailers() => true,
            // HTTP/1 asks for no more once it has as much as it announced.
            Some(Ok(_)) => writes.is_none() && self.inner.is_end_stream(),
            Some(Err(_)) => {
                self.delivery = None;
                false
            }
        };
        if ended {
            if let Some(delivery) = self.delivery.take() {
                delivery.accept();
            }
        } else {
            self.data_at = writes.as_ref().map(Writes::count);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.delivery.is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use http_body_util::{BodyExt as _, Full};
    use tokio::time::Duration;

    use super::*;
    use crate::{
        backend::{Context as BackendContext, memory::Memory},
        lock::{AcquireRequest, Clock, LockError, Settings, Store},
    };

    type Answer = Settling<Full<Bytes>>;

    fn store() -> Store {
        let settings = Settings::default();
        let context = BackendContext { settings: settings.clone(), clock: Clock::system() };
        Store::new(Arc::new(Memory::new(&context)), settings)
    }

    async fn response(store: &Store, writes: Option<Writes>) -> Answer {
        let granted = store.try_lock(AcquireRequest::new("r")).await.unwrap();
        let mut response = Response::new(Full::from("answer"));
        let delivery = Delivery::of(granted.receipt).once_written(writes);
        response.extensions_mut().insert(delivery);
        settle(response).into_body()
    }

    async fn expect_held(store: &Store, held: bool) {
        tokio::time::sleep(Duration::from_millis(10)).await;
        match store.try_lock(AcquireRequest::new("r")).await {
            Err(LockError::Locked { .. }) => assert!(held, "it is held"),
            other => assert!(other.is_ok() && !held, "{other:?}"),
        }
    }

    fn poll(body: &mut Answer) -> Poll<Option<Result<Frame<Bytes>, std::convert::Infallible>>> {
        Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_grant_whose_answer_was_taken_stays() {
        let store = store();
        let body = response(&store, None).await.collect().await.unwrap();
        assert_eq!(body.to_bytes(), "answer");
        expect_held(&store, true).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_grant_whose_answer_nobody_took_is_released() {
        let store = store();
        drop(response(&store, None).await);
        expect_held(&store, false).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_grant_whose_answer_was_taken_but_not_written_is_released() {
        let store = store();
        let mut body = response(&store, Some(Writes::default())).await;
        assert!(poll(&mut body).is_ready());
        assert!(poll(&mut body).is_pending() && !body.is_end_stream());
        // As the transport does when it then reads that the caller cancelled.
        drop(body);
        expect_held(&store, false).await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_follows_once_the_beginning_is_written() {
        let (store, writes) = (store(), Writes::default());
        let mut body = response(&store, Some(writes.clone())).await;
        assert!(poll(&mut body).is_ready());
        assert!(poll(&mut body).is_pending());
        writes.note(&Poll::Ready(Ok(1)));
        assert!(matches!(poll(&mut body), Poll::Ready(None)) && body.is_end_stream());
        drop(body);
        expect_held(&store, true).await;
    }
}

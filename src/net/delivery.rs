//! Releases a grant whose response was not delivered.
//!
//! A grant travels in the extensions of its response. [`settle`] moves it into the body,
//! which accepts it when the transport polls the end. A response that is dropped before that
//! (the caller cancelled, or the connection is gone) releases its grant at once.
//!
//! A transport takes a response before it writes it. Where the grant would outlive its caller
//! for long, it is accepted only when the response is written ([`Delivery::once_written`]):
//!
//! - HTTP/2 drops what it has not written when it reads that the caller cancelled. So the end
//!   of the body is held back until its data is written: until the transport dropped the
//!   data, flushed after that, and did not then drop the body because of a cancellation.
//! - HTTP/1 has one response at a time, so the next flush has written it. The grant counts as
//!   held from before the write, because the caller may use it before this process learns of
//!   the flush. It is released if the connection ends without a flush.

use std::{
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::Response;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;

use super::writes::Writes;
use crate::lock::Receipt;

/// Called when the response is written. Dropping it instead releases the grant.
type Keep = Box<dyn FnOnce() + Send>;
/// Called when the transport takes the response. Dropping it instead releases the grant.
type Accept = Box<dyn FnOnce() -> Keep + Send>;

/// A grant on its way to the caller. Clones share one grant; dropping the last
/// without having accepted it releases the grant.
#[derive(Clone)]
pub(crate) struct Delivery {
    accept: Arc<Mutex<Option<Accept>>>,
    /// The writes of the connection, if the grant is accepted only once they include it.
    writes: Option<Writes>,
}

impl Delivery {
    /// `accept` is called when the transport takes the response, and what it returns when the
    /// response is written. Each is dropped instead if that does not happen; dropping it must
    /// release the grant.
    pub(crate) fn new<K>(accept: impl FnOnce() -> K + Send + 'static) -> Self
    where
        K: FnOnce() + Send + 'static,
    {
        let accept: Accept = Box::new(move || Box::new(accept()));
        Self { accept: Arc::new(Mutex::new(Some(accept))), writes: None }
    }

    /// A grant that needs nothing but its receipt to be accepted.
    pub(crate) fn of(receipt: Receipt) -> Self {
        Self::new(move || move || receipt.accept())
    }

    /// Releases the grant also if the response was taken but not written.
    pub(crate) fn once_written(self, writes: Option<Writes>) -> Self {
        Self { writes, ..self }
    }

    fn accept(&self) {
        let accept = self.accept.lock().take();
        let Some(keep) = accept.map(|accept| accept()) else { return };
        match &self.writes {
            Some(writes) if !writes.is_http2() => writes.at_flush(keep),
            _ => keep(),
        }
    }

    /// The writes that the end of the response has to wait for.
    fn held_back_by(&self) -> Option<&Writes> {
        self.writes.as_ref().filter(|writes| writes.is_http2())
    }
}

/// Moves the delivery in a response's extensions, if there is one, into its body.
pub(crate) fn settle<B>(mut response: Response<B>) -> Response<Settling<B>> {
    let delivery = response.extensions_mut().remove::<Delivery>();
    response.map(|inner| Settling { inner, delivery, sent: None })
}

/// A body that accepts its delivery when it has been polled to its end.
pub(crate) struct Settling<B> {
    inner: B,
    delivery: Option<Delivery>,
    sent: Option<Sent>,
}

/// Data that was handed to the transport.
struct Sent {
    watched: Arc<Watched>,
    is_written: bool,
}

/// How many flushes there were when the transport dropped the data. It had then queued all of
/// it for its next write, or discarded it.
#[derive(Default)]
struct Watched(OnceLock<u64>);

/// Data that notes when the transport drops it.
struct WatchedData {
    data: Bytes,
    watched: Arc<Watched>,
    writes: Writes,
}

impl AsRef<[u8]> for WatchedData {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for WatchedData {
    fn drop(&mut self) {
        let _ = self.watched.0.set(self.writes.flushes());
    }
}

impl Sent {
    fn new(data: Bytes, writes: &Writes) -> (Bytes, Self) {
        let watched = Arc::new(Watched::default());
        let data = WatchedData { data, watched: Arc::clone(&watched), writes: writes.clone() };
        (Bytes::from_owner(data), Self { watched, is_written: false })
    }

    /// Ready when the data is written and was not discarded.
    fn poll_written(&mut self, writes: &Writes, context: &mut Context<'_>) -> Poll<()> {
        if self.is_written {
            return Poll::Ready(());
        }
        let is_written =
            || self.watched.0.get().is_some_and(|before| writes.flushes() > *before);
        ready!(writes.poll_until(is_written, context));
        // Discarded data looks the same. By now the transport knows of a cancellation, and
        // drops the body instead of polling it once more.
        self.is_written = true;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Settling<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.get_mut();
        let writes = this.delivery.as_ref().and_then(Delivery::held_back_by).cloned();
        if let (Some(writes), Some(sent)) = (&writes, &mut this.sent) {
            ready!(sent.poll_written(writes, context));
        }
        let mut frame = ready!(Pin::new(&mut this.inner).poll_frame(context));
        let ended = match &frame {
            None => true,
            Some(Ok(frame)) if frame.is_trailers() => true,
            // HTTP/1 polls no more once it has the announced number of bytes.
            Some(Ok(_)) => writes.is_none() && this.inner.is_end_stream(),
            Some(Err(_)) => {
                this.delivery = None;
                false
            }
        };
        if ended {
            if let Some(delivery) = this.delivery.take() {
                delivery.accept();
            }
        } else if let Some(writes) = &writes {
            frame = frame.map(|frame| {
                frame.map(|frame| {
                    frame.map_data(|data| {
                        let (data, sent) = Sent::new(data, writes);
                        this.sent = Some(sent);
                        data
                    })
                })
            });
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
        lock::{AcquireRequest, Clock, LockError, Settings, Store, UnlockRequest},
        net::connection::Connection,
    };

    type Answer = Settling<Full<Bytes>>;

    fn store() -> Store {
        let settings = Settings::default();
        let context = BackendContext::new(settings.clone(), Clock::system());
        Store::new(Arc::new(Memory::new(&context)), settings)
    }

    async fn response(store: &Store, writes: Option<Writes>) -> Answer {
        let granted = store.try_lock(AcquireRequest::new("r".parse().unwrap())).await.unwrap();
        let mut response = Response::new(Full::from("answer"));
        let delivery = Delivery::of(granted.receipt).once_written(writes);
        response.extensions_mut().insert(delivery);
        settle(response).into_body()
    }

    async fn expect_held(store: &Store, held: bool) {
        tokio::time::sleep(Duration::from_millis(10)).await;
        match store.try_lock(AcquireRequest::new("r".parse().unwrap())).await {
            Err(LockError::Locked { .. }) => assert!(held, "it is held"),
            other => assert!(other.is_ok() && !held, "{other:?}"),
        }
    }

    fn force(resource: &str) -> UnlockRequest {
        UnlockRequest::force(resource.parse().unwrap())
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
        let writes = Writes::default();
        let mut body = response(&store, Some(writes.clone())).await;
        let Poll::Ready(Some(Ok(data))) = poll(&mut body) else { panic!("no data") };
        // What others on the connection write says nothing of this answer.
        writes.note_flush();
        assert!(poll(&mut body).is_pending() && !body.is_end_stream());
        // The transport reads that the caller cancelled: it drops the data,
        // and the body at its next turn, whatever is written in between.
        drop(data);
        writes.note_flush();
        assert!(poll(&mut body).is_pending());
        drop(body);
        expect_held(&store, false).await;
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_over_http1_is_settled_by_the_next_flush() {
        let store = store();
        for written in [true, false] {
            let stream = Connection::accepted(tokio::io::sink(), 0);
            let writes = stream.writes().of(http::Version::HTTP_11);
            let mut body = response(&store, Some(writes.clone())).await;
            assert!(poll(&mut body).is_ready() && body.is_end_stream());
            drop(body);
            if written {
                writes.note_flush();
            }
            drop(stream);
            expect_held(&store, written).await;
            store.unlock(force("r")).await.ok();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_follows_once_the_beginning_is_written() {
        let (store, writes) = (store(), Writes::default());
        let mut body = response(&store, Some(writes.clone())).await;
        let Poll::Ready(Some(Ok(data))) = poll(&mut body) else { panic!("no data") };
        assert!(poll(&mut body).is_pending());
        drop(data);
        assert!(poll(&mut body).is_pending());
        writes.note_flush();
        assert!(poll(&mut body).is_pending(), "the transport looks for a cancellation first");
        assert!(matches!(poll(&mut body), Poll::Ready(None)) && body.is_end_stream());
        drop(body);
        expect_held(&store, true).await;
    }
}

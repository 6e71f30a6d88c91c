//! Tells when a connection has written a response.
//!
//! A transport flushes its socket only after it has written everything that it had
//! queued, so flushes are counted.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
};

use http::Version;
use parking_lot::{Mutex, MutexGuard};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Called once everything that was queued has been written. Dropped without a call if the
/// connection ends before that.
type Kept = Box<dyn FnOnce() + Send>;

/// The writes of one connection; travels with each of its requests. Cheap to
/// clone.
#[derive(Clone, Debug)]
pub(crate) struct Writes {
    shared: Arc<Shared>,
    is_http2: bool,
}

#[derive(Debug, Default)]
struct Shared {
    flushes: AtomicU64,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    /// At most one for each open stream.
    wakers: Vec<Waker>,
    /// At most one for a connection that answers one call at a time.
    kept: Vec<Kept>,
    closed: bool,
}

impl std::fmt::Debug for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiting").field("closed", &self.closed).finish_non_exhaustive()
    }
}

impl Default for Writes {
    fn default() -> Self {
        Self { shared: Arc::default(), is_http2: true }
    }
}

impl Writes {
    /// The same, for a request of this version.
    pub(crate) fn of(&self, version: Version) -> Self {
        Self { is_http2: version == Version::HTTP_2, ..self.clone() }
    }

    /// Whether answers are taken ahead of the socket, and dropped if the caller
    /// cancels before they are written.
    pub(super) fn is_http2(&self) -> bool {
        self.is_http2
    }

    /// Notes that all that was put together has been written.
    pub(super) fn note_flush(&self) {
        self.shared.flushes.fetch_add(1, Ordering::SeqCst);
        let (wakers, kept) = {
            let mut waiting = self.waiting();
            (std::mem::take(&mut waiting.wakers), std::mem::take(&mut waiting.kept))
        };
        kept.into_iter().for_each(|keep| keep());
        wakers.into_iter().for_each(Waker::wake);
    }

    /// How many flushes there were so far.
    pub(super) fn flushes(&self) -> u64 {
        self.shared.flushes.load(Ordering::SeqCst)
    }

    /// Ready once `is_written` says so, which is asked again at every flush.
    pub(super) fn poll_until(
        &self,
        is_written: impl Fn() -> bool,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        let mut waiting = self.waiting();
        if is_written() {
            return Poll::Ready(());
        }
        if !waiting.wakers.iter().any(|waker| waker.will_wake(context.waker())) {
            waiting.wakers.push(context.waker().clone());
        }
        Poll::Pending
    }

    /// Has this done at the next flush, or dropped if there is none.
    pub(super) fn at_flush(&self, keep: Kept) {
        let mut waiting = self.waiting();
        if !waiting.closed {
            waiting.kept.push(keep);
        }
    }

    /// No more is written.
    fn close(&self) {
        let kept = {
            let mut waiting = self.waiting();
            waiting.closed = true;
            std::mem::take(&mut waiting.kept)
        };
        drop(kept);
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.shared.waiting.lock()
    }
}

/// A connection that counts its flushes.
#[derive(Debug)]
pub(crate) struct FlushTracker<S> {
    stream: S,
    writes: Writes,
}

impl<S> FlushTracker<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, writes: Writes::default() }
    }

    /// What it writes.
    pub(crate) fn writes(&self) -> Writes {
        self.writes.clone()
    }
}

impl<S> Drop for FlushTracker<S> {
    fn drop(&mut self) {
        self.writes.close();
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for FlushTracker<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FlushTracker<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, buffer)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        if matches!(flushed, Poll::Ready(Ok(()))) {
            self.writes.note_flush();
        }
        flushed
    }

    fn poll_shutdown(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, sync::atomic::AtomicBool};

    use tokio::io::AsyncWriteExt as _;

    use super::*;
    use crate::cork::Corked;

    #[tokio::test]
    async fn a_flush_wakes_who_waits_for_it_and_a_write_alone_does_not() {
        let mut stream = FlushTracker::new(tokio::io::sink());
        let writes = stream.writes();
        let waiting = tokio::spawn({
            let writes = writes.clone();
            poll_fn(move |context| writes.poll_until(|| writes.flushes() > 0, context))
        });
        stream.write_all(b"answer").await.unwrap();
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        stream.flush().await.unwrap();
        waiting.await.unwrap();
    }

    #[tokio::test]
    async fn a_flush_that_gives_way_to_others_counts_when_it_has_written() {
        let mut stream = FlushTracker::new(Corked::new(tokio::io::sink(), 100));
        stream.write_all(b"answer").await.unwrap();
        for _ in 0..2 {
            assert_eq!(stream.writes().flushes(), 0);
            let _ =
                poll_fn(|context| Poll::Ready(Pin::new(&mut stream).poll_flush(context))).await;
        }
        assert_eq!(stream.writes().flushes(), 1);
    }

    #[tokio::test]
    async fn what_is_to_be_kept_is_kept_at_a_flush_and_dropped_with_the_connection() {
        let kept = |writes: &Writes| {
            let kept = Arc::new(AtomicBool::new(false));
            let keeping = Arc::clone(&kept);
            writes.at_flush(Box::new(move || keeping.store(true, Ordering::SeqCst)));
            kept
        };
        let mut stream = FlushTracker::new(tokio::io::sink());
        let writes = stream.writes();
        let first = kept(&writes);
        stream.flush().await.unwrap();
        assert!(first.load(Ordering::SeqCst));
        let second = kept(&writes);
        drop(stream);
        let third = kept(&writes);
        for lost in [second, third] {
            assert!(!lost.load(Ordering::SeqCst) && Arc::strong_count(&lost) == 1);
        }
    }
}

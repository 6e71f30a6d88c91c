//! What a connection has written, for those who must know that it has.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The writes of one connection; travels with each of its requests. Cheap to
/// clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Writes(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    count: AtomicU64,
    /// At most one for each open stream.
    waiting: Mutex<Vec<Waker>>,
}

impl Writes {
    /// Notes what came of a write to the socket.
    pub(super) fn note(&self, written: &Poll<io::Result<usize>>) {
        if matches!(written, Poll::Ready(Ok(_))) {
            self.0.count.fetch_add(1, Ordering::SeqCst);
            let waiting = std::mem::take(
                &mut *self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner),
            );
            waiting.into_iter().for_each(Waker::wake);
        }
    }

    /// How many there were so far.
    pub(crate) fn count(&self) -> u64 {
        self.0.count.load(Ordering::SeqCst)
    }

    /// Ready once there were more than `count`.
    pub(crate) fn poll_more_than(&self, count: u64, context: &mut Context<'_>) -> Poll<()> {
        let mut waiting = self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if self.count() > count {
            return Poll::Ready(());
        }
        if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            waiting.push(context.waker().clone());
        }
        Poll::Pending
    }
}

/// A connection that notes what it writes.
#[derive(Debug)]
pub(crate) struct Noted<S> {
    stream: S,
    writes: Writes,
}

impl<S> Noted<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, writes: Writes::default() }
    }

    /// What it writes.
    pub(crate) fn writes(&self) -> Writes {
        self.writes.clone()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Noted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Noted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, buffer);
        self.writes.note(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, buffers);
        self.writes.note(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
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
    use std::future::poll_fn;

    use super::*;

    #[tokio::test]
    async fn a_write_wakes_who_waits_for_it() {
        let writes = Writes::default();
        let count = writes.count();
        let waiting = tokio::spawn({
            let writes = writes.clone();
            poll_fn(move |context| writes.poll_more_than(count, context))
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        writes.note(&Poll::Ready(Ok(1)));
        waiting.await.unwrap();
    }

    #[tokio::test]
    async fn a_failed_write_is_none() {
        let writes = Writes::default();
        writes.note(&Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())));
        writes.note(&Poll::Pending);
        assert_eq!(writes.count(), 0);
    }
}

//! Connections that delay a flush by one scheduler turn.
//!
//! Writes that are queued in that turn share a system call. hyper's HTTP/2 flushes each
//! time that it is woken: the head of a request before its body, the first of fifty
//! responses. Each of these writes wakes the peer, which finds half a message and sleeps
//! again, or takes the processor from the task that has the rest (docs/decisions/0009).
//! Go's gRPC yields before a small write too (`minBatchSize` in its transport).

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, BufWriter, ReadBuf};

/// A stream whose flushes yield to the scheduler once, so that tasks that are ready may run,
/// and then write what those have added too. A flush uses no timer: if no other task is
/// ready, it continues at once. A second poll before the others have run (HTTP/2 does that
/// when it has a request to read) writes without yielding again.
///
/// A flush is complete only when everything is written, and a shutdown flushes. What is held
/// when the stream is dropped is lost.
#[derive(Debug)]
pub struct Corked<S> {
    stream: BufWriter<S>,
    /// Whether the flush under way has yielded.
    has_yielded: bool,
}

impl<S: AsyncWrite> Corked<S> {
    /// Wraps a stream. At most `held_bytes_max` bytes are held: a write that does not fit
    /// beside them writes them first. With 0 everything is written at once.
    pub fn new(stream: S, held_bytes_max: usize) -> Self {
        Self { stream: BufWriter::with_capacity(held_bytes_max, stream), has_yielded: false }
    }
}

impl<S: AsyncWrite> Corked<S> {
    /// The stream.
    pub fn get_ref(&self) -> &S {
        self.stream.get_ref()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Corked<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Corked<S> {
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
        if !self.has_yielded && !self.stream.buffer().is_empty() {
            self.has_yielded = true;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let flushed = ready!(Pin::new(&mut self.stream).poll_flush(context));
        self.has_yielded = false;
        Poll::Ready(flushed)
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
    use std::{
        future::poll_fn,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        task::{Wake, Waker},
    };

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// Records the bytes of each write.
    #[derive(Debug, Default)]
    struct Pieces(Vec<Vec<u8>>);

    impl AsyncWrite for Pieces {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buffer: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.0.push(buffer.to_vec());
            Poll::Ready(Ok(buffer.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    fn written(stream: &Corked<Pieces>) -> Vec<&[u8]> {
        stream.get_ref().0.iter().map(Vec::as_slice).collect()
    }

    #[tokio::test]
    async fn what_comes_while_a_flush_lets_others_first_is_written_with_it() {
        let mut stream = Corked::new(Pieces::default(), 100);
        stream.write_all(b"headers").await.unwrap();
        let first = poll_fn(|context| {
            Poll::Ready(Pin::new(&mut stream).poll_flush(context).is_pending())
        });
        assert!(first.await && written(&stream).is_empty());
        stream.write_all(b" and body").await.unwrap();
        stream.flush().await.unwrap();
        assert_eq!(written(&stream), [b"headers and body"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_flush_that_nobody_adds_to_ends_without_time() {
        let mut stream = Corked::new(Pieces::default(), 100);
        let started = tokio::time::Instant::now();
        for _ in 0..2 {
            stream.write_all(b"whole").await.unwrap();
            stream.flush().await.unwrap();
        }
        assert_eq!(written(&stream), [b"whole", b"whole"]);
        assert_eq!(started.elapsed(), std::time::Duration::ZERO);
    }

    #[tokio::test]
    async fn a_flush_of_nothing_is_done_at_once() {
        let mut stream = Corked::new(Pieces::default(), 100);
        let flushed =
            poll_fn(|context| Poll::Ready(Pin::new(&mut stream).poll_flush(context))).await;
        assert!(flushed.is_ready());
    }

    #[tokio::test]
    async fn no_more_is_held_than_may_be() {
        let mut stream = Corked::new(Pieces::default(), 8);
        stream.write_all(b"12345").await.unwrap();
        stream.write_all(b"67890").await.unwrap();
        assert_eq!(written(&stream), [b"12345"]);
        stream.write_all(b"longer than that").await.unwrap();
        assert_eq!(written(&stream), [&b"12345"[..], b"67890", b"longer than that"]);
    }

    #[tokio::test]
    async fn a_flush_that_the_peer_holds_up_waits_for_the_peer() {
        let (ours, mut theirs) = tokio::io::duplex(4);
        let mut stream = Corked::new(ours, 100);
        stream.write_all(b"12345678").await.unwrap();
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut context = Context::from_waker(&waker);
        let mut flush = |count: usize| {
            let flushed = Pin::new(&mut stream).poll_flush(&mut context);
            assert_eq!(woken.0.load(Ordering::Relaxed), count);
            flushed.is_ready()
        };
        assert!(!flush(1), "it gives way, and goes on by itself");
        assert!(!flush(1), "the peer's buffer is full");
        let mut read = [0; 4];
        theirs.read_exact(&mut read).await.unwrap();
        assert!(flush(2), "the peer has read");
    }

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn with_nothing_to_be_held_each_write_goes_as_it_comes() {
        let mut stream = Corked::new(Pieces::default(), 0);
        stream.write_all(b"one").await.unwrap();
        stream.write_all(b"two").await.unwrap();
        assert_eq!(written(&stream), [b"one", b"two"]);
    }

    #[tokio::test]
    async fn a_shutdown_writes_what_was_held() {
        let mut stream = Corked::new(Pieces::default(), 100);
        stream.write_all(b"last").await.unwrap();
        stream.shutdown().await.unwrap();
        assert_eq!(written(&stream), [b"last"]);
    }
}

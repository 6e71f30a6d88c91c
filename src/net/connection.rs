//! An accepted connection, as the server reads and writes it.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{cork::Corked, exchange::Exchange, read_timeout::ReadTimeout, writes::Writes};

/// A connection on which reading fails when its peer does not send in time, and which
/// counts its flushes.
#[derive(Debug)]
pub(crate) struct Connection<S> {
    stream: Corked<S>,
    read_timeout: ReadTimeout,
    exchange: Exchange,
    writes: Writes,
}

impl<S: AsyncWrite> Connection<S> {
    /// A connection that writes at once.
    #[cfg(test)]
    pub(crate) fn new(stream: S) -> Self {
        Self::corked(stream, 0)
    }

    /// A connection that was accepted just now. Its flushes are delayed by one scheduler turn,
    /// while it holds at most `held_bytes_max` bytes. With 0 it writes at once.
    pub(super) fn corked(stream: S, held_bytes_max: usize) -> Self {
        let exchange = Exchange::default();
        Self {
            stream: Corked::new(stream, held_bytes_max),
            read_timeout: ReadTimeout::new(exchange.clone()),
            exchange,
            writes: Writes::default(),
        }
    }
}

impl<S> Connection<S> {
    /// What it writes.
    pub(crate) fn writes(&self) -> Writes {
        self.writes.clone()
    }

    /// What it is doing, if it speaks HTTP/1.
    pub(super) fn exchange(&self) -> Exchange {
        self.exchange.clone()
    }
}

impl<S> Drop for Connection<S> {
    fn drop(&mut self) {
        self.writes.close();
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Connection<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.read_timeout.poll_expired(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        let filled_before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        self.read_timeout.note_read(&buffer.filled()[filled_before..]);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Connection<S> {
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
        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        self.writes.note_flush();
        Poll::Ready(Ok(()))
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

    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[tokio::test]
    async fn a_flush_wakes_its_waiter_and_a_write_alone_does_not() {
        let mut stream = Connection::new(tokio::io::sink());
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
    async fn a_delayed_flush_counts_once_it_has_written() {
        let mut stream = Connection::corked(tokio::io::sink(), 100);
        stream.write_all(b"answer").await.unwrap();
        for _ in 0..2 {
            assert_eq!(stream.writes().flushes(), 0);
            let _ =
                poll_fn(|context| Poll::Ready(Pin::new(&mut stream).poll_flush(context))).await;
        }
        assert_eq!(stream.writes().flushes(), 1);
    }
}

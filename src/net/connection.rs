//! An accepted connection, as the server reads and writes it.

use std::{io, task::Context};

use tokio::io::AsyncWrite;

use super::{
    cork::{Corked, Observer},
    exchange::Exchange,
    read_timeout::ReadTimeout,
    writes::Writes,
};

/// A connection on which reading fails when its peer does not send in time, and which
/// counts its flushes.
pub(crate) type Connection<S> = Corked<S, ConnectionWatch>;

/// Times reads and counts flushes.
#[derive(Debug)]
pub(crate) struct ConnectionWatch {
    read_timeout: ReadTimeout,
    exchange: Exchange,
    writes: Writes,
}

impl<S: AsyncWrite> Connection<S> {
    /// A connection that was accepted just now. Its flushes are delayed by one scheduler turn,
    /// while it holds at most `held_bytes_max` bytes. With 0 it writes at once.
    pub(crate) fn accepted(stream: S, held_bytes_max: usize) -> Self {
        let exchange = Exchange::default();
        let watch = ConnectionWatch {
            read_timeout: ReadTimeout::new(exchange.clone()),
            exchange,
            writes: Writes::default(),
        };
        Self::observed(stream, held_bytes_max, watch)
    }
}

impl<S> Connection<S> {
    /// What it writes.
    pub(crate) fn writes(&self) -> Writes {
        self.observer().writes.clone()
    }

    /// What it is doing, if it speaks HTTP/1.
    pub(super) fn exchange(&self) -> Exchange {
        self.observer().exchange.clone()
    }
}

impl Observer for ConnectionWatch {
    fn reads(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        if self.read_timeout.poll_expired(context).is_ready() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(())
    }

    fn has_read(&mut self, bytes: &[u8]) {
        self.read_timeout.note_read(bytes);
    }

    fn has_flushed(&mut self) {
        self.writes.note_flush();
    }
}

impl Drop for ConnectionWatch {
    fn drop(&mut self) {
        self.writes.close();
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, pin::Pin, task::Poll};

    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[tokio::test]
    async fn a_flush_wakes_its_waiter_and_a_write_alone_does_not() {
        let mut stream = Connection::accepted(tokio::io::sink(), 0);
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
        let mut stream = Connection::accepted(tokio::io::sink(), 100);
        stream.write_all(b"answer").await.unwrap();
        for _ in 0..2 {
            assert_eq!(stream.writes().flushes(), 0);
            let _ =
                poll_fn(|context| Poll::Ready(Pin::new(&mut stream).poll_flush(context))).await;
        }
        assert_eq!(stream.writes().flushes(), 1);
    }
}

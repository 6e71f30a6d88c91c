//! An accepted connection, as the server reads and writes it.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use leasehold_util::cork::Corked;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{answers::Answers, exchange::Exchange, read_timeout::ReadTimeout};

/// A connection on which reading fails when its peer does not send in time, and on which a
/// write settles the grants whose answers it has.
pub(crate) type Connection<S> = Corked<Watched<S>>;

/// What a connection asks the system itself, because the runtime may not know of it yet.
pub(crate) trait Transport: AsyncRead + AsyncWrite + Unpin {
    /// Reads what has arrived.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::WouldBlock`] if that is nothing.
    fn read_now(&self, buffer: &mut ReadBuf<'_>) -> io::Result<()>;

    /// Writes. `before` is called with the transport immediately before that.
    fn poll_write_after(
        &mut self,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
        before: impl Fn(&Self) -> io::Result<()>,
    ) -> Poll<io::Result<usize>>;

    /// Whether the peer would take bytes.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::WouldBlock`] if there is no room for them, and
    /// [`io::ErrorKind::BrokenPipe`] if the peer has closed the connection, or its sending side.
    fn takes_bytes(&self) -> io::Result<()>;
}

/// A transport, watched.
#[derive(Debug)]
pub(crate) struct Watched<S> {
    transport: S,
    read_timeout: ReadTimeout,
    exchange: Exchange,
    answers: Answers,
}

impl<S: Transport> Watched<S> {
    /// A connection that was accepted just now. Its flushes are delayed by one scheduler turn,
    /// while it holds at most `held_bytes_max` bytes. With 0 it writes at once.
    pub(crate) fn accepted(transport: S, held_bytes_max: usize) -> Connection<S> {
        let exchange = Exchange::default();
        let watched = Self {
            transport,
            read_timeout: ReadTimeout::new(exchange.clone()),
            exchange,
            answers: Answers::default(),
        };
        Corked::new(watched, held_bytes_max)
    }

    /// The grants whose answers it has yet to write.
    pub(crate) fn answers(&self) -> Answers {
        self.answers.clone()
    }

    /// What it is doing, if it speaks HTTP/1.
    pub(super) fn exchange(&self) -> Exchange {
        self.exchange.clone()
    }
}

impl<S: Transport> Watched<S> {
    fn poll_read_any(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.transport).poll_read(context, buffer);
        if read.is_ready() || !self.answers.are_waiting() {
            return read;
        }
        match self.transport.read_now(buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
            read => Poll::Ready(read),
        }
    }
}

impl<S: Transport> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.read_timeout.poll_expired(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        let filled_before = buffer.filled().len();
        ready!(self.poll_read_any(context, buffer))?;
        self.read_timeout.note_read(&buffer.filled()[filled_before..]);
        Poll::Ready(Ok(()))
    }
}

impl<S: Transport> AsyncWrite for Watched<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[io::IoSlice::new(buffer)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let Self { transport, answers, .. } = &mut *self;
        transport.poll_write_after(context, buffers, |transport| {
            answers.receive(|| transport.takes_bytes())
        })
    }

    fn is_write_vectored(&self) -> bool {
        self.transport.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.transport).poll_flush(context)
    }

    fn poll_shutdown(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.transport).poll_shutdown(context)
    }
}

impl<S> Drop for Watched<S> {
    fn drop(&mut self) {
        self.answers.close();
    }
}

#[cfg(test)]
pub(super) mod tests {
    use tokio::io::DuplexStream;

    use super::*;

    impl Transport for DuplexStream {
        fn read_now(&self, _: &mut ReadBuf<'_>) -> io::Result<()> {
            Err(io::ErrorKind::WouldBlock.into())
        }

        fn poll_write_after(
            &mut self,
            context: &mut Context<'_>,
            buffers: &[io::IoSlice<'_>],
            before: impl Fn(&Self) -> io::Result<()>,
        ) -> Poll<io::Result<usize>> {
            before(self)?;
            Pin::new(self).poll_write_vectored(context, buffers)
        }

        fn takes_bytes(&self) -> io::Result<()> {
            Ok(())
        }
    }
}

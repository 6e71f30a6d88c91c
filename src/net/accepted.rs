//! An accepted connection that tells when its peer has closed it.

use std::{
    io::{self, Read as _},
    net::Shutdown,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use socket2::{SockRef, Socket};
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::{TcpStream, UnixStream},
};

use super::{connection::Transport, listener::Stream};

/// A connection over TCP or a Unix socket. Cheap to clone: one clone can wait for its end
/// while another one reads and writes.
#[derive(Clone, Debug)]
pub(crate) enum Accepted {
    Tcp(Arc<TcpStream>),
    Unix(Arc<UnixStream>),
}

impl From<Stream> for Accepted {
    fn from(stream: Stream) -> Self {
        match stream {
            Stream::Tcp(stream) => stream.into(),
            Stream::Unix(stream) => stream.into(),
        }
    }
}

impl From<TcpStream> for Accepted {
    fn from(stream: TcpStream) -> Self {
        Self::Tcp(Arc::new(stream))
    }
}

impl From<UnixStream> for Accepted {
    fn from(stream: UnixStream) -> Self {
        Self::Unix(Arc::new(stream))
    }
}

macro_rules! on_either {
    ($accepted:expr, $stream:ident => $result:expr) => {
        match $accepted {
            Accepted::Tcp($stream) => $result,
            Accepted::Unix($stream) => $result,
        }
    };
}

impl Accepted {
    /// Ends when the peer has closed the connection, or its sending side, even
    /// while bytes that it sent before that are unread.
    pub(crate) async fn closed_by_peer(&self) {
        // tokio has no interest for this alone; PRIORITY includes it, and otherwise stands for
        // urgent data, which is never registered for a stream.
        // This fails only while the runtime shuts down.
        let _ = on_either!(self, stream => stream.ready(Interest::PRIORITY).await);
    }

    /// Whether the peer has closed the connection, or its sending side, even while bytes that
    /// it sent before that are unread. Asks the system, because the runtime may not know of it
    /// yet.
    pub(crate) fn is_closed_by_peer(&self) -> io::Result<bool> {
        Ok(!self.events(PollFlags::RDHUP)?.is_empty())
    }

    /// Which of these events there are now. That the connection broke is always one.
    fn events(&self, events: PollFlags) -> io::Result<PollFlags> {
        let mut polled = [on_either!(self, stream => PollFd::new(&**stream, events))];
        match poll(&mut polled, Some(&Timespec::default())) {
            Ok(_) => Ok(polled[0].revents()),
            Err(Errno::INTR) => self.events(events),
            Err(error) => Err(error.into()),
        }
    }
}

impl Transport for Accepted {
    fn read_now(&self, buffer: &mut ReadBuf<'_>) -> io::Result<()> {
        let read = on_either!(self, stream => {
            let (socket, unfilled) = (SockRef::from(&**stream), buffer.initialize_unfilled());
            (&mut &*socket as &mut &Socket).read(unfilled)
        })?;
        buffer.advance(read);
        Ok(())
    }

    fn poll_write_after(
        &mut self,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
        before: impl Fn(&Self) -> io::Result<()>,
    ) -> Poll<io::Result<usize>> {
        on_either!(&*self, stream => loop {
            ready!(stream.poll_write_ready(context))?;
            // Either one that would block makes the next wait for the system.
            let may_write = stream.try_io(Interest::WRITABLE, || before(self));
            match may_write.and_then(|()| stream.try_write_vectored(buffers)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        })
    }

    fn takes_bytes(&self) -> io::Result<()> {
        let events = self.events(PollFlags::OUT | PollFlags::RDHUP)?;
        if events.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if events == PollFlags::OUT { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    }
}

impl AsyncRead for Accepted {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        on_either!(&*self, stream => loop {
            ready!(stream.poll_read_ready(context))?;
            match stream.try_read_buf(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read.map(drop)),
            }
        })
    }
}

impl AsyncWrite for Accepted {
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
        self.poll_write_after(context, buffers, |_| Ok(()))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut_down = on_either!(&*self, stream => {
            SockRef::from(&**stream).shutdown(Shutdown::Write)
        });
        Poll::Ready(match shut_down {
            // The peer has closed it already.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            shut_down => shut_down,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
        time::timeout,
    };

    use super::*;

    async fn pairs() -> Vec<(Accepted, Accepted)> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (near, far) = tokio::join!(listener.accept(), TcpStream::connect(address));
        let tcp = (near.unwrap().0.into(), far.unwrap().into());
        let (near, far) = UnixStream::pair().unwrap();
        vec![tcp, (near.into(), far.into())]
    }

    #[tokio::test]
    async fn a_peer_that_has_left_is_noticed_behind_unread_bytes() {
        for (near, mut far) in pairs().await {
            far.write_all(b"unread").await.unwrap();
            let watch = near.clone();
            let closed = watch.closed_by_peer();
            tokio::pin!(closed);
            assert!(timeout(Duration::from_millis(20), &mut closed).await.is_err());
            drop(far);
            timeout(Duration::from_secs(10), closed).await.unwrap();
        }
    }

    #[tokio::test]
    async fn what_is_written_is_read_and_a_shutdown_is_the_end() {
        for (mut near, mut far) in pairs().await {
            let sent = vec![7; 1024 * 1024];
            let mut received = Vec::new();
            let (written, read) = tokio::join!(
                async {
                    far.write_all(&sent).await?;
                    far.shutdown().await
                },
                near.read_to_end(&mut received)
            );
            written.unwrap();
            assert_eq!((read.unwrap(), received == sent), (sent.len(), true));
        }
    }
}

//! An accepted connection, which settles the grants whose answers it writes.

use std::{
    io::{self, Read as _},
    net::Shutdown,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use leasehold_lock::Instant;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use socket2::{SockRef, Socket};
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::{TcpStream, UnixStream},
    task::coop,
};

use super::{answers::Answers, delivery::TRANSIT, listener::Stream};

/// A connection over TCP or a Unix socket. Dropping it releases the grants whose answers are not
/// written.
#[derive(Debug)]
pub struct Accepted {
    transport: Transport,
    answers: Answers,
    /// When there was last nothing left to read.
    drained: Asked,
    /// When the peer last took bytes.
    took_bytes: Asked,
}

/// When the system was last asked something about a connection. Its answer holds for [`TRANSIT`]:
/// what happened since could as well have happened while the bytes were on their way.
#[derive(Debug, Default)]
struct Asked(Option<Instant>);

impl Asked {
    fn is_recent(&self) -> bool {
        self.0.is_some_and(|at| at.elapsed() < TRANSIT)
    }

    fn now(&mut self) {
        self.0 = Some(Instant::now());
    }
}

/// The transport of a connection. Cheap to clone: one clone can wait for the connection's end
/// while the connection reads and writes.
#[derive(Clone, Debug)]
pub enum Transport {
    /// A TCP connection.
    Tcp(Arc<TcpStream>),
    /// A connection over a Unix socket.
    Unix(Arc<UnixStream>),
}

impl From<Stream> for Accepted {
    fn from(stream: Stream) -> Self {
        let transport = match stream {
            Stream::Tcp(stream) => Transport::Tcp(Arc::new(stream)),
            Stream::Unix(stream) => Transport::Unix(Arc::new(stream)),
        };
        Self {
            transport,
            answers: Answers::default(),
            drained: Asked::default(),
            took_bytes: Asked::default(),
        }
    }
}

macro_rules! on_either {
    ($transport:expr, $stream:ident => $result:expr) => {
        match $transport {
            Transport::Tcp($stream) => $result,
            Transport::Unix($stream) => $result,
        }
    };
}

impl Transport {
    /// Completes when the peer has closed the connection, or its sending side,
    /// even while bytes that it sent before that are unread.
    pub async fn closed_by_peer(&self) {
        // tokio has no interest for this alone; PRIORITY includes it, and otherwise stands for
        // urgent data, which is never registered for a stream.
        // This fails only while the runtime shuts down.
        let _ = on_either!(self, stream => stream.ready(Interest::PRIORITY).await);
    }

    /// Whether the peer has closed the connection, or its sending side, even while bytes that
    /// it sent before that are unread. Asks the system, because the runtime may not know of it
    /// yet.
    pub fn is_closed_by_peer(&self) -> io::Result<bool> {
        Ok(!self.events(PollFlags::RDHUP)?.is_empty())
    }

    /// Which of these events are pending. A broken connection is always reported.
    fn events(&self, events: PollFlags) -> io::Result<PollFlags> {
        let mut polled = [on_either!(self, stream => PollFd::new(&**stream, events))];
        match poll(&mut polled, Some(&Timespec::default())) {
            Ok(_) => Ok(polled[0].revents()),
            Err(Errno::INTR) => self.events(events),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads what has arrived. Asks the system, as [`Self::is_closed_by_peer`] does.
    ///
    /// It yields to other tasks as any read does. Otherwise a peer that keeps sending could make
    /// HTTP/2 read without end, and hold more cancelled calls than it accepts.
    fn poll_read_now(
        &self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let turn = ready!(coop::poll_proceed(context));
        let read = on_either!(self, stream => {
            let (socket, unfilled) = (SockRef::from(&**stream), buffer.initialize_unfilled());
            (&mut &*socket as &mut &Socket).read(unfilled)
        });
        match read {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
            read => {
                turn.made_progress();
                Poll::Ready(read.map(|count| buffer.advance(count)))
            }
        }
    }

    /// Whether the peer would take bytes.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::WouldBlock`] if there is no room for them, and
    /// [`io::ErrorKind::BrokenPipe`] if the peer has closed the connection, or its sending side.
    fn takes_bytes(&self) -> io::Result<()> {
        let events = self.events(PollFlags::OUT | PollFlags::RDHUP)?;
        if events.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if events == PollFlags::OUT { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    }
}

impl Accepted {
    /// The grants whose answers are not written yet.
    pub(super) fn answers(&self) -> Answers {
        self.answers.clone()
    }

    /// The transport.
    pub fn transport(&self) -> Transport {
        self.transport.clone()
    }
}

impl AsyncRead for Accepted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { transport, answers, drained, .. } = &mut *self;
        on_either!(transport, stream => loop {
            if stream.poll_read_ready(context)?.is_pending() {
                if !answers.are_waiting() || drained.is_recent() {
                    return Poll::Pending;
                }
                let read = transport.poll_read_now(context, buffer);
                if read.is_pending() {
                    drained.now();
                }
                return read;
            }
            let room = buffer.remaining();
            let mut read = Err(io::ErrorKind::WouldBlock.into());
            // A read that leaves room has drained the socket. "Would block" makes the next poll
            // wait for the system, without a second read.
            let full = stream.try_io(Interest::READABLE, || {
                read = stream.try_read_buf(buffer);
                match read {
                    Ok(count) if count == 0 || count == room => Ok(()),
                    _ => Err(io::ErrorKind::WouldBlock.into()),
                }
            });
            if full.is_err() {
                drained.now();
            }
            match read {
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
        let Self { transport, answers, took_bytes, .. } = &mut *self;
        on_either!(&*transport, stream => loop {
            ready!(stream.poll_write_ready(context))?;
            // If either would block, the next call waits for the system.
            let may_write = stream.try_io(Interest::WRITABLE, || {
                answers.receive(|| {
                    if !took_bytes.is_recent() {
                        transport.takes_bytes()?;
                        took_bytes.now();
                    }
                    Ok(())
                })
            });
            match may_write.and_then(|()| stream.try_write_vectored(buffers)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        })
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut_down = on_either!(&self.transport, stream => {
            SockRef::from(&**stream).shutdown(Shutdown::Write)
        });
        Poll::Ready(match shut_down {
            // The peer has closed it already.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            shut_down => shut_down,
        })
    }
}

impl Drop for Accepted {
    fn drop(&mut self) {
        self.answers.close();
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
        let tcp = [near.unwrap().0, far.unwrap()].map(|stream| Stream::Tcp(stream).into());
        let (near, far) = UnixStream::pair().unwrap();
        let unix = [near, far].map(|stream| Stream::Unix(stream).into());
        [tcp, unix].map(|[near, far]| (near, far)).into()
    }

    #[tokio::test]
    async fn a_peer_that_has_left_is_noticed_behind_unread_bytes() {
        for (near, mut far) in pairs().await {
            far.write_all(b"unread").await.unwrap();
            let watch = near.transport();
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

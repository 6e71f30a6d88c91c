//! Connections whose peer sends nothing.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

/// What HTTP/2 begins with.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A connection on which reads fail if the peer does not start its protocol in time.
/// HTTP/2 starts with its whole connection preface, any other protocol with the first
/// byte that differs from it. After that the server's own limits apply.
#[derive(Debug)]
pub(crate) struct PrefaceTimeout<S> {
    stream: S,
    stage: Stage,
}

/// What a peer speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http2,
    /// Anything that is not HTTP/2 from its first bytes on.
    Http1,
}

#[derive(Debug)]
enum Stage {
    Awaited { deadline: Pin<Box<Sleep>>, bytes_left: &'static [u8] },
    Begun(Protocol),
}

impl<S> PrefaceTimeout<S> {
    /// A connection that has been accepted just now.
    pub(crate) fn new(stream: S, within: Duration) -> Self {
        let deadline = Box::pin(sleep(within));
        Self { stream, stage: Stage::Awaited { deadline, bytes_left: PREFACE } }
    }

    /// The connection itself.
    pub(crate) fn stream(&self) -> &S {
        &self.stream
    }

    /// What the peer speaks, once it has begun to.
    pub(crate) fn protocol(&self) -> Option<Protocol> {
        match self.stage {
            Stage::Awaited { .. } => None,
            Stage::Begun(protocol) => Some(protocol),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for PrefaceTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Stage::Awaited { deadline, .. } = &mut self.stage
            && deadline.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        let filled_before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let read = &buffer.filled()[filled_before..];
        if let Stage::Awaited { bytes_left, .. } = &mut self.stage {
            let (compared, rest) = bytes_left.split_at(read.len().min(bytes_left.len()));
            if !read.starts_with(compared) {
                self.stage = Stage::Begun(Protocol::Http1);
            } else if rest.is_empty() {
                self.stage = Stage::Begun(Protocol::Http2);
            } else {
                *bytes_left = rest;
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for PrefaceTimeout<S> {
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
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    const WITHIN: Duration = Duration::from_secs(10);

    /// How reading ends after these bytes and a long silence, if it does.
    async fn after(bytes: &[u8]) -> Option<io::ErrorKind> {
        let (mut peer, stream) = duplex(64);
        let mut opening = PrefaceTimeout::new(stream, WITHIN);
        peer.write_all(bytes).await.unwrap();
        let reading = async {
            loop {
                if let Err(error) = opening.read(&mut [0; 5]).await {
                    return error.kind();
                }
            }
        };
        tokio::time::timeout(10 * WITHIN, reading).await.ok()
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_not_begun_to_speak_in_time_is_not_read_any_more() {
        for bytes in [&b""[..], b"P", &PREFACE[..23]] {
            assert_eq!(after(bytes).await, Some(io::ErrorKind::TimedOut), "{bytes:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_begun_may_be_silent() {
        for bytes in [&PREFACE[..], b"G", b"PRI * HTTP/1.1", b"\0"] {
            assert_eq!(after(bytes).await, None, "{bytes:?}");
        }
    }
}

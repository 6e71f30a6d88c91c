//! Closes a connection whose peer does not start its protocol in time.

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

/// The beginning of HTTP/2.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// How long a peer may take to start its protocol.
const PREFACE_TIMEOUT: Duration = Duration::from_secs(10);

/// A stream on which reading fails if its peer does not start its protocol in time: HTTP/2 with
/// its whole connection preface, any other protocol with the first byte that differs from it.
///
/// hyper has no such timeout before it knows the protocol. After that, keep-alive pings detect
/// silent peers of HTTP/2, and its header timeout those of HTTP/1.
#[derive(Debug)]
pub(crate) struct PrefaceTimeout<S> {
    stream: S,
    /// The rest of the preface, and until when it is awaited; `None` once the protocol is known.
    awaited: Option<(&'static [u8], Pin<Box<Sleep>>)>,
}

impl<S> PrefaceTimeout<S> {
    /// Wraps a stream that was accepted just now.
    pub(super) fn new(stream: S) -> Self {
        Self { stream, awaited: Some((PREFACE, Box::pin(sleep(PREFACE_TIMEOUT)))) }
    }

    /// Processes what was read; `bytes` is empty at the end of the stream.
    fn note_read(&mut self, bytes: &[u8]) {
        let Some((preface, _)) = &mut self.awaited else { return };
        let (compared, rest) = preface.split_at(bytes.len().min(preface.len()));
        if rest.is_empty() || !bytes.starts_with(compared) {
            self.awaited = None;
        } else {
            *preface = rest;
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for PrefaceTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some((_, deadline)) = &mut self.awaited
            && deadline.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        let filled_before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        self.note_read(&buffer.filled()[filled_before..]);
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
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
        time::timeout,
    };

    use super::*;

    const LITTLE: Duration = Duration::from_millis(10);

    struct Peers {
        client: DuplexStream,
        server: PrefaceTimeout<DuplexStream>,
    }

    impl Peers {
        fn connect() -> Self {
            let (client, stream) = duplex(1024);
            Self { client, server: PrefaceTimeout::new(stream) }
        }

        async fn send(&mut self, bytes: &[u8]) {
            self.client.write_all(bytes).await.unwrap();
            self.server.read_exact(&mut vec![0; bytes.len()]).await.unwrap();
        }

        /// Whether reading fails within this time.
        async fn is_closed_within(&mut self, time: Duration) -> bool {
            match timeout(time, self.server.read(&mut [0; 64])).await {
                Ok(read) => read.unwrap_err().kind() == io::ErrorKind::TimedOut,
                Err(_) => false,
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_does_not_start_its_protocol_in_time_is_closed() {
        for bytes in [&b""[..], b"P", &PREFACE[..23]] {
            let mut peers = Peers::connect();
            for byte in bytes {
                peers.send(&[*byte]).await;
            }
            assert!(!peers.is_closed_within(PREFACE_TIMEOUT - LITTLE).await, "{bytes:?}");
            assert!(peers.is_closed_within(2 * LITTLE).await, "{bytes:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_protocol_that_has_started_has_no_limit_here() {
        for bytes in [&PREFACE[..], b"G", b"PRI * HTTP/1.1", b"\0"] {
            let mut peers = Peers::connect();
            assert!(!peers.is_closed_within(PREFACE_TIMEOUT - LITTLE).await, "{bytes:?}");
            peers.send(bytes).await;
            assert!(!peers.is_closed_within(10 * PREFACE_TIMEOUT).await, "{bytes:?}");
        }
    }
}

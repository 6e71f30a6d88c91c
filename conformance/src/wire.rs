//! A connection whose bytes are watched, and that can be cut.

use std::{
    collections::BTreeSet,
    io,
    net::Shutdown,
    os::unix::net::UnixStream as StdUnixStream,
    path::Path,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use hyper_util::client::legacy::connect::{Connected, Connection};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::UnixStream,
};

const FRAME_HEAD_BYTES: usize = 9;
const FRAME_TYPE_HEADERS: u8 = 1;

/// What arrived over a connection so far. A case that races a cancel with a grant must know
/// whether the store sent an answer, and HTTP/2 libraries hide the answer to a cancelled call.
#[derive(Debug, Default)]
pub(crate) struct Wire {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    sockets: Vec<StdUnixStream>,
    answered: BTreeSet<u32>,
}

impl Wire {
    /// How many calls of this connection were answered, including cancelled ones.
    pub(crate) fn answered_count(&self) -> usize {
        self.lock().answered.len()
    }

    /// Closes the connection abruptly, as if the process had died.
    pub(crate) fn cut(&self) {
        for socket in self.lock().sockets.drain(..) {
            // The store may have closed the socket already.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// A Unix stream that reports what it reads to its [`Wire`].
#[derive(Debug)]
pub(crate) struct WatchedStream {
    inner: UnixStream,
    wire: Arc<Wire>,
    frames: FrameReader,
}

impl WatchedStream {
    pub(crate) async fn connect(socket: &Path, wire: Arc<Wire>) -> io::Result<Self> {
        let stream = UnixStream::connect(socket).await?.into_std()?;
        wire.lock().sockets.push(stream.try_clone()?);
        let inner = UnixStream::from_std(stream)?;
        Ok(Self { inner, wire, frames: FrameReader::default() })
    }
}

impl Connection for WatchedStream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for WatchedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buf))?;
        let this = &mut *self;
        let wire = &this.wire;
        this.frames.feed(&buf.filled()[before..], |stream| {
            wire.lock().answered.insert(stream);
        });
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for WatchedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// Finds the HEADERS frames in the bytes of a server (RFC 9113, section 4.1).
#[derive(Debug, Default)]
struct FrameReader {
    head: Vec<u8>,
    payload_bytes_left: usize,
}

impl FrameReader {
    fn feed(&mut self, mut bytes: &[u8], mut on_headers: impl FnMut(u32)) {
        while !bytes.is_empty() {
            if self.payload_bytes_left > 0 {
                let skipped = self.payload_bytes_left.min(bytes.len());
                self.payload_bytes_left -= skipped;
                bytes = &bytes[skipped..];
                continue;
            }
            let taken = (FRAME_HEAD_BYTES - self.head.len()).min(bytes.len());
            self.head.extend_from_slice(&bytes[..taken]);
            bytes = &bytes[taken..];
            if let [l1, l2, l3, kind, _flags, s1, s2, s3, s4] = self.head[..] {
                self.payload_bytes_left = u32::from_be_bytes([0, l1, l2, l3]) as usize;
                if kind == FRAME_TYPE_HEADERS {
                    on_headers(u32::from_be_bytes([s1, s2, s3, s4]) & 0x7fff_ffff);
                }
                self.head.clear();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0, 0, payload.len() as u8, kind, 0, 0, 0, 0, stream];
        bytes.extend_from_slice(payload);
        bytes
    }

    #[test]
    fn headers_are_found_however_the_bytes_are_cut() {
        let bytes =
            [frame(4, 0, &[1; 6]), frame(1, 3, b"abc"), frame(0, 3, &[1; 9]), frame(1, 5, b"")]
                .concat();
        for size in 1..bytes.len() {
            let (mut reader, mut seen) = (FrameReader::default(), Vec::new());
            for chunk in bytes.chunks(size) {
                reader.feed(chunk, |stream| seen.push(stream));
            }
            assert_eq!(seen, [3, 5], "in chunks of {size}");
        }
    }
}

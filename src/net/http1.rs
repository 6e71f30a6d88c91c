//! What an HTTP/1 connection is doing, and the limits that follow from it.
//!
//! A connection is idle, sends the headers of a request, or has a call under
//! way. Only the second is in a hurry: clients keep idle connections for their
//! next call, and a call takes as long as it takes.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use http::Version;
use http_body::{Body, Frame, SizeHint};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep},
};

use super::preface::{PrefaceTimeout, Protocol};

/// How long a client may take to send a request's headers, from their first
/// byte on.
const HEADERS_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection may be kept without a request.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// Whether a call is under way on an HTTP/1 connection, which has one at a time.
/// Never true for HTTP/2. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Exchange(Arc<Calls>);

#[derive(Debug, Default)]
struct Calls {
    is_under_way: AtomicBool,
    begun: AtomicU32,
}

impl Exchange {
    /// Notes that a request has come. It is under way until the returned value
    /// is dropped.
    pub(crate) fn begin(&self, version: Version) -> Call {
        let is_http1 = version < Version::HTTP_2;
        if is_http1 {
            self.0.is_under_way.store(true, Ordering::Relaxed);
            self.0.begun.fetch_add(1, Ordering::Relaxed);
        }
        Call(is_http1.then(|| self.clone()))
    }

    /// Whether a call is under way.
    pub(crate) fn is_under_way(&self) -> bool {
        self.0.is_under_way.load(Ordering::Relaxed)
    }

    /// How many calls have begun, for comparison with an earlier count.
    fn begun(&self) -> u32 {
        self.0.begun.load(Ordering::Relaxed)
    }
}

/// A call that is under way until this is dropped.
#[derive(Debug)]
pub(crate) struct Call(Option<Exchange>);

impl Call {
    /// The answer's body, which the call lasts as long as.
    pub(crate) fn until_sent<B>(self, body: B) -> Answer<B> {
        Answer { body, _call: self }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if let Some(exchange) = &self.0 {
            exchange.0.is_under_way.store(false, Ordering::Relaxed);
        }
    }
}

/// The body of an answer. Its call ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Answer<B> {
    body: B,
    _call: Call,
}

impl<B: Body + Unpin> Body for Answer<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A connection on which reading fails when an HTTP/1 client takes too long to
/// send the headers of a request, or sends none for long. Has no limits for
/// HTTP/2.
#[derive(Debug)]
pub(crate) struct HeaderTimeout<S> {
    stream: PrefaceTimeout<S>,
    exchange: Exchange,
    awaited: Option<Awaited>,
    /// How many calls had begun when it was last read.
    calls_seen: u32,
    /// Of what is awaited.
    deadline: Pin<Box<Sleep>>,
}

/// What is awaited while no call is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaited {
    FirstByte,
    RestOfHeaders,
}

impl<S> HeaderTimeout<S> {
    /// `exchange` tells when the headers have come.
    pub(crate) fn new(stream: PrefaceTimeout<S>, exchange: Exchange) -> Self {
        let deadline = Box::pin(sleep(IDLE_TIMEOUT));
        Self { stream, exchange, awaited: None, calls_seen: 0, deadline }
    }

    /// Awaits the start or the rest of the headers, for as long as it may take.
    fn await_headers(&mut self, awaited: Awaited) {
        let within = match awaited {
            Awaited::FirstByte => IDLE_TIMEOUT,
            Awaited::RestOfHeaders => HEADERS_TIMEOUT,
        };
        self.awaited = Some(awaited);
        self.deadline.as_mut().reset(Instant::now() + within);
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for HeaderTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.stream.protocol() == Some(Protocol::Http1) {
            let begun = this.exchange.begun();
            if this.exchange.is_under_way() {
                this.awaited = None;
            } else if this.awaited.is_none() || this.calls_seen != begun {
                this.await_headers(Awaited::FirstByte);
            }
            this.calls_seen = begun;
        }
        if this.awaited.is_some() && this.deadline.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        let filled_before = buffer.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(context, buffer);
        let has_come = buffer.filled().len() > filled_before;
        if has_come
            && this.stream.protocol() == Some(Protocol::Http1)
            && !this.exchange.is_under_way()
            && this.awaited != Some(Awaited::RestOfHeaders)
        {
            this.await_headers(Awaited::RestOfHeaders);
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for HeaderTimeout<S> {
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

    struct Connection {
        client: DuplexStream,
        server: HeaderTimeout<DuplexStream>,
        exchange: Exchange,
    }

    impl Connection {
        fn accept() -> Self {
            let (client, stream) = duplex(1024);
            let exchange = Exchange::default();
            let opening = PrefaceTimeout::new(stream, HEADERS_TIMEOUT);
            Self { client, server: HeaderTimeout::new(opening, exchange.clone()), exchange }
        }

        async fn comes(&mut self, bytes: &[u8]) {
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

    const LITTLE: Duration = Duration::from_millis(10);

    #[tokio::test(start_paused = true)]
    async fn the_time_for_headers_begins_with_their_first_byte() {
        let mut connection = Connection::accept();
        for _ in 0..3 {
            connection.comes(b"GET / HTTP/1.1\r\n").await;
            assert!(!connection.is_closed_within(HEADERS_TIMEOUT - LITTLE).await);
            connection.comes(b"\r\n").await;
            drop(connection.exchange.begin(Version::HTTP_11));
            assert!(!connection.is_closed_within(IDLE_TIMEOUT - LITTLE).await);
        }
        connection.comes(b"GET").await;
        assert!(!connection.is_closed_within(HEADERS_TIMEOUT / 2).await);
        connection.comes(b" / HTTP/1.1\r\n").await;
        assert!(connection.is_closed_within(HEADERS_TIMEOUT / 2 + LITTLE).await);
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_is_closed_in_the_end() {
        let mut connection = Connection::accept();
        connection.comes(b"GET / HTTP/1.1\r\n\r\n").await;
        drop(connection.exchange.begin(Version::HTTP_11));
        assert!(connection.is_closed_within(IDLE_TIMEOUT + LITTLE).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_takes_as_long_as_it_takes() {
        let mut connection = Connection::accept();
        connection.comes(b"GET / HTTP/1.1\r\n\r\n").await;
        let call = connection.exchange.begin(Version::HTTP_11);
        assert!(!connection.is_closed_within(2 * IDLE_TIMEOUT).await);
        connection.comes(b"body").await;
        assert!(!connection.is_closed_within(2 * IDLE_TIMEOUT).await);
        drop(call);
        assert!(connection.is_closed_within(IDLE_TIMEOUT + LITTLE).await);
    }

    #[tokio::test(start_paused = true)]
    async fn http2_has_no_limits_here() {
        let mut connection = Connection::accept();
        connection.comes(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
        connection.comes(b"frames").await;
        drop(connection.exchange.begin(Version::HTTP_2));
        assert!(!connection.is_closed_within(2 * IDLE_TIMEOUT).await);
    }
}

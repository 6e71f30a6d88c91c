//! The limits of a server, and its protocols.

use std::time::Duration;

use axum::response::Response;
use hyper_util::{
    rt::{TokioExecutor, TokioTimer},
    server::conn::auto,
};
use leasehold_lock::LockError;

/// Above every limit of waiters, so that waits never block other calls.
const STREAMS_MAX: u32 = 250_000;
/// How many bytes of an HTTP/2 stream may be received before they are read.
pub const STREAM_WINDOW_BYTES: u32 = 64 * 1024;
/// Like [`STREAM_WINDOW_BYTES`], for all streams of a connection. It must exceed what streams
/// that stay unread can take together, so that the others never wait for them. h2 also ends a
/// connection with too many small unread frames: each counts as 256 bytes, and half of this
/// is allowed.
pub const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024 * 1024;
/// How many HTTP/2 calls may be cancelled before the server has taken them up. It takes up all
/// that it has read whenever it yields to other tasks, which is after 128 reads. That is some
/// 30,000 of the shortest calls with their cancellations, so a crowd of calls that time out
/// never ends a connection.
const EARLY_RESETS_MAX: usize = 100_000;
/// The most headers of an HTTP/1 request. hyper's own limit is 100; daprd takes as many as
/// fit.
const HTTP1_HEADERS_MAX: usize = 4_096;
/// How long an HTTP/1 connection may take to send the headers of its next request, the time that
/// it is idle before them included.
const HTTP1_REQUEST_TIMEOUT: Duration = Duration::from_secs(45);
/// The interval of HTTP/2 pings, and how long an answer may take.
const PING_INTERVAL: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// The settings of a server.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The protocols that clients may use.
    pub protocols: Protocols,
    /// How many connections are served at a time.
    pub connections_max: usize,
    /// The most bytes of a request's headers.
    pub header_bytes_max: u32,
    /// How many bytes a delayed flush may hold; 0 if flushes are not delayed.
    pub held_bytes_max: usize,
    /// Makes the response to a call that failed outside its service.
    pub failed: fn(LockError) -> Response,
}

/// The protocols of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocols {
    /// HTTP/2 without TLS.
    Http2,
    /// HTTP/1, and HTTP/2 without TLS.
    Http1AndHttp2,
}

impl Config {
    /// A builder of connections with these limits.
    pub(super) fn builder(&self) -> auto::Builder<TokioExecutor> {
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(HTTP1_REQUEST_TIMEOUT)
            .max_buf_size(self.header_bytes_max as usize)
            .max_headers(HTTP1_HEADERS_MAX)
            // A client that closes its sending side counts as gone: its call ends.
            .half_close(false);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_MAX)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_pending_accept_reset_streams(EARLY_RESETS_MAX)
            // h2 counts frames that a client still sends on a stream that was answered
            // early as errors.
            .max_local_error_reset_streams(None)
            .max_header_list_size(self.header_bytes_max)
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT);
        match self.protocols {
            Protocols::Http2 => builder.http2_only(),
            Protocols::Http1AndHttp2 => builder,
        }
    }
}

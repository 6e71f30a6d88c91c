//! How long a connection waits for its peer to send.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::{Instant, Sleep, sleep};

use super::exchange::{Exchange, Phase};

/// What HTTP/2 begins with.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// How long a peer may take to start its protocol.
const PREFACE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an HTTP/1 client may take to send a request's headers, counted from their first
/// byte.
const HEADERS_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an HTTP/1 connection may stay without a request.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// The time that a connection's peer has left to send something.
///
/// It must start its protocol: HTTP/2 starts with its whole connection preface, any other
/// protocol with the first byte that differs from it. After that HTTP/2 has no limit here,
/// because the server's keep-alive pings find silent peers. An HTTP/1 client may keep a
/// connection idle for its next call, but must then send the headers of that call without
/// a long pause. A call takes as long as it takes.
#[derive(Debug)]
pub(super) struct ReadTimeout {
    awaited: Awaited,
    /// For what is awaited.
    deadline: Pin<Box<Sleep>>,
    exchange: Exchange,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaited {
    /// These bytes of HTTP/2's preface, or a first byte that differs from them.
    Preface(&'static [u8]),
    /// The first byte of an HTTP/1 request.
    Request,
    /// The rest of its headers.
    Headers,
    /// Nothing: an HTTP/1 call is under way.
    EndOfCall,
    /// Nothing: this is HTTP/2.
    Http2,
}

impl ReadTimeout {
    /// For a connection that was accepted just now. `exchange` tells what it is doing.
    pub(super) fn new(exchange: Exchange) -> Self {
        let deadline = Box::pin(sleep(PREFACE_TIMEOUT));
        Self { awaited: Awaited::Preface(PREFACE), deadline, exchange }
    }

    /// Ready when the peer has taken too long. To be called before each read.
    pub(super) fn poll_expired(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if matches!(self.awaited, Awaited::Request | Awaited::Headers | Awaited::EndOfCall) {
            match self.exchange.phase() {
                Phase::Call => self.awaited = Awaited::EndOfCall,
                Phase::Ended => self.await_request(),
                Phase::NoCall => {}
            }
        }
        match self.awaited {
            Awaited::Preface(_) | Awaited::Request | Awaited::Headers => {
                self.deadline.as_mut().poll(context)
            }
            Awaited::EndOfCall | Awaited::Http2 => Poll::Pending,
        }
    }

    /// Takes note of what was read; nothing at the end of the stream.
    pub(super) fn note_read(&mut self, bytes: &[u8]) {
        match self.awaited {
            Awaited::Preface(left) => {
                let (compared, rest) = left.split_at(bytes.len().min(left.len()));
                if !bytes.starts_with(compared) {
                    self.await_headers();
                } else if rest.is_empty() {
                    self.awaited = Awaited::Http2;
                } else {
                    self.awaited = Awaited::Preface(rest);
                }
            }
            Awaited::Request if !bytes.is_empty() => self.await_headers(),
            Awaited::Request | Awaited::Headers | Awaited::EndOfCall | Awaited::Http2 => {}
        }
    }

    fn await_request(&mut self) {
        self.exchange.await_call();
        self.awaited = Awaited::Request;
        self.deadline.as_mut().reset(Instant::now() + IDLE_TIMEOUT);
    }

    fn await_headers(&mut self) {
        self.awaited = Awaited::Headers;
        self.deadline.as_mut().reset(Instant::now() + HEADERS_TIMEOUT);
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use http::Version;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
        time::timeout,
    };

    use super::*;
    use crate::net::connection::{Connection, Watched};

    const LITTLE: Duration = Duration::from_millis(10);

    struct Peers {
        client: DuplexStream,
        server: Connection<DuplexStream>,
        exchange: Exchange,
    }

    impl Peers {
        fn connect() -> Self {
            let (client, stream) = duplex(1024);
            let server = Watched::accepted(stream, 0);
            let exchange = server.get_ref().exchange();
            Self { client, server, exchange }
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
    async fn http2_has_no_limits_here() {
        let mut peers = Peers::connect();
        peers.send(PREFACE).await;
        peers.send(b"frames").await;
        drop(peers.exchange.begin(Version::HTTP_2));
        assert!(!peers.is_closed_within(2 * IDLE_TIMEOUT).await);
    }

    #[tokio::test(start_paused = true)]
    async fn any_other_first_byte_begins_the_headers_of_http1() {
        for bytes in [&b"G"[..], b"PRI * HTTP/1.1", b"\0"] {
            let mut peers = Peers::connect();
            sleep(PREFACE_TIMEOUT - LITTLE).await;
            peers.send(bytes).await;
            assert!(!peers.is_closed_within(HEADERS_TIMEOUT - LITTLE).await, "{bytes:?}");
            assert!(peers.is_closed_within(2 * LITTLE).await, "{bytes:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_for_headers_begins_with_their_first_byte() {
        let mut peers = Peers::connect();
        for _ in 0..3 {
            peers.send(b"GET / HTTP/1.1\r\n").await;
            assert!(!peers.is_closed_within(HEADERS_TIMEOUT - LITTLE).await);
            peers.send(b"\r\n").await;
            drop(peers.exchange.begin(Version::HTTP_11));
            assert!(!peers.is_closed_within(IDLE_TIMEOUT - LITTLE).await);
        }
        peers.send(b"GET").await;
        assert!(!peers.is_closed_within(HEADERS_TIMEOUT / 2).await);
        peers.send(b" / HTTP/1.1\r\n").await;
        assert!(peers.is_closed_within(HEADERS_TIMEOUT / 2 + LITTLE).await);
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_is_closed_in_the_end() {
        let mut peers = Peers::connect();
        peers.send(b"GET / HTTP/1.1\r\n\r\n").await;
        drop(peers.exchange.begin(Version::HTTP_11));
        assert!(peers.is_closed_within(IDLE_TIMEOUT + LITTLE).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_takes_as_long_as_it_takes() {
        let mut peers = Peers::connect();
        peers.send(b"GET / HTTP/1.1\r\n\r\n").await;
        let call = peers.exchange.begin(Version::HTTP_11);
        assert!(!peers.is_closed_within(2 * IDLE_TIMEOUT).await);
        peers.send(b"body").await;
        assert!(!peers.is_closed_within(2 * IDLE_TIMEOUT).await);
        drop(call);
        assert!(peers.is_closed_within(IDLE_TIMEOUT + LITTLE).await);
    }
}

//! Accepted connections, bounded in number.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{UnixListener, UnixStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::sleep,
};
use tokio_stream::Stream;
use tonic::transport::server::Connected;
use tracing::warn;

use crate::{
    cork::Corked,
    edge::{
        flush_tracker::{FlushTracker, Writes},
        peer::Peer,
    },
    net::preface::PrefaceTimeout,
};

/// How many connections a socket serves at a time. One too many is closed at
/// once: left waiting, its caller would never know why.
const CONNECTIONS_MAX: usize = 4096;
/// Within what time a peer must have sent the HTTP/2 connection preface; later silence is
/// noticed by its pings.
const PREFACE_WITHIN: Duration = Duration::from_secs(10);
/// Room for the answers to some fifty calls.
const ANSWER_BYTES_HELD_MAX: usize = 8 * 1024;
/// How long to pause when the process has no file descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How answers are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Answers {
    /// Each response is flushed at once, so that early callers can send their next request
    /// while later ones are still served.
    #[default]
    AsTheyCome,
    /// Responses that are ready at the same time share a flush, for a backend that commits
    /// groups.
    Together,
}

/// The places for the connections of one socket. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Places(Arc<Semaphore>);

impl Places {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(CONNECTIONS_MAX)))
    }

    /// Whether nobody is connected.
    pub(super) fn all_free(&self) -> bool {
        self.0.available_permits() == CONNECTIONS_MAX
    }

    /// The connections of a listener, as they come.
    pub(super) fn incoming(
        self,
        listener: UnixListener,
        answers: Answers,
    ) -> impl Stream<Item = io::Result<Connection>> + Send {
        futures_util::stream::unfold((self, listener), move |(places, listener)| async move {
            let connection = places.accept(&listener, answers).await;
            Some((Ok(connection), (places, listener)))
        })
    }

    async fn accept(&self, listener: &UnixListener, answers: Answers) -> Connection {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => match Arc::clone(&self.0).try_acquire_owned() {
                    Ok(place) => return Connection::new(stream, answers, place),
                    Err(_) => warn!(limit = CONNECTIONS_MAX, "one connection too many, closed"),
                },
                Err(error) => {
                    warn!(%error, "a connection could not be accepted");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

/// What a call is told of its connection.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    pub(super) writes: Writes,
    pub(super) peer: Option<Peer>,
}

/// One connection; its place is free again when it ends.
pub(super) struct Connection {
    stream: PrefaceTimeout<FlushTracker<Corked<UnixStream>>>,
    peer: Option<Peer>,
    _place: OwnedSemaphorePermit,
}

impl Connection {
    fn new(stream: UnixStream, answers: Answers, place: OwnedSemaphorePermit) -> Self {
        let held_bytes_max = match answers {
            Answers::AsTheyCome => 0,
            Answers::Together => ANSWER_BYTES_HELD_MAX,
        };
        let peer = Peer::of(&stream);
        let stream = PrefaceTimeout::new(
            FlushTracker::new(Corked::new(stream, held_bytes_max)),
            PREFACE_WITHIN,
        );
        Self { stream, peer, _place: place }
    }
}

impl Connected for Connection {
    type ConnectInfo = Caller;

    fn connect_info(&self) -> Caller {
        Caller { writes: self.stream.stream().writes(), peer: self.peer }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
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

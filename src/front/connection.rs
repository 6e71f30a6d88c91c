//! One connection, from its first request to its end.

use std::{future::pending, io, time::Duration};

use bytes::BytesMut;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::{
    lost_replies::Effect,
    reply::Reply,
    request::{self, INPUT_BYTES_MAX, Request},
    session::{Answer, Session},
    verb::Pair,
};
use crate::{lock::Receipt, net::accepted::Accepted};

/// How long a connection may be silent. Clients close the connections of their pools earlier,
/// or make new ones.
const IDLE_MAX: Duration = Duration::from_secs(3600);
/// How long the rest of a request may take, and the password.
const REQUEST_WITHIN: Duration = Duration::from_secs(10);
/// How long the client may take to receive replies.
const REPLIES_WITHIN: Duration = Duration::from_secs(10);
/// Replies to requests that came together are written together, up to so many bytes.
const OUTPUT_BYTES_MAX: usize = 16 * 1024;

/// How much is received at a time, at least: all of most requests.
const INPUT_STEP_BYTES: usize = 1024;

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// It was closed, by either side. The client has probably read all replies.
    Closed,
    /// It broke, or the client did not take a reply in time.
    Broken,
}

/// A connection, and what its client may not have read yet.
pub(super) struct Connection<S> {
    stream: S,
    /// The transport below the stream, which tells when the client has closed it.
    transport: Accepted,
    session: Session,
    input: BytesMut,
    output: BytesMut,
    /// What the replies in `output` tell of.
    unsent: Vec<Unsent>,
    /// What was told of by replies since the client last sent anything.
    unread: Vec<(Pair, Effect)>,
}

/// What a reply tells of that is not sent yet.
struct Unsent {
    /// Where in the output the reply ends.
    end: usize,
    receipt: Option<Receipt>,
    effect: Option<(Pair, Effect)>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// A connection over `stream`, whose bytes go through `transport`.
    pub(super) fn new(stream: S, transport: Accepted, session: Session) -> Self {
        Self {
            stream,
            transport,
            session,
            input: BytesMut::new(),
            output: BytesMut::new(),
            unsent: Vec::new(),
            unread: Vec::new(),
        }
    }

    /// Serves until the connection ends, or until `closing`, once what came is answered.
    pub(super) async fn serve(mut self, closing: &CancellationToken) {
        let end = self.converse(closing).await.unwrap_or_else(|error| {
            debug!(%error, "a connection of the Redis front failed");
            // TLS tells so of a client that closed the connection without saying so over TLS.
            match error.kind() {
                io::ErrorKind::UnexpectedEof => End::Closed,
                _ => End::Broken,
            }
        });
        self.note_lost(end);
        let _ = timeout(REPLIES_WITHIN, self.stream.shutdown()).await;
    }

    async fn converse(&mut self, closing: &CancellationToken) -> io::Result<End> {
        loop {
            match request::take(&mut self.input) {
                Ok(Some(request)) => {
                    if request.arguments.is_empty() {
                        continue;
                    }
                    let Some(is_last) = self.answer(&request).await else {
                        return Ok(End::Closed);
                    };
                    if is_last {
                        self.send().await?;
                        return Ok(End::Closed);
                    }
                    if self.output.len() < OUTPUT_BYTES_MAX {
                        continue;
                    }
                    self.send().await?;
                }
                Ok(None) => {
                    self.send().await?;
                    if !self.receive(closing).await? {
                        return Ok(End::Closed);
                    }
                }
                Err(error) => {
                    self.add(Reply::failure(error).into());
                    self.send().await?;
                    return Ok(End::Closed);
                }
            }
        }
    }

    /// Carries out a request, and adds its reply to the output. Tells whether the connection
    /// ends with it; `None` if the client has gone meanwhile.
    async fn answer(&mut self, request: &Request) -> Option<bool> {
        let answer = tokio::select! {
            biased;
            answer = self.session.serve(request) => answer,
            () = self.transport.closed_by_peer() => return None,
        };
        let is_last = answer.is_last;
        self.add(answer);
        Some(is_last)
    }

    fn add(&mut self, Answer { reply, receipt, effect, .. }: Answer) {
        reply.write(self.session.protocol(), &mut self.output);
        if receipt.is_some() || effect.is_some() {
            self.unsent.push(Unsent { end: self.output.len(), receipt, effect });
        }
    }

    /// Sends the output. A grant is received once its whole reply was taken by the transport;
    /// the others are released when this fails.
    async fn send(&mut self) -> io::Result<()> {
        let mut sent = 0;
        while sent < self.output.len() {
            let writing = self.stream.write(&self.output[sent..]);
            let written = timeout(REPLIES_WITHIN, writing).await??;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            sent += written;
            let arrived = self.unsent.iter().take_while(|unsent| unsent.end <= sent).count();
            for Unsent { receipt, effect, .. } in self.unsent.drain(..arrived) {
                if let Some(receipt) = receipt {
                    receipt.accept();
                }
                self.unread.extend(effect);
            }
        }
        self.output.clear();
        timeout(REPLIES_WITHIN, self.stream.flush()).await?
    }

    /// Receives more input. Returns whether there is any.
    async fn receive(&mut self, closing: &CancellationToken) -> io::Result<bool> {
        let is_waiting = self.input.is_empty() && self.session.is_authenticated();
        let limit = if is_waiting { IDLE_MAX } else { REQUEST_WITHIN };
        debug_assert!(self.input.len() < INPUT_BYTES_MAX, "this is a request, or an error");
        self.input.reserve(INPUT_STEP_BYTES);
        let stop =
            async { if is_waiting { closing.cancelled().await } else { pending().await } };
        let received = tokio::select! {
            biased;
            received = timeout(limit, self.stream.read_buf(&mut self.input)) => received,
            () = stop => return Ok(false),
        };
        // A connection that is idle for too long is closed, not broken.
        let Ok(received) = received else { return Ok(false) };
        let is_some = received? > 0;
        if is_some {
            // Whoever goes on talking has read the replies.
            self.unread.clear();
        }
        Ok(is_some)
    }

    /// Notes what the client may not know that it has done. A lock whose reply was lost can be
    /// taken again by its value only if the connection broke: clients that use the same value
    /// in several processes, and close the connection after the reply, must still exclude each
    /// other.
    fn note_lost(&mut self, end: End) {
        let lost = &self.session.shared().locks.lost;
        let unread = self.unread.drain(..).filter(|(_, effect)| match effect {
            Effect::Released => true,
            Effect::Acquired(_) => end == End::Broken,
        });
        // A grant whose reply was not sent is released.
        let unsent = self.unsent.drain(..).filter_map(|unsent| unsent.effect);
        let unsent = unsent.filter(|(_, effect)| *effect == Effect::Released);
        for (pair, effect) in unread.chain(unsent) {
            lost.note(pair, effect);
        }
    }
}

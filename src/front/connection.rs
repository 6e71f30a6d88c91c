//! One connection, from its first request to its end.

use std::{future::pending, io, time::Duration};

use bytes::BytesMut;
use futures_util::FutureExt as _;
use leasehold_lock::Receipt;
use leasehold_net::accepted::Transport;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::{
    flights::Flights,
    reply::{Protocol, Reply},
    request::{self, INPUT_BYTES_MAX},
    session::{Answer, Session, Step, failed},
    verb::Call,
};

/// How long a connection may be silent. Clients close the connections of their pools earlier,
/// or make new ones.
const IDLE_MAX: Duration = Duration::from_secs(3600);
/// How long the rest of a request may take, and the client's authentication.
const REQUEST_WITHIN: Duration = Duration::from_secs(10);
/// How long the client may take to receive replies.
const REPLIES_WITHIN: Duration = Duration::from_secs(10);
/// Replies that are ready together are sent together, up to so many bytes.
const OUTPUT_BYTES_MAX: usize = 16 * 1024;
/// The least room for receiving: most requests fit.
const INPUT_STEP_BYTES: usize = 1024;
/// A larger buffer is freed once it is empty.
const INPUT_BYTES_KEPT: usize = 16 * 1024;

/// A connection.
pub(super) struct Connection<S> {
    stream: S,
    /// The transport below the stream, which detects when the client has closed it.
    transport: Transport,
    session: Session,
    input: BytesMut,
    /// Since when `input` has an incomplete request, or the password is missing.
    incomplete_since: Option<Instant>,
    /// A call that waits for an earlier one with the same key.
    held_back: Option<Call>,
    /// The calls under way.
    flights: Flights,
    /// Whether no more requests are read.
    is_ending: bool,
    output: BytesMut,
    /// The receipts of locks whose replies are in `output`, each with the position of its reply's
    /// end.
    unsent: Vec<(usize, Receipt)>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// A connection over `stream`, whose bytes go through `transport`.
    pub(super) fn new(stream: S, transport: Transport, session: Session) -> Self {
        Self {
            stream,
            transport,
            incomplete_since: (!session.is_authenticated()).then(Instant::now),
            session,
            input: BytesMut::new(),
            held_back: None,
            flights: Flights::default(),
            is_ending: false,
            output: BytesMut::new(),
            unsent: Vec::new(),
        }
    }

    /// Serves until the connection ends, or until `closing` and what was received is
    /// answered.
    pub(super) async fn serve(mut self, closing: &CancellationToken) {
        if let Err(error) = self.converse(closing).await {
            debug!(%error, "a connection of the Redis front failed");
        }
        // Locks whose replies were not sent are released now, before the rest is awaited.
        self.flights = Flights::default();
        self.unsent.clear();
        let _ = timeout(REPLIES_WITHIN, self.stream.shutdown()).await;
    }

    async fn converse(&mut self, closing: &CancellationToken) -> io::Result<()> {
        loop {
            self.begin();
            while self.output.len() < OUTPUT_BYTES_MAX
                && let Some(Some((protocol, answer))) = self.flights.next().now_or_never()
            {
                self.add(protocol, answer);
            }
            if !self.output.is_empty() {
                self.send().await?;
                continue;
            }
            if self.flights.is_empty() && self.is_ending {
                return Ok(());
            }
            let may_receive =
                !self.is_ending && self.held_back.is_none() && !self.flights.is_full();
            let is_idle = self.flights.is_empty();
            let limit = self.incomplete_since.map(|since| since + REQUEST_WITHIN);
            let limit = limit.or(is_idle.then(|| Instant::now() + IDLE_MAX));
            if self.input.is_empty() && self.input.capacity() > INPUT_BYTES_KEPT {
                self.input = BytesMut::new();
            }
            self.input.reserve(INPUT_STEP_BYTES);
            tokio::select! {
                biased;
                Some((protocol, answer)) = self.flights.next() => self.add(protocol, answer),
                received = self.stream.read_buf(&mut self.input), if may_receive => {
                    if received? == 0 {
                        return Ok(());
                    }
                }
                // Nothing is read meanwhile, so only the system knows that the peer has
                // closed.
                () = self.transport.closed_by_peer(), if !may_receive => return Ok(()),
                // The input has no whole request.
                () = closing.cancelled(), if is_idle => return Ok(()),
                () = until(limit), if is_idle => return Ok(()),
            }
        }
    }

    /// Begins the received requests, as far as they may run concurrently.
    fn begin(&mut self) {
        if let Some(call) = self.held_back.take() {
            self.begin_call(call);
        }
        while !self.is_ending && self.held_back.is_none() && !self.flights.is_full() {
            match request::take(&mut self.input) {
                Ok(None) => {
                    debug_assert!(self.input.len() < INPUT_BYTES_MAX, "the rest would follow");
                    break;
                }
                Ok(Some(request)) if request.arguments.is_empty() => {}
                Ok(Some(request)) => {
                    let step = self.session.read(&request);
                    if self.session.is_authenticated() {
                        self.incomplete_since = None;
                    }
                    match step {
                        Step::Locks(call) => self.begin_call(call),
                        Step::Answer(answer) => {
                            self.is_ending = answer.is_last;
                            // The reply to HELLO is in the requested protocol.
                            self.flights.add_answer(self.session.protocol(), answer);
                        }
                    }
                }
                Err(error) => {
                    self.is_ending = true;
                    let answer = Reply::failure(error).into();
                    self.flights.add_answer(self.session.protocol(), answer);
                }
            }
        }
        let is_incomplete = !self.input.is_empty() || !self.session.is_authenticated();
        if !is_incomplete {
            self.incomplete_since = None;
        } else if self.incomplete_since.is_none() {
            self.incomplete_since = Some(Instant::now());
        }
    }

    fn begin_call(&mut self, call: Call) {
        if self.flights.has_a_key_of(&call.verb) {
            self.held_back = Some(call);
            return;
        }
        let verb = call.verb.clone();
        self.flights.add(self.session.protocol(), verb, self.session.carry_out(call));
    }

    fn add(&mut self, protocol: Protocol, Answer { reply, receipt, .. }: Answer) {
        // It may have waited long for earlier replies.
        let (reply, receipt) = match receipt.as_ref().map(Receipt::check) {
            Some(Err(over)) => (failed(over), None),
            _ => (reply, receipt),
        };
        reply.write(protocol, &mut self.output);
        self.unsent.extend(receipt.map(|receipt| (self.output.len(), receipt)));
    }

    /// Sends the output. A grant is received once the transport has taken its whole reply, over
    /// TLS into its buffer; if this fails, the others are released. It fails if a grant is over
    /// before its reply is written, because the client must not read that it has the lock.
    async fn send(&mut self) -> io::Result<()> {
        // After a pause of this process, a request and the end of its connection arrive
        // together. Nobody reads the reply then, although the transport would take it.
        if !self.unsent.is_empty() && self.transport.is_closed_by_peer()? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut sent = 0;
        while sent < self.output.len() {
            if self.unsent.iter().any(|(_, receipt)| receipt.check().is_err()) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let writing = self.stream.write(&self.output[sent..]);
            let written = timeout(REPLIES_WITHIN, writing).await??;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            sent += written;
            let arrived = self.unsent.iter().take_while(|(end, _)| *end <= sent).count();
            for (_, receipt) in self.unsent.drain(..arrived) {
                receipt.accept();
            }
        }
        self.output.clear();
        timeout(REPLIES_WITHIN, self.stream.flush()).await?
    }
}

async fn until(limit: Option<Instant>) {
    match limit {
        Some(limit) => sleep_until(limit).await,
        None => pending().await,
    }
}

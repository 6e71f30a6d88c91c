//! Keep-alives of all leases, over a few streams.
//!
//! etcd answers the keep-alives of one stream one after the other, and a follower asks its
//! leader about each. So there are several streams, each with few keep-alives in flight.
//! Waiting keep-alives are sent in the order in which they are needed, by the first stream
//! that has room, so that a process with little to do uses a single stream.

use std::{
    collections::{BinaryHeap, VecDeque},
    sync::Arc,
    time::Duration,
};

use etcd_client::{Error, LeaseKeepAliveResponse, LeaseKeeper};
use parking_lot::{Mutex, MutexGuard};
use tokio::{
    sync::{Notify, oneshot},
    time::{Instant, sleep_until, timeout},
};

use crate::backend::etcd::{
    background::Background,
    client::{
        connection::{Connection, delays},
        failure::{Failure, Refusal},
        link::Link,
        silence::LastAnswer,
    },
};

/// Keep-alives that may wait to be sent: more than a process may hold grants.
const WAITING_MAX: usize = 200_000;
/// Streams. More would not get more through over a follower.
const STREAMS: usize = 8;
/// Keep-alives of a stream that may be sent and not answered.
const IN_FLIGHT_MAX: usize = 32;
/// How long a stream tries to connect before it notes the reason.
const LINK_TIMEOUT: Duration = Duration::from_secs(2);

/// A lease that was kept alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeptAlive {
    /// Its TTL, starting again.
    pub(crate) ttl_s: u64,
    /// When the keep-alive was sent.
    pub(crate) sent: Instant,
}

/// Why a lease was not kept alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeepError {
    /// It does not exist any more, and its keys are gone.
    Dead,
    /// No answer.
    Failed(Arc<str>),
}

/// A lease that is to be kept alive.
struct Ask {
    id: i64,
    needed_by: Instant,
    answer: oneshot::Sender<Result<KeptAlive, KeepError>>,
}

impl Ord for Ask {
    /// The greatest is sent first: the one that is needed earliest.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.needed_by.cmp(&self.needed_by)
    }
}

impl PartialOrd for Ask {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ask {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Ask {}

/// Keeps leases alive; a handle on the streams.
#[derive(Clone)]
pub(crate) struct Keeper(Arc<Shared>);

#[derive(Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    /// Wakes each stream when there is something for it to send.
    woken: [Notify; STREAMS],
    /// Why the last keep-alive could not be sent: the error of those whose time runs out.
    hindrance: Mutex<Option<Arc<str>>>,
}

#[derive(Default)]
struct Waiting {
    asks: BinaryHeap<Ask>,
    /// How many more keep-alives each stream has room for.
    room: [usize; STREAMS],
}

impl Keeper {
    /// Starts the streams; their tasks end with `background`.
    pub(crate) fn start(connection: &Arc<Connection>, background: &Background) -> Self {
        let shared = Arc::new(Shared::default());
        for number in 0..STREAMS {
            let stream = Stream { shared: Arc::clone(&shared), number };
            background.spawn(stream.run(Arc::clone(connection)));
        }
        Self(shared)
    }

    /// Keeps a lease alive. If the answer is lost, the keep-alive is sent again until
    /// `until`. Of the waiting ones, the one with the earliest `needed_by` is sent first.
    pub(crate) async fn keep_alive(
        &self,
        id: i64,
        needed_by: Instant,
        until: Instant,
    ) -> Result<KeptAlive, KeepError> {
        let (answer, answered) = oneshot::channel();
        if !self.0.push(Ask { id, needed_by, answer }) {
            return Err(KeepError::Failed("too many leases are to be kept alive".into()));
        }
        tokio::select! {
            biased;
            result = answered => {
                result.unwrap_or_else(|_| Err(KeepError::Failed("the store is closed".into())))
            }
            () = sleep_until(until) => Err(KeepError::Failed(self.0.hindrance())),
        }
    }
}

impl Shared {
    /// Queues a keep-alive and wakes the stream that is to send it; `false` if too many
    /// wait.
    fn push(&self, ask: Ask) -> bool {
        let mut waiting = self.waiting();
        if waiting.asks.len() >= WAITING_MAX {
            waiting.asks.retain(|ask| !ask.answer.is_closed());
            if waiting.asks.len() >= WAITING_MAX {
                return false;
            }
        }
        waiting.asks.push(ask);
        let first = waiting.room.iter().position(|room| *room > 0);
        drop(waiting);
        if let Some(woken) = first.and_then(|stream| self.woken.get(stream)) {
            woken.notify_one();
        }
        true
    }

    fn hindrance(&self) -> Arc<str> {
        let hindrance = self.hindrance.lock().clone();
        hindrance.unwrap_or_else(|| "etcd did not answer a keep-alive in time".into())
    }

    fn hindered(&self, why: Option<Arc<str>>) {
        *self.hindrance.lock() = why;
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock()
    }
}

/// Why a stream ended.
enum StreamEnd {
    /// Its lease does not exist; the stream can be opened again at once.
    NoLease,
    /// Something failed.
    Failed(Arc<str>),
    /// The login that it was opened with has expired.
    LoginExpired,
}

/// One stream, opened again whenever it ends.
struct Stream {
    shared: Arc<Shared>,
    /// Streams with a lower number are used first.
    number: usize,
}

impl Stream {
    async fn run(self, connection: Arc<Connection>) {
        let mut retry_delays = delays();
        loop {
            let first = self.next().await;
            let ended = match connection.link(Instant::now() + LINK_TIMEOUT).await {
                Ok(link) => self.serve(&connection, &link, first).await,
                Err(failure) => {
                    self.give_back(first);
                    StreamEnd::Failed(Arc::clone(failure.why()))
                }
            };
            match ended {
                StreamEnd::NoLease => retry_delays = delays(),
                StreamEnd::LoginExpired => {
                    self.take(0);
                    // A read renews the login; opening a stream does not.
                    let _ = connection.check(Instant::now() + LINK_TIMEOUT).await;
                }
                StreamEnd::Failed(why) => {
                    self.shared.hindered(Some(why));
                    // The other streams send meanwhile.
                    self.take(0);
                    retry_delays.pause().await;
                }
            }
        }
    }

    /// Notes that this stream has `room`, and takes the next keep-alive if it has any and no
    /// stream with a lower number has.
    fn take(&self, room: usize) -> Option<Ask> {
        let mut waiting = self.shared.waiting();
        let before_have_room = waiting.room.iter().take(self.number).any(|room| *room > 0);
        let ask = loop {
            if room == 0 || before_have_room {
                break None;
            }
            match waiting.asks.pop() {
                Some(ask) if ask.answer.is_closed() => {}
                popped => break popped,
            }
        };
        if let Some(own) = waiting.room.get_mut(self.number) {
            *own = room - usize::from(ask.is_some());
        }
        ask
    }

    /// Waits for a keep-alive to open the stream with.
    async fn next(&self) -> Ask {
        loop {
            if let Some(ask) = self.take(1) {
                return ask;
            }
            if let Some(woken) = self.shared.woken.get(self.number) {
                woken.notified().await;
            }
        }
    }

    /// Sends keep-alives over one stream until that ends.
    async fn serve(&self, connection: &Connection, link: &Link, first: Ask) -> StreamEnd {
        let mut leases = link.client().lease_client();
        let opened = tokio::select! {
            opened = timeout(connection.silence_max(), leases.keep_alive(first.id)) => opened,
            () = link.lost() => Ok(Err(lost())),
        };
        let (sender, mut answers) = match opened {
            Ok(Ok(opened)) => opened,
            Ok(Err(Error::LeaseKeepAliveError(_))) => {
                let _ = first.answer.send(Err(KeepError::Dead));
                return StreamEnd::NoLease;
            }
            Ok(Err(error)) => {
                let mut sent = Sent::new(&self.shared, None);
                sent.due.push_back((first, Instant::now()));
                let ended = sent.fail(connection, link, &Failure::from(error));
                self.take(0);
                sent.send_again();
                return ended;
            }
            Err(_) => {
                connection.lose(link, "no answer to a keep-alive");
                self.give_back(first);
                return StreamEnd::Failed("etcd did not answer a keep-alive".into());
            }
        };
        self.shared.hindered(None);
        // The answer to the opening keep-alive does not say the TTL, so it is sent again.
        let mut sent = Sent::new(&self.shared, Some(sender));
        let mut next = Some(first);
        let ended = loop {
            if let Some(ask) = next.take().or_else(|| self.take(sent.room())) {
                if sent.send(ask).await {
                    continue;
                }
                break sent.fail(connection, link, &Failure::from(lost()));
            }
            tokio::select! {
                biased;
                answer = answers.message() => match answer {
                    Ok(Some(answer)) => {
                        link.note(&answer);
                        sent.answered(&answer);
                    }
                    Ok(None) => break sent.fail(connection, link, &Failure::from(lost())),
                    Err(error) => break sent.fail(connection, link, &Failure::from(error)),
                },
                () = link.lost() => break StreamEnd::Failed("the connection to etcd was lost".into()),
                () = sent.silence(connection.silence_max()) => {
                    connection.lose(link, "keep-alives are not answered");
                    break StreamEnd::Failed("etcd did not answer a keep-alive".into());
                }
                () = self.woken(), if sent.room() > 0 => {}
            }
        };
        self.take(0);
        sent.send_again();
        ended
    }

    /// Leaves a keep-alive to another stream: this one has no room now.
    fn give_back(&self, ask: Ask) {
        self.take(0);
        self.shared.push(ask);
    }

    async fn woken(&self) {
        match self.shared.woken.get(self.number) {
            Some(woken) => woken.notified().await,
            None => std::future::pending().await,
        }
    }
}

/// The keep-alives that were sent over a stream and are not answered, in order.
struct Sent<'a> {
    shared: &'a Shared,
    sender: Option<LeaseKeeper>,
    due: VecDeque<(Ask, Instant)>,
    last_answer: LastAnswer,
}

impl<'a> Sent<'a> {
    fn new(shared: &'a Shared, sender: Option<LeaseKeeper>) -> Self {
        Self { shared, sender, due: VecDeque::new(), last_answer: LastAnswer::new() }
    }

    /// How many more may be sent.
    fn room(&self) -> usize {
        IN_FLIGHT_MAX - self.due.len().min(IN_FLIGHT_MAX)
    }

    /// Sends one; `false` if the stream has ended.
    async fn send(&mut self, ask: Ask) -> bool {
        let (id, now) = (ask.id, Instant::now());
        self.due.push_back((ask, now));
        let Some(sender) = &mut self.sender else { return false };
        sender.id = id;
        sender.keep_alive().await.is_ok()
    }

    /// Takes an answer. Answers come in the order of the keep-alives.
    fn answered(&mut self, answer: &LeaseKeepAliveResponse) {
        self.last_answer.note();
        while let Some((ask, sent)) = self.due.pop_front() {
            if ask.id != answer.id() {
                // etcd left it out.
                self.shared.push(ask);
                continue;
            }
            let result = match u64::try_from(answer.ttl()) {
                Ok(ttl_s) if ttl_s > 0 => Ok(KeptAlive { ttl_s, sent }),
                _ => Err(KeepError::Dead),
            };
            let _ = ask.answer.send(result);
            return;
        }
    }

    /// Waits until the stream has been silent for too long.
    async fn silence(&self, silence_max: Duration) {
        match self.due.front() {
            Some((_, sent)) => self.last_answer.silence(*sent, silence_max).await,
            None => std::future::pending().await,
        }
    }

    /// Handles a failure of the stream. If the connection is lost, the streams often notice
    /// it before any request does, and leases granted over it must not be reused. A refusal
    /// concerns only the oldest keep-alive, because etcd carries them out one after the
    /// other; but an expired login concerns all of them.
    fn fail(&mut self, connection: &Connection, link: &Link, failure: &Failure) -> StreamEnd {
        connection.failed(link, failure);
        let login = matches!(failure, Failure::Refused(Refusal::Login, _));
        if matches!(failure, Failure::Refused(..))
            && !login
            && let Some((ask, _)) = self.due.pop_front()
        {
            let _ = ask.answer.send(Err(KeepError::Failed(Arc::clone(failure.why()))));
        }
        if login {
            return StreamEnd::LoginExpired;
        }
        StreamEnd::Failed(Arc::clone(failure.why()))
    }

    /// Queues the unanswered keep-alives again.
    fn send_again(&mut self) {
        for (ask, _) in self.due.drain(..) {
            self.shared.push(ask);
        }
    }
}

fn lost() -> Error {
    Error::GRpcStatus(tonic::Status::unavailable("the keep-alive stream ended"))
}

//! Keep-alives of all leases, over a few streams.
//!
//! etcd answers the keep-alives of one stream one after the other, and a follower
//! asks its leader about each. So there are several streams, each with few
//! keep-alives in flight. What waits is sent in the order in which it is needed,
//! by the first stream that has room: a process with little to do uses one.

use std::{
    collections::{BinaryHeap, VecDeque},
    sync::Arc,
    time::Duration,
};

use etcd_client::{Error, LeaseKeepAliveResponse, LeaseKeeper};
use parking_lot::{Mutex, MutexGuard};
use tokio::{
    sync::{Notify, oneshot},
    time::{Instant, sleep, sleep_until, timeout},
};

use crate::backend::etcd::{
    background::Background,
    client::{
        connection::{Connection, Link, delays},
        failure::{Failure, Refusal},
    },
};

/// Keep-alives that wait to be sent: more than a process may hold grants.
const WAITING_MAX: usize = 200_000;
/// Streams. More would not get more through over a follower.
const STREAMS: usize = 8;
/// Keep-alives of a stream that are sent and not answered.
const IN_FLIGHT_MAX: usize = 32;
/// How long to try for a connection before the reason is noted.
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
    /// It is dead, and its keys are gone.
    Dead,
    /// No answer.
    Failed(Arc<str>),
}

struct Ask {
    id: i64,
    needed_by: Instant,
    answer: oneshot::Sender<Result<KeptAlive, KeepError>>,
}

impl Ord for Ask {
    /// The greatest is sent first: what is needed earliest.
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

/// A handle on the streams.
#[derive(Clone)]
pub(crate) struct Keeper(Arc<Shared>);

#[derive(Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    /// Tells each stream that there is something for it to send.
    woken: [Notify; STREAMS],
    /// Why nothing could be sent last: told to those whose time passes.
    hindrance: Mutex<Option<Arc<str>>>,
}

#[derive(Default)]
struct Waiting {
    asks: BinaryHeap<Ask>,
    /// How many more keep-alives each stream would send now.
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

    /// Keeps a lease alive. If the answer is lost, the keep-alive is sent again, until
    /// `until`. Of those that wait, the one that is needed earliest is sent first.
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
    /// Lets an ask wait, and wakes the stream that is to send it; `false` if too many
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

/// How a stream ended.
enum Ended {
    /// It can be opened again at once.
    Well,
    /// Something failed.
    Failed(Arc<str>),
    /// The login that it was opened with has expired.
    LoginExpired,
}

/// One stream, opened again whenever it ends.
struct Stream {
    shared: Arc<Shared>,
    /// The streams with a lower number send first.
    number: usize,
}

impl Stream {
    async fn run(self, connection: Arc<Connection>) {
        let mut delays = delays();
        loop {
            let first = self.next().await;
            let ended = match connection.link(Instant::now() + LINK_TIMEOUT).await {
                Ok(link) => self.serve(&connection, &link, first).await,
                Err(failure) => {
                    self.give_back(first);
                    Ended::Failed(Arc::clone(failure.why()))
                }
            };
            match ended {
                Ended::Well => delays = crate::backend::etcd::client::connection::delays(),
                Ended::LoginExpired => {
                    self.take(0);
                    // A read renews the login, which a stream does not.
                    let _ = connection.check(Instant::now() + LINK_TIMEOUT).await;
                }
                Ended::Failed(why) => {
                    self.shared.hindered(Some(why));
                    // The other streams send meanwhile.
                    self.take(0);
                    sleep(delays.next().unwrap_or(LINK_TIMEOUT)).await;
                }
            }
        }
    }

    /// The next ask, if the streams before this one have no room for it and this one
    /// would send so many more.
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

    /// Waits for something to send. Until the stream is open it sends nothing else.
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
    async fn serve(&self, connection: &Connection, link: &Link, first: Ask) -> Ended {
        let mut leases = link.client().lease_client();
        let opened = tokio::select! {
            opened = timeout(connection.silence_max(), leases.keep_alive(first.id)) => opened,
            () = link.lost() => Ok(Err(lost())),
        };
        let (sender, mut answers) = match opened {
            Ok(Ok(opened)) => opened,
            Ok(Err(Error::LeaseKeepAliveError(_))) => {
                let _ = first.answer.send(Err(KeepError::Dead));
                return Ended::Well;
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
                return Ended::Failed("etcd did not answer a keep-alive".into());
            }
        };
        self.shared.hindered(None);
        // The opening's own answer does not say the TTL, so it is asked once more.
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
                () = link.lost() => break Ended::Failed("the connection to etcd was lost".into()),
                () = sent.silence(connection.silence_max()) => {
                    connection.lose(link, "keep-alives are not answered");
                    break Ended::Failed("etcd did not answer a keep-alive".into());
                }
                () = self.woken(), if sent.room() > 0 => {}
            }
        };
        self.take(0);
        sent.send_again();
        ended
    }

    /// Lets an ask wait for another stream: this one has room for none now.
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

/// What was sent over a stream and is not answered, in order.
struct Sent<'a> {
    shared: &'a Shared,
    sender: Option<LeaseKeeper>,
    due: VecDeque<(Ask, Instant)>,
    /// When the last answer came, or the oldest of these was sent if that was later.
    progress: Instant,
}

impl<'a> Sent<'a> {
    fn new(shared: &'a Shared, sender: Option<LeaseKeeper>) -> Self {
        Self { shared, sender, due: VecDeque::new(), progress: Instant::now() }
    }

    /// How many more may be sent.
    fn room(&self) -> usize {
        IN_FLIGHT_MAX - self.due.len().min(IN_FLIGHT_MAX)
    }

    /// Sends one; `false` if the stream has ended.
    async fn send(&mut self, ask: Ask) -> bool {
        let (id, now) = (ask.id, Instant::now());
        if self.due.is_empty() {
            self.progress = now;
        }
        self.due.push_back((ask, now));
        let Some(sender) = &mut self.sender else { return false };
        sender.id = id;
        sender.keep_alive().await.is_ok()
    }

    /// Answers come in the order of the asks.
    fn answered(&mut self, answer: &LeaseKeepAliveResponse) {
        self.progress = Instant::now();
        while let Some((ask, sent)) = self.due.pop_front() {
            if ask.id != answer.id() {
                // It was left out.
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

    /// Ends when the stream has been silent for too long.
    async fn silence(&self, silence_max: Duration) {
        if self.due.is_empty() {
            std::future::pending::<()>().await;
        }
        sleep_until(self.progress + silence_max).await;
    }

    /// The stream has failed. A loss of the connection is told at once, mostly before
    /// any request notices it, so that what was granted over it is not reused. A
    /// refusal is of the oldest keep-alive alone, since etcd carries them out one after
    /// the other; but an expired login concerns all of them.
    fn fail(&mut self, connection: &Connection, link: &Link, failure: &Failure) -> Ended {
        connection.failed(link, failure);
        let login = matches!(failure, Failure::Refused(Refusal::Login, _));
        if matches!(failure, Failure::Refused(..))
            && !login
            && let Some((ask, _)) = self.due.pop_front()
        {
            let _ = ask.answer.send(Err(KeepError::Failed(Arc::clone(failure.why()))));
        }
        if login {
            return Ended::LoginExpired;
        }
        Ended::Failed(Arc::clone(failure.why()))
    }

    /// Lets what was sent wait again.
    fn send_again(&mut self) {
        for (ask, _) in self.due.drain(..) {
            self.shared.push(ask);
        }
    }
}

fn lost() -> Error {
    Error::GRpcStatus(tonic::Status::unavailable("the keep-alive stream ended"))
}

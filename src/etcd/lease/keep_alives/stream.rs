//! One stream of keep-alives.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use etcd_client::{Error, LeaseKeepAliveResponse, LeaseKeeper};
use leasehold_lock as lock;
use tokio::time::{Instant, sleep};

use super::queue::{Ask, KeptAlive, Queue};
use crate::client::{
    connection::{Connection, delays},
    failure::Failure,
    link::Link,
    silence::LastAnswer,
};

/// Keep-alives of a stream that may be sent and not answered.
const IN_FLIGHT_MAX: usize = 32;
/// How long a stream tries to connect before it notes the reason.
const LINK_TIMEOUT: Duration = Duration::from_secs(2);
/// How long an answer to an urgent keep-alive may be outstanding before other endpoints are
/// tried.
const URGENT_SILENCE_MAX: Duration = Duration::from_secs(1);

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
pub(super) struct Stream {
    queue: Arc<Queue>,
    /// Whether an answer must not be outstanding for long.
    is_urgent: bool,
}

impl Stream {
    pub(super) fn new(queue: Arc<Queue>, is_urgent: bool) -> Self {
        Self { queue, is_urgent }
    }

    pub(super) async fn run(self, connection: Arc<Connection>) {
        let mut retry_delays = delays();
        loop {
            let first = self.next().await;
            let ended = match connection.link(Instant::now() + LINK_TIMEOUT).await {
                Ok(link) => self.serve(&connection, &link, first).await,
                Err(failure) => {
                    self.queue.push(first);
                    StreamEnd::Failed(Arc::clone(failure.why()))
                }
            };
            match ended {
                StreamEnd::NoLease => retry_delays = delays(),
                StreamEnd::LoginExpired => {
                    // A read renews the login; opening a stream does not.
                    let _ = connection.check(Instant::now() + LINK_TIMEOUT).await;
                }
                StreamEnd::Failed(why) => {
                    self.queue.hindered(Some(why));
                    // The other streams send meanwhile.
                    retry_delays.pause().await;
                }
            }
        }
    }

    /// Waits for a keep-alive to open the stream with.
    async fn next(&self) -> Ask {
        loop {
            if let Some(ask) = self.queue.take() {
                return ask;
            }
            self.queue.woken.notified().await;
        }
    }

    /// Sends keep-alives over one stream until that ends.
    async fn serve(&self, connection: &Connection, link: &Link, first: Ask) -> StreamEnd {
        let mut leases = link.client().lease_client();
        let silence_max = match self.replaces(connection) {
            true => URGENT_SILENCE_MAX,
            false => connection.silence_max(),
        };
        let silent = || StreamEnd::Failed("etcd did not answer a keep-alive".into());
        let opened = tokio::select! {
            opened = leases.keep_alive(first.id) => opened,
            () = link.lost() => Err(lost()),
            () = async {
                sleep(silence_max).await;
                self.give_up(connection, link).await;
            } => {
                self.queue.push(first);
                return silent();
            }
        };
        let (sender, mut answers) = match opened {
            Ok(opened) => opened,
            Err(Error::LeaseKeepAliveError(_)) => {
                let _ = first.answer.send(Ok(None));
                return StreamEnd::NoLease;
            }
            Err(error) => {
                let mut sent = Sent::new(&self.queue, None);
                sent.due.push_back(Due::now(first));
                let ended = sent.fail(connection, link, &Failure::from(error));
                sent.send_again();
                return ended;
            }
        };
        self.queue.hindered(None);
        // The answer to the opening keep-alive does not say the TTL, so it is sent again.
        let mut sent = Sent::new(&self.queue, Some(sender));
        let mut next = Some(first);
        let ended = loop {
            if let Some(ask) = next.take().or_else(|| sent.take()) {
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
                () = async {
                    sent.silence(silence_max).await;
                    self.give_up(connection, link).await;
                } => break silent(),
                () = self.queue.woken.notified(), if sent.has_room() => {}
            }
        };
        sent.send_again();
        ended
    }

    /// Whether a silent connection is replaced by another before it is given up.
    fn replaces(&self, connection: &Connection) -> bool {
        self.is_urgent && connection.has_others()
    }

    /// Ends a connection over which an answer has been outstanding for too long.
    async fn give_up(&self, connection: &Connection, link: &Link) {
        if self.replaces(connection) {
            connection.replace(link).await;
        } else {
            connection.lose(link, "keep-alives are not answered");
        }
    }
}

/// A keep-alive that was sent and is not answered.
struct Due {
    ask: Ask,
    sent: lock::Instant,
    /// The same moment on tokio's clock.
    running: Instant,
}

impl Due {
    fn now(ask: Ask) -> Self {
        Self { ask, sent: lock::Instant::now(), running: Instant::now() }
    }
}

/// The keep-alives that were sent over a stream and are not answered, in order.
struct Sent<'a> {
    queue: &'a Queue,
    sender: Option<LeaseKeeper>,
    due: VecDeque<Due>,
    last_answer: LastAnswer,
}

impl<'a> Sent<'a> {
    fn new(queue: &'a Queue, sender: Option<LeaseKeeper>) -> Self {
        Self { queue, sender, due: VecDeque::new(), last_answer: LastAnswer::new() }
    }

    /// Whether another may be sent.
    fn has_room(&self) -> bool {
        self.due.len() < IN_FLIGHT_MAX
    }

    /// The next to be sent, if there is room for it.
    fn take(&self) -> Option<Ask> {
        if self.has_room() { self.queue.take() } else { None }
    }

    /// Sends one; `false` if the stream has ended.
    async fn send(&mut self, ask: Ask) -> bool {
        let id = ask.id;
        self.due.push_back(Due::now(ask));
        let Some(sender) = &mut self.sender else { return false };
        sender.id = id;
        sender.keep_alive().await.is_ok()
    }

    /// Takes an answer. Answers come in the order of the keep-alives.
    fn answered(&mut self, answer: &LeaseKeepAliveResponse) {
        self.last_answer.note();
        while let Some(Due { ask, sent, .. }) = self.due.pop_front() {
            if ask.id != answer.id() {
                // etcd left it out.
                self.queue.push(ask);
                continue;
            }
            let ttl_s = u64::try_from(answer.ttl()).ok().filter(|ttl_s| *ttl_s > 0);
            let _ = ask.answer.send(Ok(ttl_s.map(|ttl_s| KeptAlive { ttl_s, sent })));
            return;
        }
    }

    /// Waits until the stream has been silent for too long.
    async fn silence(&self, silence_max: Duration) {
        match self.due.front() {
            Some(due) => self.last_answer.silence(due.running, silence_max).await,
            None => std::future::pending().await,
        }
    }

    /// Handles a failure of the stream. If the connection is lost, the streams often notice
    /// it before any request does, and leases granted over it must not be reused. A refusal
    /// concerns only the oldest keep-alive, because etcd carries them out one after the
    /// other; but an expired login concerns all of them.
    fn fail(&mut self, connection: &Connection, link: &Link, failure: &Failure) -> StreamEnd {
        connection.failed(link, failure);
        let login = matches!(failure, Failure::Refused(refusal, _) if refusal.is_of_login());
        if matches!(failure, Failure::Refused(..))
            && !login
            && let Some(Due { ask, .. }) = self.due.pop_front()
        {
            let _ = ask.answer.send(Err(Failure::Unknown(Arc::clone(failure.why()))));
        }
        if login {
            return StreamEnd::LoginExpired;
        }
        StreamEnd::Failed(Arc::clone(failure.why()))
    }

    /// Queues the unanswered keep-alives again.
    fn send_again(&mut self) {
        for due in self.due.drain(..) {
            self.queue.push(due.ask);
        }
    }
}

fn lost() -> Error {
    Error::GRpcStatus(tonic::Status::unavailable("the keep-alive stream ended"))
}

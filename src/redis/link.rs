//! Keeps one connection to a server, and reconnects when it is lost.

use std::{
    collections::VecDeque,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use ::redis::{Cmd, Value};
use leasehold_lock::{BackendError, observe::Observe};
use leasehold_util::retry::Backoff;
use parking_lot::Mutex;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::{Instant, sleep, timeout, timeout_at},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{
    errors::{describe, is_not_master, is_temporary, refused},
    failure::{Failure, describe_failure},
    hearing::Hearing,
    library::Unheard,
    peer::Peer,
    route::Route,
    session::{Greeted, OPEN_TIMEOUT, Session},
    silence::{SUSPICIOUS, outlived},
    times::TIMES,
};

const REOPEN_DELAY_MIN: Duration = Duration::from_millis(20);
/// Jitter may double it.
pub(super) const REOPEN_DELAY_MAX: Duration = Duration::from_millis(350);
/// How often the connection is checked, whether or not it is used.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// How many earlier connections are remembered, to be ended when their server is reached
/// again.
const EARLIER_MAX: usize = 8;
/// How many waiters may enter at the same time, and how many may leave.
const BACKGROUND_MAX: usize = 128;
/// For how long one of them keeps others from doing so.
const TURN_MAX: Duration = Duration::from_secs(1);
/// How many looks may be under way to one of several servers, so that one that does not answer
/// leaves room for others.
const LOOKS_MAX: usize = 32;

/// Follows the connection in use; `None` while there is none.
pub(super) type Sessions = watch::Receiver<Option<Arc<Session>>>;
/// The number of the connection over which notices about a resource are received; `None` while
/// there is none.
pub(super) type Post = Option<u64>;

/// Carries out a call that has one of the permits of [`Link::entries`] or [`Link::withdrawals`]. A
/// call that is kept waiting, as by a slot that is moved, leaves its permit to others.
pub(super) async fn in_turn<T>(turn: OwnedSemaphorePermit, call: impl Future<Output = T>) -> T {
    let mut call = pin!(call);
    let done = timeout(TURN_MAX, &mut call).await;
    drop(turn);
    match done {
        Ok(done) => done,
        Err(_) => call.await,
    }
}

/// Keeps a connection to a server.
pub(super) struct Link {
    sessions: watch::Sender<Option<Arc<Session>>>,
    operation_timeout: Duration,
    /// Why there is no connection.
    down: Mutex<Arc<str>>,
    /// Whether the messages to processes had other subscribers at the last check.
    is_monitored: AtomicBool,
    /// Limit requests that may come in thousands at once, so that others need not wait behind
    /// them.
    pub(super) withdrawals: Arc<Semaphore>,
    pub(super) entries: Arc<Semaphore>,
    /// Limits looks, if there are other servers.
    pub(super) looks: Arc<Semaphore>,
}

impl Link {
    /// A link that uses this connection first.
    pub(super) fn new(first: Option<Session>, operation_timeout: Duration) -> Self {
        Self {
            is_monitored: AtomicBool::new(first.as_ref().is_some_and(|it| it.is_monitored)),
            sessions: watch::Sender::new(first.map(Arc::new)),
            operation_timeout,
            down: Mutex::new("not connected".into()),
            withdrawals: Arc::new(Semaphore::new(BACKGROUND_MAX)),
            entries: Arc::new(Semaphore::new(BACKGROUND_MAX)),
            looks: Arc::new(Semaphore::new(LOOKS_MAX)),
        }
    }

    /// Follows the connection in use.
    pub(super) fn sessions(&self) -> Sessions {
        self.sessions.subscribe()
    }

    /// The number of the connection in use, if there is one.
    pub(super) fn number(&self) -> Option<u64> {
        self.sessions.borrow().as_ref().map(|session| session.number)
    }

    /// What a notice means that reached nobody, at a server without Sentinels. Whether clients that
    /// subscribe to a pattern receive the notices, too, is checked when a connection is opened, and
    /// each [`HEARTBEAT`].
    pub(super) fn unheard(&self) -> Unheard {
        let session = self.sessions.borrow();
        let is_new = session.as_ref().is_none_or(|s| s.opened.elapsed() < TIMES.reunion);
        if is_new {
            Unheard::InDoubt
        } else if self.is_monitored.load(Ordering::Relaxed) {
            Unheard::Monitored
        } else {
            Unheard::Gone
        }
    }

    /// Sends a plain command once.
    pub(super) async fn send(&self, request: &Cmd, until: Instant) -> Result<(), BackendError> {
        let Some(session) = self.session(until).await else {
            return Err(BackendError::Unavailable(self.down()));
        };
        let mut connection = session.connection();
        let answer = session.owed.answer(request.query_async::<Value>(&mut connection));
        match timeout_at(until, answer).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => {
                if is_not_master(&error) {
                    self.give_up(&session, describe(&error));
                }
                Err(refused(&error, false))
            }
            Err(_) => Err(BackendError::Unavailable("Redis does not answer".into())),
        }
    }

    /// Whether there is a connection.
    pub(super) fn is_connected(&self) -> bool {
        self.alive().is_some()
    }

    /// The connection in use, unless it is lost.
    pub(super) fn alive(&self) -> Option<Arc<Session>> {
        self.sessions.borrow().as_ref().filter(|session| !session.dead.is_cancelled()).cloned()
    }

    /// Waits for a connection until then.
    pub(super) async fn session(&self, until: Instant) -> Option<Arc<Session>> {
        if let Some(session) = self.alive() {
            return Some(session);
        }
        let mut sessions = self.sessions.subscribe();
        let alive = sessions.wait_for(|session| {
            session.as_ref().is_some_and(|session| !session.dead.is_cancelled())
        });
        timeout_at(until, alive).await.ok()?.ok()?.clone()
    }

    /// Ends the connection to a server that cannot be used.
    pub(super) fn give_up(&self, session: &Session, why: Arc<str>) {
        self.set_down(why);
        session.dead.cancel();
    }

    fn set_down(&self, why: Arc<str>) {
        *self.down.lock() = why;
    }

    /// Why there is no connection.
    pub(super) fn down(&self) -> Arc<str> {
        Arc::clone(&self.down.lock())
    }

    /// Reconnects whenever the connection is lost, until stopped, and reports it.
    pub(super) async fn keep(
        self: Arc<Self>,
        route: Arc<Route>,
        hearing: Hearing,
        observer: Arc<dyn Observe>,
        stop: CancellationToken,
    ) {
        stop.run_until_cancelled(async {
            let mut session = self.sessions.borrow().clone();
            let mut earlier = VecDeque::new();
            loop {
                let mut other = None;
                let is_first = session.is_none();
                if let Some(current) = session {
                    other = self.attend(&route, &hearing, &current).await;
                    earlier.truncate(EARLIER_MAX - 1);
                    earlier.push_front(current.peer.clone());
                    let server = current.master.address().to_string();
                    let is_outdated = current.is_outdated();
                    drop(current);
                    self.sessions.send_replace(None);
                    if is_outdated {
                        warn!(server, why = %self.down(), "the connection to Redis was given up");
                    } else {
                        warn!(server, "the connection to Redis was lost");
                    }
                }
                let before = earlier.make_contiguous();
                let next = Arc::new(self.reopen(&route, other, before, &hearing).await);
                // The earlier connections to this server were ended.
                earlier.retain(|peer: &Peer| !peer.may_share_server(&next.peer));
                info!(server = %next.master.address(), "connected to Redis again");
                if !is_first {
                    observer.reconnected();
                }
                self.note(next.is_monitored);
                self.sessions.send_replace(Some(Arc::clone(&next)));
                session = Some(next);
            }
        })
        .await;
        self.sessions.send_replace(None);
    }

    /// Checks the connection regularly, and returns when it is lost. If another connection
    /// answers while this one does not, returns that.
    async fn attend(
        &self,
        route: &Route,
        hearing: &Hearing,
        session: &Session,
    ) -> Option<Greeted> {
        let beat = async {
            loop {
                tokio::select! {
                    () = sleep(HEARTBEAT) => {}
                    () = session.owed.silent_for(SUSPICIOUS) => {}
                }
                match session.check().await {
                    Ok(is_monitored) => self.note(is_monitored),
                    Err(Failure::Error(error)) if is_temporary(&error) => {}
                    Err(failure) => return self.set_down(describe_failure(&failure)),
                }
            }
        };
        // A connection that is slow for this long counts as unreachable.
        let silent = session.owed.silent_for(self.operation_timeout.max(SUSPICIOUS));
        let dial = || async { Greeted::dial(route.master().await?, hearing).await };
        let other = tokio::select! {
            () = beat => None,
            () = silent => None,
            () = session.dead.cancelled() => None,
            why = route.moved_from(&session.master) => {
                self.set_down(why.into());
                session.outdate();
                None
            }
            other = outlived(session, dial) => {
                if !other.master.is_same_as(&session.master) {
                    session.outdate();
                }
                Some(other)
            }
        };
        session.dead.cancel();
        other
    }

    fn note(&self, is_monitored: bool) {
        self.is_monitored.store(is_monitored, Ordering::Relaxed);
    }

    async fn reopen(
        &self,
        route: &Route,
        mut greeted: Option<Greeted>,
        before: &[Peer],
        hearing: &Hearing,
    ) -> Session {
        let mut backoff = Backoff::new(REOPEN_DELAY_MIN, REOPEN_DELAY_MAX);
        loop {
            let greeted = greeted.take();
            let master = match &greeted {
                Some(greeted) => Ok(greeted.master.clone()),
                None => route.master().await,
            };
            let master = match master {
                Ok(master) => master,
                Err(unresolved) => {
                    self.set_down(unresolved.to_string().into());
                    backoff.pause().await;
                    continue;
                }
            };
            let opened = async {
                let greeted = match greeted {
                    Some(greeted) => greeted,
                    None => Greeted::dial(master.clone(), hearing).await?,
                };
                Session::over(greeted, before, hearing).await
            };
            let opened = async {
                let why = match timeout(OPEN_TIMEOUT, opened).await {
                    Ok(Ok(session)) => return Some(session),
                    Ok(Err(failure)) => describe_failure(&failure),
                    Err(_) => "Redis did not answer in time".into(),
                };
                self.set_down(why);
                backoff.pause().await;
                None
            };
            tokio::select! {
                opened = opened => if let Some(session) = opened { return session },
                // A server that has vanished is not waited for when another is the master.
                _ = route.moved_from(&master) => {}
            }
        }
    }
}

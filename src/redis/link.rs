//! Sends requests to Redis over one connection, and reconnects when it is lost.

use std::{
    collections::{HashSet, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use ::redis::{Cmd, RedisError, Value};
use leasehold_lock::{self as lock, BackendError, ResourceId};
use leasehold_util::retry::{Backoff, pause_before};
use parking_lot::Mutex;
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout, timeout_at},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{
    errors::{
        describe, is_from_server, is_not_loaded, is_not_master, is_out_of_memory, is_temporary,
        refused,
    },
    failure::{Failure, describe_failure},
    keys::Keys,
    library::{Form, LIBRARY, Unheard, Verb},
    peer::Peer,
    reply::Reply,
    route::Route,
    session::{Greeted, OPEN_TIMEOUT, Session},
    silence::{SUSPICIOUS, outlived},
    times::TIMES,
    waiters::Waiters,
};

const REOPEN_DELAY_MIN: Duration = Duration::from_millis(20);
const REOPEN_DELAY_MAX: Duration = Duration::from_secs(1);
/// How often the connection is checked, whether or not it is used.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// How many earlier connections are remembered, to be ended when their server is reached
/// again.
const EARLIER_MAX: usize = 8;
/// How long to wait before a request is repeated that the server refused temporarily.
const BUSY_DELAY: Duration = Duration::from_millis(50);

/// How many resources with shared grants are remembered.
const SHARED_MAX: usize = 10_000;

/// Follows the connection in use; `None` while there is none.
pub(super) type Sessions = watch::Receiver<Option<Arc<Session>>>;

/// Sends requests over the connection in use.
pub(super) struct Link {
    sessions: watch::Sender<Option<Arc<Session>>>,
    operation_timeout: Duration,
    /// Why there is no connection.
    down: Mutex<Arc<str>>,
    /// Whether the messages to processes had other subscribers at the last check.
    is_monitored: AtomicBool,
    /// Resources that had shared grants.
    shared: Mutex<HashSet<ResourceId>>,
    /// When a resource that inspection cannot read was last logged.
    pub(super) unreadable_logged: Mutex<Option<Instant>>,
}

/// The answer to a call.
pub(super) struct Answer {
    /// The value that the function returned.
    pub(super) value: Value,
    /// When the request that it answers was sent.
    pub(super) since: lock::Instant,
    /// Whether an earlier sending of the request may have been executed.
    pub(super) again: bool,
    /// The number of the connection that was used.
    pub(super) session: u64,
}

/// How one exchange ended.
enum Exchange {
    Answered(Value),
    /// The server refused the request, and did not execute it.
    Refused(RedisError),
    /// The connection was lost before the answer.
    Lost,
    /// No answer in time.
    Silent,
}

impl Link {
    /// A link that uses this connection first.
    pub(super) fn new(first: Session, operation_timeout: Duration) -> Self {
        Self {
            is_monitored: AtomicBool::new(first.is_monitored),
            sessions: watch::Sender::new(Some(Arc::new(first))),
            operation_timeout,
            down: Mutex::new("not connected".into()),
            shared: Mutex::default(),
            unreadable_logged: Mutex::default(),
        }
    }

    /// Follows the connection in use.
    pub(super) fn sessions(&self) -> Sessions {
        self.sessions.subscribe()
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

    /// Calls a verb for a resource until it is answered or `until` has passed. `arguments` adds
    /// its arguments; its second parameter says whether an earlier sending may have been
    /// executed.
    pub(super) async fn run(
        &self,
        verb: Verb,
        resource: &ResourceId,
        arguments: impl Fn(&mut Cmd, bool),
        until: Instant,
    ) -> Result<Answer, BackendError> {
        let all = Keys::All(std::slice::from_ref(resource));
        let is_expected = self.shared.lock().contains(resource);
        let keys = if is_expected { all } else { Keys::Exclusive(resource) };
        let answer = self.call(verb, keys, &arguments, false, until).await?;
        if !Reply::asks_for_readers(&answer.value) {
            return Ok(answer);
        }
        self.expect_readers(resource);
        self.call(verb, all, &arguments, answer.again, until).await
    }

    /// Remembers that this resource has shared grants, so that calls declare their keys at
    /// once.
    pub(super) fn expect_readers(&self, resource: &ResourceId) {
        let mut shared = self.shared.lock();
        if shared.len() >= SHARED_MAX {
            shared.clear();
        }
        if !shared.contains(resource) {
            shared.insert(resource.clone());
        }
    }

    /// Calls a verb with these keys. `lost` says whether an earlier sending may have been
    /// executed.
    pub(super) async fn call(
        &self,
        mut verb: Verb,
        keys: Keys<'_>,
        arguments: impl Fn(&mut Cmd, bool),
        mut lost: bool,
        until: Instant,
    ) -> Result<Answer, BackendError> {
        loop {
            let Some(session) = self.session(until).await else {
                let why = self.down();
                return Err(if lost {
                    BackendError::Unknown(why)
                } else {
                    BackendError::Unavailable(why)
                });
            };
            let since = lock::Instant::now();
            let request = |form| {
                let mut request = LIBRARY.call(form, verb, keys);
                arguments(&mut request, lost);
                request
            };
            match exchange(&session, request, until).await {
                Exchange::Answered(value) => {
                    return Ok(Answer { value, since, again: lost, session: session.number });
                }
                // The new master is asked.
                Exchange::Refused(_) if session.is_outdated() => {}
                Exchange::Refused(error) => {
                    // It has no memory for a new grant or place. The attempt may have one.
                    if is_out_of_memory(&error)
                        && let Some(instead) = verb.without_memory()
                    {
                        verb = instead;
                        continue;
                    }
                    let is_not_master = is_not_master(&error);
                    if is_not_master {
                        // The address may lead to the new master by now.
                        self.give_up(&session, describe(&error));
                    }
                    let may_pass = is_not_master || is_temporary(&error);
                    if !may_pass || !pause_before(until, BUSY_DELAY).await {
                        return Err(refused(&error, lost));
                    }
                }
                Exchange::Lost => {
                    lost = true;
                    session.dead.cancel();
                }
                Exchange::Silent => {
                    return Err(BackendError::Unknown(
                        "Redis did not answer within operationTimeout".into(),
                    ));
                }
            }
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

    /// Returns once there is a connection, or with an error at `until`.
    pub(super) async fn connected(&self, until: Instant) -> Result<(), BackendError> {
        let session = self.session(until).await;
        session.map(drop).ok_or_else(|| BackendError::Unavailable(self.down()))
    }

    /// Whether there is a connection.
    pub(super) fn is_connected(&self) -> bool {
        self.sessions.borrow().as_ref().is_some_and(|session| !session.dead.is_cancelled())
    }

    async fn session(&self, until: Instant) -> Option<Arc<Session>> {
        if let Some(session) = &*self.sessions.borrow()
            && !session.dead.is_cancelled()
        {
            return Some(Arc::clone(session));
        }
        let mut sessions = self.sessions.subscribe();
        let alive = sessions.wait_for(|session| {
            session.as_ref().is_some_and(|session| !session.dead.is_cancelled())
        });
        timeout_at(until, alive).await.ok()?.ok()?.clone()
    }

    /// Ends the connection to a server that cannot be used.
    fn give_up(&self, session: &Session, why: Arc<str>) {
        self.set_down(why);
        session.dead.cancel();
    }

    fn set_down(&self, why: Arc<str>) {
        *self.down.lock() = why;
    }

    fn down(&self) -> Arc<str> {
        Arc::clone(&self.down.lock())
    }

    /// Reconnects whenever the connection is lost, until stopped.
    pub(super) async fn keep(
        self: Arc<Self>,
        route: Arc<Route>,
        waiters: Arc<Waiters>,
        stop: CancellationToken,
    ) {
        stop.run_until_cancelled(async {
            let mut session = self.sessions.borrow().clone();
            let mut earlier = VecDeque::new();
            loop {
                let Some(current) = session else { return };
                let other = self.attend(&route, &waiters, &current).await;
                let number = current.number + 1;
                earlier.truncate(EARLIER_MAX - 1);
                earlier.push_front(current.peer.clone());
                drop(current);
                self.sessions.send_replace(None);
                warn!("the connection to Redis was lost");
                let before = earlier.make_contiguous();
                let next = Arc::new(self.reopen(&route, other, number, before, &waiters).await);
                // The earlier connections to this server were ended.
                earlier.retain(|peer: &Peer| !peer.may_share_server(&next.peer));
                info!("connected to Redis again");
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
        waiters: &Arc<Waiters>,
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
        let dial = || async { Greeted::dial(route.master().await?, Some(waiters)).await };
        let other = tokio::select! {
            () = beat => None,
            () = silent => None,
            () = session.dead.cancelled() => None,
            () = route.moved_from(&session.master) => {
                self.set_down("another server has become the master".into());
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
        number: u64,
        before: &[Peer],
        waiters: &Arc<Waiters>,
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
                    None => Greeted::dial(master.clone(), Some(waiters)).await?,
                };
                Session::over(greeted, number, before, Some(waiters)).await
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
                () = route.moved_from(&master) => {}
            }
        }
    }
}

async fn exchange(
    session: &Session,
    request: impl Fn(Form) -> Cmd,
    until: Instant,
) -> Exchange {
    let mut connection = session.connection();
    let answer = async {
        let first = request(session.form());
        match session.owed.answer(first.query_async::<Value>(&mut connection)).await {
            // It was not executed, so it is safe to send it again.
            Err(error) if is_not_loaded(&error) => {
                session.owed.answer(session.load()).await?;
                let again = request(session.form());
                session.owed.answer(again.query_async(&mut connection)).await
            }
            other => other,
        }
    };
    tokio::select! {
        biased;
        answer = timeout_at(until, answer) => match answer {
            Ok(Ok(_)) if session.is_outdated() => Exchange::Lost,
            Ok(Ok(value)) => Exchange::Answered(value),
            Ok(Err(error)) if is_from_server(&error) => Exchange::Refused(error),
            Ok(Err(_)) => Exchange::Lost,
            Err(_) => Exchange::Silent,
        },
        () = session.dead.cancelled() => Exchange::Lost,
    }
}

//! The port, over the scripts.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use ::redis::{Client, Cmd, cmd};
use async_trait::async_trait;
use futures_util::future::join_all;
use tokio::time::{Instant, sleep};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};
use tracing::debug;

use super::{
    entry,
    link::Link,
    reply::Reply,
    scripts::{PROVISIONAL, SCRIPTS, SIGN},
    session::Session,
    sign::{self, Sign},
    waiters::{Seat, Waiters},
};
use crate::lock::{
    Attempt, Backend, BackendError, Feature, FencingToken, Grant, LockId, Release, ReleaseOf,
    Renewal, Renewed, ResourceId, Settings, WaiterBudget,
};

/// How much longer than the operation timeout a wait outlives an outage.
const OUTAGE_GRACE: Duration = Duration::from_secs(1);
/// How soon a new waiter looks whether a known way of locking is before it.
const FIRST_LOOK: Duration = Duration::from_secs(1);
/// How many looks are under way at a time.
const LOOKS_MAX: usize = 64;

/// Locks in Redis.
pub(super) struct RedisBackend {
    core: Arc<Core>,
    tasks: TaskTracker,
    stop: CancellationToken,
    /// Ends the tasks of a backend that is dropped without being closed.
    _stop: DropGuard,
}

struct Core {
    link: Arc<Link>,
    waiters: Arc<Waiters>,
    budget: WaiterBudget,
    sign: Sign,
    settings: Settings,
    /// Places of waits that an outage ended, to be left when it is over.
    left: Mutex<VecDeque<Arc<Attempt>>>,
}

/// What came of asking for a place.
enum Entered {
    /// It was free.
    Granted(Grant),
    /// A place in the queue, known to this connection.
    Queued { session: u64 },
}

impl RedisBackend {
    /// A backend over a first connection. Must be called within a runtime.
    pub(super) fn new(
        client: Client,
        first: Session,
        waiters: Arc<Waiters>,
        settings: Settings,
    ) -> Self {
        let link = Arc::new(Link::new(first, settings.operation_timeout));
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        tasks.spawn(Arc::clone(&link).keep(client, Arc::clone(&waiters), stop.clone()));
        let core = Arc::new(Core {
            budget: WaiterBudget::new(settings.waiters_max),
            sign: Sign::new(waiters.process()),
            link,
            waiters,
            settings,
            left: Mutex::default(),
        });
        for task in [
            tokio_util::either::Either::Left(Arc::clone(&core).keep_looking()),
            tokio_util::either::Either::Right(Arc::clone(&core).keep_up()),
        ] {
            let stop = stop.clone();
            tasks.spawn(async move {
                stop.run_until_cancelled(task).await;
            });
        }
        Self { core, tasks, _stop: stop.clone().drop_guard(), stop }
    }
}

#[async_trait]
impl Backend for RedisBackend {
    fn features(&self) -> &'static [Feature] {
        &[Feature::Fencing, Feature::ForceUnlock, Feature::Fair, Feature::Replay]
    }

    async fn try_lock(&self, attempt: &Attempt, until: Instant) -> Result<Grant, BackendError> {
        let keys = [attempt.resource.as_str(), &entry::counter_key(&attempt.resource)];
        let rest = entry::rest(attempt);
        let arguments = |request: &mut Cmd, _| acquire_arguments(request, attempt, &rest);
        let answer = self.core.link.run(&SCRIPTS.try_lock, &keys, arguments, until).await?;
        match Reply::read(answer.value)? {
            Reply::Held { holder } => Err(BackendError::Locked { holder }),
            other => self.core.conclude(attempt, other, answer.since),
        }
    }

    async fn lock(&self, attempt: &Attempt) -> Result<Grant, BackendError> {
        let _place = self.core.budget.enter()?;
        self.core.wait(attempt).await
    }

    async fn renew(&self, renewal: &Renewal, until: Instant) -> Result<Renewed, BackendError> {
        let arguments = |request: &mut Cmd, _| {
            request.arg(renewal.lock_id.as_str()).arg(renewal.ttl.as_ms());
        };
        let keys = [renewal.resource.as_str()];
        let answer = self.core.link.run(&SCRIPTS.renew, &keys, arguments, until).await?;
        match Reply::read(answer.value)? {
            Reply::Done { .. } => {
                Ok(Renewed { ttl: renewal.ttl.duration(), since: answer.since })
            }
            Reply::Not { held } => Err(BackendError::NotHeld { held }),
            other => Err(unexpected(&other)),
        }
    }

    async fn unlock(&self, release: &Release, until: Instant) -> Result<(), BackendError> {
        match &release.of {
            ReleaseOf::Attempt(attempt) => self.core.withdraw(attempt, until).await,
            ReleaseOf::Owner(lock_id) => {
                self.core.release(release, false, lock_id.as_str(), until).await
            }
            ReleaseOf::Anyone => self.core.release(release, true, "", until).await,
        }
    }

    async fn ping(&self, until: Instant) -> Result<(), BackendError> {
        self.core.link.send(&cmd("PING"), until).await
    }

    async fn close(&self) {
        let until = Instant::now() + PROVISIONAL;
        // Without a sign of life or a subscriber its places count for nothing.
        if let Err(error) = self.core.link.send(&self.core.sign.removal(), until).await {
            debug!(%error, "the sign of life is left to its expiry");
        }
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Core {
    async fn wait(&self, attempt: &Attempt) -> Result<Grant, BackendError> {
        let seat = self.waiters.sit(attempt);
        let mut sessions = self.link.sessions();
        let mut entered = false;
        loop {
            let session = match self.enter(attempt, &seat, entered).await {
                Ok(Entered::Granted(grant)) => return Ok(grant),
                Ok(Entered::Queued { session }) => session,
                Err(error) => return Err(self.end_wait(attempt, entered, error)),
            };
            entered = true;
            tokio::select! {
                () = seat.called() => match self.confirm(attempt).await {
                    Ok(Some(grant)) => return Ok(grant),
                    Ok(None) => {}
                    Err(error) => return Err(self.end_wait(attempt, entered, error)),
                },
                // Whatever was said since was said to nobody: ask again.
                () = another_than(session, &mut sessions) => {}
            }
        }
    }

    /// Takes what is free, or a place in the queue.
    async fn enter(
        &self,
        attempt: &Attempt,
        seat: &Seat,
        entered: bool,
    ) -> Result<Entered, BackendError> {
        let keys = [attempt.resource.as_str(), &entry::counter_key(&attempt.resource)];
        let rest = entry::rest(attempt);
        let signed = Instant::now();
        let signs = entered || !self.sign.is_fresh();
        let arguments = |request: &mut Cmd, again: bool| {
            let again = again || entered;
            acquire_arguments(request, attempt, &rest);
            request
                .arg(self.waiters.process())
                .arg(u8::from(again))
                .arg(self.settings.waiters_per_resource_max)
                .arg(u8::from(again || signs));
        };
        let until = signed + self.settings.operation_timeout + OUTAGE_GRACE;
        let answer = self.link.run(&SCRIPTS.lock, &keys, arguments, until).await?;
        match Reply::read(answer.value)? {
            Reply::Queued { left_ms } => {
                if signs {
                    self.sign.given(signed);
                }
                let left = u64::try_from(left_ms).map_or(FIRST_LOOK, Duration::from_millis);
                let soon = if seat.first || entered { left.min(FIRST_LOOK) } else { left };
                self.waiters.plan(&attempt.resource, soon);
                Ok(Entered::Queued { session: answer.session })
            }
            Reply::Full => Err(BackendError::TooManyWaiters("the resource's limit is reached")),
            other => self.conclude(attempt, other, answer.since).map(Entered::Granted),
        }
    }

    /// Takes what was handed over; `None` if it is gone again.
    async fn confirm(&self, attempt: &Attempt) -> Result<Option<Grant>, BackendError> {
        let arguments = |request: &mut Cmd, _| {
            request
                .arg(attempt.ttl.as_ms())
                .arg(attempt.id.to_string())
                .arg(entry::request_id(attempt));
        };
        let until = Instant::now() + self.settings.operation_timeout + OUTAGE_GRACE;
        let keys = [attempt.resource.as_str()];
        let answer = self.link.run(&SCRIPTS.confirm, &keys, arguments, until).await?;
        match Reply::read(answer.value)? {
            Reply::Gone => Ok(None),
            other => {
                let grant = self.conclude(attempt, other, answer.since)?;
                if self.waiters.waiting(&attempt.resource) > 1 {
                    self.waiters.plan(&attempt.resource, grant.ttl);
                }
                Ok(Some(grant))
            }
        }
    }

    /// An outage ends a wait that holds nothing but a place: that is left when
    /// Redis is back, so to the caller it did not happen.
    fn end_wait(&self, attempt: &Attempt, entered: bool, error: BackendError) -> BackendError {
        if entered && matches!(error, BackendError::Unavailable(_)) {
            let mut left = self.left();
            if left.len() >= self.settings.waiters_max {
                left.pop_front();
            }
            left.push_back(Arc::new(attempt.clone()));
        }
        error
    }

    async fn withdraw(&self, attempt: &Attempt, until: Instant) -> Result<(), BackendError> {
        let keys = [attempt.resource.as_str(), &entry::counter_key(&attempt.resource)];
        let place = format!("{}{}", self.waiters.process(), entry::rest(attempt));
        let arguments = |request: &mut Cmd, _| {
            request.arg(attempt.id.to_string()).arg(&place);
        };
        let answer = self.link.run(&SCRIPTS.withdraw, &keys, arguments, until).await?;
        match Reply::read(answer.value)? {
            Reply::Done { handed } => {
                self.handed_over(&attempt.resource, handed);
                Ok(())
            }
            // The attempt is nowhere, which is all that was asked for.
            Reply::Not { .. } if answer.again => Ok(()),
            Reply::Not { held } => Err(BackendError::NotHeld { held }),
            other => Err(unexpected(&other)),
        }
    }

    async fn release(
        &self,
        release: &Release,
        force: bool,
        lock_id: &str,
        until: Instant,
    ) -> Result<(), BackendError> {
        let resource = &release.resource;
        let keys = [resource.as_str(), &entry::counter_key(resource)];
        let is_first = release.aim.bound().is_none();
        let bound = release.aim.bound_or(self.link.token_bound(resource));
        let arguments = |request: &mut Cmd, again: bool| {
            request.arg(u8::from(force)).arg(lock_id);
            if again || !is_first {
                request.arg(bound);
            } else {
                request.arg("");
            }
        };
        let answer = self.link.run(&SCRIPTS.unlock, &keys, arguments, until).await?;
        match Reply::read(answer.value)? {
            Reply::Done { handed } => {
                self.handed_over(resource, handed);
                Ok(())
            }
            Reply::Not { .. } if answer.again => Err(BackendError::Unknown(
                "the connection was lost during the release; the grant is gone now".into(),
            )),
            Reply::Not { held } => Err(BackendError::NotHeld { held }),
            other => Err(unexpected(&other)),
        }
    }

    /// Whoever hands over sees to it that a dead winner is passed over: the
    /// others may not look for a long time.
    fn handed_over(&self, resource: &ResourceId, handed: i64) {
        match handed {
            0 => {}
            1 => self.waiters.plan(resource, PROVISIONAL),
            _ => self.waiters.plan(resource, Duration::ZERO),
        }
    }

    fn conclude(
        &self,
        attempt: &Attempt,
        reply: Reply,
        since: Instant,
    ) -> Result<Grant, BackendError> {
        let grant = |token: FencingToken, lock_id: Option<LockId>, created| Grant {
            lock_id: lock_id.unwrap_or_else(|| attempt.lock_id.clone()),
            token: Some(token),
            ttl: attempt.ttl.duration(),
            since,
            created,
        };
        match reply {
            Reply::Made { token, lock_id } => {
                self.link.saw(&attempt.resource, token);
                Ok(grant(token, lock_id, true))
            }
            Reply::Found { token, lock_id } => {
                self.link.saw(&attempt.resource, token);
                Ok(grant(token, lock_id, false))
            }
            Reply::Differs => Err(BackendError::ReplayMismatch { field: "lock_id" }),
            other => Err(unexpected(&other)),
        }
    }

    /// Looks at what is due: what has expired is handed over by whoever looks.
    async fn keep_looking(self: Arc<Self>) {
        loop {
            let due = self.waiters.due(LOOKS_MAX).await;
            join_all(due.iter().map(|resource| self.look(resource))).await;
        }
    }

    async fn look(&self, resource: &ResourceId) {
        let keys = [resource.as_str(), &entry::counter_key(resource)];
        let until = Instant::now() + self.settings.operation_timeout;
        let answer = self.link.run(&SCRIPTS.look, &keys, |_, _| {}, until).await;
        let seen: Option<(i64, i64, usize)> =
            answer.ok().and_then(|answer| ::redis::from_redis_value(answer.value).ok());
        let here = self.waiters.waiting(resource);
        let waiting = here > 0;
        // The queue was deleted by hand, or with all data: nobody else knows
        // who stood in it. A few are always on their way in or out.
        if let Some((_, _, queued)) = seen
            && 2 * queued < here
        {
            self.waiters.wake_all(resource);
        }
        match seen {
            None | Some((-2, ..)) if waiting => self.waiters.plan(resource, FIRST_LOOK),
            Some((left_ms, handed, _))
                if left_ms >= 0 && (waiting || handed == 1 || left_ms == 0) =>
            {
                let left = Duration::from_millis(u64::try_from(left_ms).unwrap_or_default());
                self.waiters.plan(resource, left);
            }
            _ => {}
        }
    }

    /// Gives signs of life while anybody waits, and leaves places behind that
    /// an outage ended.
    async fn keep_up(self: Arc<Self>) {
        let mut sessions = self.link.sessions();
        loop {
            tokio::select! {
                () = self.waiters.occupied() => {}
                changed = next_session(&mut sessions) => {
                    if !changed {
                        return;
                    }
                    self.leave_places().await;
                }
            }
            while self.waiters.any() {
                let now = Instant::now();
                if self.sign.is_due()
                    && self.link.send(&self.sign.request(), now + SIGN).await.is_ok()
                {
                    self.sign.given(now);
                }
                self.leave_places().await;
                sleep(sign::PERIOD).await;
            }
        }
    }

    async fn leave_places(&self) {
        loop {
            let Some(attempt) = self.left().pop_front() else { return };
            let until = Instant::now() + self.settings.operation_timeout;
            if let Err(error) = self.withdraw(&attempt, until).await
                && !matches!(error, BackendError::NotHeld { .. })
            {
                self.left().push_front(attempt);
                return;
            }
        }
    }

    fn left(&self) -> std::sync::MutexGuard<'_, VecDeque<Arc<Attempt>>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns when this connection is no longer in service.
async fn another_than(session: u64, sessions: &mut super::link::Sessions) {
    let left = sessions.wait_for(|now| now.as_ref().is_none_or(|now| now.number != session));
    let _ = left.await.map(drop);
}

/// Whether there is another connection than there was (`true`), or there will
/// never be one again.
async fn next_session(sessions: &mut super::link::Sessions) -> bool {
    loop {
        if sessions.changed().await.is_err() {
            return false;
        }
        if sessions.borrow_and_update().is_some() {
            return true;
        }
    }
}

fn acquire_arguments(request: &mut Cmd, attempt: &Attempt, rest: &str) {
    request
        .arg(attempt.lock_id.as_str())
        .arg(attempt.ttl.as_ms())
        .arg(rest)
        .arg(attempt.id.to_string())
        .arg(entry::request_id(attempt))
        .arg(u8::from(attempt.lock_id_given));
}

fn unexpected(reply: &Reply) -> BackendError {
    debug!(?reply, "a reply of another script");
    BackendError::Unknown("the server's answer was not one of this script's".into())
}

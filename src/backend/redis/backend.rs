//! The port, over the scripts.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use ::redis::{Client, Cmd, cmd};
use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout_at},
};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};
use tracing::debug;

use super::{
    entry,
    link::Link,
    reply::Reply,
    scripts::{PROVISIONAL, SCRIPTS},
    session::Session,
    waiters::{Stray, Waiters},
};
use crate::lock::{
    Attempt, Backend, BackendError, Feature, FencingToken, Grant, LockId, Release, ReleaseOf,
    Renewal, Renewed, ResourceId, Settings, WaiterBudget, WaiterSlot,
};

/// How soon a new waiter looks whether a known way of locking is before it.
pub(super) const FIRST_LOOK: Duration = Duration::from_secs(1);

/// What it can do beyond the core.
pub(super) const FEATURES: &[Feature] =
    &[Feature::Fencing, Feature::ForceUnlock, Feature::Fair, Feature::Replay];

/// How many waiters may be entering at a time, and how many leaving.
const BACKGROUND_MAX: usize = 128;

/// Locks in Redis.
pub(super) struct RedisBackend {
    core: Arc<Core>,
    tasks: TaskTracker,
    stop: CancellationToken,
    /// Ends the tasks of a backend that is dropped without being closed.
    _stop: DropGuard,
}

/// What calls and tasks share.
pub(super) struct Core {
    pub(super) link: Arc<Link>,
    pub(super) waiters: Arc<Waiters>,
    pub(super) budget: WaiterBudget,
    pub(super) settings: Settings,
    /// Places of waits that an outage ended, to be left when it is over. They
    /// still count as waiters, which bounds them.
    pub(super) left: Mutex<VecDeque<(Arc<Attempt>, WaiterSlot)>>,
    /// Bound the requests that may come in thousands at once, so that others
    /// need not wait behind them.
    withdrawals: Semaphore,
    pub(super) entries: Semaphore,
    /// When a full queue was last searched for dead waiters.
    pub(super) searched: Mutex<HashMap<ResourceId, Instant>>,
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
            link,
            waiters,
            settings,
            left: Mutex::default(),
            withdrawals: Semaphore::new(BACKGROUND_MAX),
            entries: Semaphore::new(BACKGROUND_MAX),
            searched: Mutex::default(),
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
        FEATURES
    }

    async fn try_lock(&self, attempt: &Attempt, until: Instant) -> Result<Grant, BackendError> {
        let keys = [attempt.resource.as_str(), &entry::counter_key(&attempt.resource)];
        let rest = entry::rest(attempt);
        let arguments = |request: &mut Cmd, _| {
            acquire_arguments(request, attempt, &rest);
            request.arg(u8::from(self.core.link.is_monitored()));
        };
        let answer = self.core.link.run(&SCRIPTS.try_lock, &keys, arguments, until).await?;
        match Reply::read(answer.value)? {
            Reply::Held { holder, must_look } => {
                if must_look {
                    self.core.waiters.guard(&attempt.resource, Duration::ZERO);
                }
                Err(BackendError::Locked { holder })
            }
            other => self.core.conclude(attempt, other, answer.since),
        }
    }

    async fn lock(&self, attempt: &Attempt) -> Result<Grant, BackendError> {
        let slot = self.core.budget.enter()?;
        self.core.wait(attempt, slot).await
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
            ReleaseOf::Owner(lock_id) => self.core.release_owned(release, lock_id, until).await,
            ReleaseOf::Anyone => self.core.force(release, until).await,
        }
    }

    async fn ping(&self, until: Instant) -> Result<(), BackendError> {
        self.core.link.send(&cmd("PING"), until).await
    }

    async fn close(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Core {
    /// Ends what an attempt has come to: its grant, or its place.
    pub(super) async fn withdraw(
        &self,
        attempt: &Attempt,
        until: Instant,
    ) -> Result<(), BackendError> {
        let _turn = timeout_at(until, self.withdrawals.acquire()).await.map_err(|_| {
            BackendError::Unavailable("too many waiters leave at the same time".into())
        })?;
        let arguments = |request: &mut Cmd, _| {
            request
                .arg(attempt.id.to_string())
                .arg(entry::place(self.waiters.process(), attempt))
                .arg(0)
                .arg(u8::from(self.link.is_monitored()));
        };
        self.run_withdrawal(&attempt.resource, arguments, until).await
    }

    /// Passes a resource on that was handed over to an attempt that does not
    /// wait here. A grant is left alone: it may have been confirmed meanwhile.
    pub(super) async fn pass_on(&self, stray: &Stray) -> Result<(), BackendError> {
        let until = Instant::now() + self.settings.operation_timeout;
        let arguments = |request: &mut Cmd, _| {
            request.arg(&stray.attempt).arg("").arg(1).arg(u8::from(self.link.is_monitored()));
        };
        self.run_withdrawal(&stray.resource, arguments, until).await
    }

    async fn run_withdrawal(
        &self,
        resource: &ResourceId,
        arguments: impl Fn(&mut Cmd, bool),
        until: Instant,
    ) -> Result<(), BackendError> {
        let keys = [resource.as_str()];
        let answer = self.link.run(&SCRIPTS.withdraw, &keys, arguments, until).await?;
        match Reply::read(answer.value)? {
            Reply::Done { handed } => {
                self.handed_over(resource, handed);
                Ok(())
            }
            // The attempt is nowhere, which is all that was asked for.
            Reply::Not { .. } if answer.again => Ok(()),
            Reply::Not { held } => Err(BackendError::NotHeld { held }),
            other => Err(unexpected(&other)),
        }
    }

    /// Ends the grant of a lock ID's bearer.
    ///
    /// The first sending ends whatever the lock ID holds. If its reply is lost,
    /// it may have happened or not, and each later sending, also one of a later
    /// call, ends only what was there at the first:
    /// - A grant whose lock ID was made for it: no other grant ever has that ID.
    /// - A grant whose lock ID the caller gave, so that it may be granted again:
    ///   if its token is no greater than the server's clock at the first sending
    ///   ([`Link::token_bound`]). The clock is read as no later than it was, so
    ///   a grant that another process made a moment before (or, where tokens
    ///   are ahead of the clock, at all) can be spared, and is left to its TTL.
    /// - A lock without a record (the built-in `lock.redis`, or by hand): its
    ///   value is all that there is to compare.
    async fn release_owned(
        &self,
        release: &Release,
        lock_id: &LockId,
        until: Instant,
    ) -> Result<(), BackendError> {
        let now = || self.link.token_bound(&release.resource);
        let called_before = release.aim.called_before(now());
        let aim = |again: bool| {
            // The bound is set by the first sending, not before: only then there
            // is a connection for certain, and with it a reading of the clock. If the
            // calls before sent nothing, it is that of the first call.
            let bound = release.aim.bound_or(called_before.unwrap_or_else(now));
            if again || called_before.is_some() { bound.to_string() } else { String::new() }
        };
        self.release(release, false, lock_id.as_str(), aim, until).await
    }

    /// Ends whoever's grant it is.
    ///
    /// A force is rare: it may cost a round trip to read first what holds the
    /// resource. If the reply to its first sending is lost, each later sending
    /// ends only what was read. That needs no clock, and also aims at a lock
    /// without a record.
    async fn force(&self, release: &Release, until: Instant) -> Result<(), BackendError> {
        let is_first = release.aim.mark().is_none();
        let called_before = release.aim.called_before(0).is_some();
        let mark = match release.aim.mark() {
            Some(mark) => mark,
            // The calls before sent nothing that could end a lock, so nothing is to be
            // completed: what is there now may have been granted since.
            None if called_before => return Ok(()),
            None => release.aim.mark_or(self.read_mark(&release.resource, until).await?),
        };
        let aim =
            |again: bool| if again || !is_first { mark.to_owned() } else { String::new() };
        self.release(release, true, "", aim, until).await
    }

    async fn read_mark(
        &self,
        resource: &ResourceId,
        until: Instant,
    ) -> Result<Box<str>, BackendError> {
        let keys = [resource.as_str()];
        let answer = self.link.run(&SCRIPTS.mark, &keys, |_, _| {}, until).await;
        // It only reads: whatever became of it, nothing has changed.
        let answer = answer.map_err(|error| match error {
            BackendError::Unknown(why) => BackendError::Unavailable(why),
            other => other,
        })?;
        let mark: Option<String> = ::redis::from_redis_value(answer.value).unwrap_or_default();
        mark.map(String::into_boxed_str).ok_or(BackendError::NotHeld { held: false })
    }

    async fn release(
        &self,
        release: &Release,
        force: bool,
        lock_id: &str,
        aim: impl Fn(bool) -> String,
        until: Instant,
    ) -> Result<(), BackendError> {
        let resource = &release.resource;
        let keys = [resource.as_str(), &entry::counter_key(resource)];
        let arguments = |request: &mut Cmd, again: bool| {
            request
                .arg(u8::from(force))
                .arg(lock_id)
                .arg(aim(again))
                .arg(u8::from(self.link.is_monitored()));
        };
        let answer = self.link.run(&SCRIPTS.unlock, &keys, arguments, until).await?;
        match Reply::read(answer.value)? {
            Reply::Done { handed } => {
                self.handed_over(resource, handed);
                Ok(())
            }
            Reply::Not { held } if answer.again => Err(BackendError::Unknown(
                if held {
                    "the connection was lost during the release; what is held now was granted \
                     since, or shortly before"
                } else {
                    "the connection was lost during the release; the grant is gone now"
                }
                .into(),
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
            1 => self.waiters.guard(resource, PROVISIONAL),
            _ => self.waiters.guard(resource, Duration::ZERO),
        }
    }

    pub(super) fn conclude(
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
}

/// What every script that acquires is told of the attempt.
pub(super) fn acquire_arguments(request: &mut Cmd, attempt: &Attempt, rest: &str) {
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

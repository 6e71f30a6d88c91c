//! The port, over the scripts.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use ::redis::{Client, Cmd, cmd};
use async_trait::async_trait;
use tokio::time::Instant;
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
    sign::Sign,
    waiters::Waiters,
};
use crate::lock::{
    Attempt, Backend, BackendError, Feature, FencingToken, Grant, LockId, Release, ReleaseOf,
    Renewal, Renewed, ResourceId, Settings, WaiterBudget,
};

/// How soon a new waiter looks whether a known way of locking is before it.
pub(super) const FIRST_LOOK: Duration = Duration::from_secs(1);

/// What it can do beyond the core.
pub(super) const FEATURES: &[Feature] =
    &[Feature::Fencing, Feature::ForceUnlock, Feature::Fair, Feature::Replay];

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
    pub(super) sign: Sign,
    pub(super) settings: Settings,
    /// Places of waits that an outage ended, to be left when it is over.
    pub(super) left: Mutex<VecDeque<Arc<Attempt>>>,
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
        FEATURES
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
    /// Ends what an attempt has come to: its grant, or its place.
    pub(super) async fn withdraw(
        &self,
        attempt: &Attempt,
        until: Instant,
    ) -> Result<(), BackendError> {
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

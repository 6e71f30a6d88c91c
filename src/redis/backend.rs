//! The backend: each operation as a function of the library.

use std::{sync::Arc, time::Duration};

use ::redis::Cmd;
use async_trait::async_trait;
use futures_util::future::BoxFuture;
use leasehold_lock::{
    Attempt, Backend, BackendError, Feature, Grant, Release, ReleaseOf, Renewal, Renewed,
    ResourceId, Settings, inspect::Inspect,
};
use tokio::time::Instant;
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use super::{
    core::{Core, out_of_memory, unexpected},
    entry,
    library::Verb,
    reply::{Look, Reply},
    router::{Router, Servers},
    times::TIMES,
    waiters::Waiters,
};

/// Its features beyond the core, whatever the servers.
pub(super) const FEATURES: &[Feature] = &[
    Feature::Fencing,
    Feature::ForceUnlock,
    Feature::Fair,
    Feature::Replay,
    Feature::Inspection,
    Feature::Watch,
];

/// Its features where one server has all locks.
const ON_ONE: &[Feature] = &[
    Feature::Fencing,
    Feature::ForceUnlock,
    Feature::Fair,
    Feature::Replay,
    Feature::Shared,
    Feature::Inspection,
    Feature::Watch,
];

const NOT_SHARED: &str = "lock.redis has no shared locks on a Redis Cluster, because their ends are \
    times of one server's clock; lock.redis on a single node or with Sentinels, lock.etcd and \
    lock.memory have them";

/// Locks in Redis.
pub(super) struct RedisBackend {
    core: Arc<Core>,
    tasks: TaskTracker,
    stop: CancellationToken,
    /// Ends the tasks if the backend is dropped without being closed.
    _stop: DropGuard,
}

impl RedisBackend {
    /// A backend over these servers. Must be called within a runtime.
    pub(super) fn new(
        router: Router,
        waiters: Arc<Waiters>,
        settings: Settings,
        tasks: TaskTracker,
        stop: CancellationToken,
    ) -> Self {
        let core = Arc::new(Core::new(router, waiters, settings));
        let spawn = |task: BoxFuture<'static, ()>| {
            let stop = stop.clone();
            tasks.spawn(async move {
                stop.run_until_cancelled(task).await;
            });
        };
        if let Servers::One { route, .. } = &core.router.servers {
            let route = Arc::clone(route);
            spawn(Box::pin(async move { route.follow().await }));
        }
        spawn(Box::pin(Arc::clone(&core).keep_looking()));
        spawn(Box::pin(Arc::clone(&core).keep_up()));
        Self { core, tasks, _stop: stop.clone().drop_guard(), stop }
    }
}

#[async_trait]
impl Backend for RedisBackend {
    fn features(&self) -> &'static [Feature] {
        if self.core.router.has_several() { FEATURES } else { ON_ONE }
    }

    fn reason_without(&self, feature: Feature) -> Option<&'static str> {
        (feature == Feature::Shared).then_some(NOT_SHARED)
    }

    fn server_of(&self, resource: &ResourceId) -> u64 {
        self.core.router.server_of(resource)
    }

    async fn try_lock(&self, attempt: &Attempt, until: Instant) -> Result<Grant, BackendError> {
        entry::check_lock_id(&attempt.lock_id)?;
        let rest = entry::rest(attempt);
        let arguments = |request: &mut Cmd, _| {
            self.core.acquire_arguments(request, attempt, &rest);
        };
        let answer = self.core.acquire(Verb::Try, attempt, arguments, until).await?;
        match Reply::read(answer.value)? {
            // It is out of memory, and the attempt has no grant.
            Reply::Gone => Err(out_of_memory()),
            Reply::Held { by, look } => {
                if let Some(look) = look {
                    let left = match look {
                        Look::Now => Duration::ZERO,
                        Look::Soon => TIMES.answer,
                    };
                    self.core.waiters.guard(&attempt.resource, left);
                }
                Err(BackendError::Locked { by })
            }
            other => self.core.conclude(attempt, other, answer.since),
        }
    }

    async fn lock(&self, attempt: &Attempt) -> Result<Grant, BackendError> {
        entry::check_lock_id(&attempt.lock_id)?;
        let slot = self.core.budget.enter()?;
        self.core.wait(attempt, slot).await
    }

    async fn renew(&self, renewal: &Renewal, until: Instant) -> Result<Renewed, BackendError> {
        entry::check_lock_id(&renewal.lock_id)?;
        let arguments = |request: &mut Cmd, _| {
            request.arg(renewal.lock_id.as_str()).arg(renewal.ttl.as_ms());
        };
        let resource = &renewal.resource;
        let answer = self.core.router.run(Verb::Renew, resource, arguments, until).await?;
        match Reply::read(answer.value)? {
            Reply::Renewed { id } => {
                Ok(Renewed { id, ttl: renewal.ttl.duration(), since: answer.since })
            }
            Reply::Not { held } => Err(BackendError::NotHeld { held }),
            other => Err(unexpected(&other)),
        }
    }

    async fn unlock(&self, release: &Release, until: Instant) -> Result<(), BackendError> {
        match &release.of {
            ReleaseOf::Attempt(attempt) => self.core.withdraw(attempt, until).await,
            ReleaseOf::Owner(lock_id) => {
                entry::check_lock_id(lock_id)?;
                self.core.release_owned(release, lock_id, until).await
            }
            ReleaseOf::Token(lock_id, token) => {
                entry::check_lock_id(lock_id)?;
                self.core.release_token(&release.resource, lock_id, *token, until).await
            }
            ReleaseOf::Claim(lock_id, attempt) => {
                entry::check_lock_id(lock_id)?;
                self.core.end_claim(&release.resource, lock_id, *attempt, until).await
            }
            ReleaseOf::Id(id) => self.core.end(&release.resource, *id, until).await,
            ReleaseOf::Anyone => self.core.force(release, until).await,
        }
    }

    async fn ping(&self, until: Instant) -> Result<(), BackendError> {
        self.core.router.ping(until).await
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        Some(&*self.core)
    }

    async fn close(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

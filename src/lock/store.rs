//! An initialised store, which the edges call.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::Mutex,
    time::{Instant, timeout_at},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    Backend, BackendError, Feature, LockError, Release, ReleaseOf, RenewRequest, Renewal,
    Renewed, ResourceId, Settings, Ttl, UnlockRequest, Violation,
    grant_ids::GrantIds,
    inspect::Watches,
    join::Joins,
    observe::{self, Observe, Unobserved, Verb},
    receipt, safe_deadline,
    settle::{Settler, bounded},
};

/// One initialised store: a backend, and what all backends share. That is limits on TTLs
/// and on time, joining repeated waits, and settling unknown outcomes and grants that
/// were not received. Cheap to clone.
///
/// Every future may be dropped at any await. An acquired grant is then released, and
/// an unlock that has begun is completed.
#[derive(Clone)]
pub struct Store(pub(super) Arc<Inner>);

/// The parts of a [`Store`].
pub(super) struct Inner {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) settings: Settings,
    pub(super) observer: Arc<dyn Observe>,
    pub(super) settler: Settler,
    pub(super) grant_ids: GrantIds,
    pub(super) joins: Joins,
    pub(super) draining: CancellationToken,
    /// Ends watches: the store drains or retires.
    pub(super) ending: CancellationToken,
    pub(super) calls: TaskTracker,
    /// Lets one page of a list be read at a time, and not before this moment.
    pub(super) list_turn: Mutex<Instant>,
    pub(super) watches: Watches,
}

impl Store {
    /// A store over `backend` that nobody observes. Must be called within a runtime.
    #[must_use]
    pub fn new(backend: Arc<dyn Backend>, settings: Settings) -> Self {
        Self::observed(backend, settings, Unobserved::store())
    }

    /// Like [`Store::new`], with an observer.
    #[must_use]
    pub fn observed(
        backend: Arc<dyn Backend>,
        settings: Settings,
        observer: Arc<dyn Observe>,
    ) -> Self {
        let draining = CancellationToken::new();
        Self(Arc::new(Inner {
            settler: Settler::new(Arc::clone(&backend), &settings, Arc::clone(&observer)),
            backend,
            settings,
            observer,
            grant_ids: GrantIds::default(),
            joins: Joins::default(),
            ending: draining.child_token(),
            draining,
            calls: TaskTracker::new(),
            list_turn: Mutex::new(Instant::now()),
            watches: Watches::default(),
        }))
    }

    /// The backend that keeps the locks.
    pub fn backend(&self) -> Arc<dyn Backend> {
        Arc::clone(&self.0.backend)
    }

    /// The backend's features beyond the core.
    #[must_use]
    pub fn features(&self) -> &[Feature] {
        self.0.backend.features()
    }

    /// Which of the backend's servers has the resource now.
    #[must_use]
    pub fn server_of(&self, resource: &ResourceId) -> u64 {
        self.0.backend.server_of(resource)
    }

    /// Observes the store, and what is done with its locks.
    #[must_use]
    pub fn observer(&self) -> &Arc<dyn Observe> {
        &self.0.observer
    }

    /// The limits in force.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// Starts the TTL of a live grant again. If that grant is being ended, because its caller
    /// went away or has unlocked it, the renewal waits until it has ended, and then looks for
    /// another.
    pub async fn renew(&self, request: RenewRequest) -> Result<Renewed, LockError> {
        let _call = self.0.calls.token();
        let renewal = Renewal {
            resource: request.resource,
            lock_id: request.lock_id,
            ttl: self.ttl(request.ttl)?,
        };
        let until = self.0.until();
        let lock = (renewal.resource.clone(), renewal.lock_id.clone());
        let registry = self.0.settler.registry();
        loop {
            let look = registry.look(lock.clone());
            let renewing = self.0.backend.renew(&renewal, until);
            let renewed = self.0.bounded(Verb::Renew, until, renewing).await?;
            receipt::check(safe_deadline(renewed.since, renewed.ttl))?;
            if look.may_answer(renewed.id) {
                if let Some(id) = renewed.id {
                    self.0.grant_ids.note_again(&lock, id);
                }
                return Ok(renewed);
            }
            // Once that grant has ended, another grant may have the lock ID.
            timeout_at(until, registry.ended(&lock, renewed.id)).await.map_err(|_| {
                let why = "a grant with this lock_id is still being ended";
                LockError::StoreUnavailable(why.into())
            })?;
        }
    }

    /// Ends the grant of a lock ID, or any holder's by force.
    pub async fn unlock(&self, request: UnlockRequest) -> Result<(), LockError> {
        self.unlock_by(request, self.until()).await
    }

    /// Like [`Store::unlock`], within a call that must end by `until`.
    pub async fn unlock_by(
        &self,
        request: UnlockRequest,
        until: Instant,
    ) -> Result<(), LockError> {
        let by_force = matches!(request.of, ReleaseOf::Id(_) | ReleaseOf::Anyone);
        let result = self.release(request, until).await;
        if by_force {
            self.0.observer.forced(observe::Outcome::of(&result));
        }
        result
    }

    async fn release(&self, request: UnlockRequest, until: Instant) -> Result<(), LockError> {
        let _call = self.0.calls.token();
        let mut named = None;
        match &request.of {
            ReleaseOf::Owner(lock_id) => {
                let lock = (request.resource.clone(), lock_id.clone());
                named = self.0.grant_ids.get(&lock).map(|id| (lock, id));
            }
            ReleaseOf::Token(..) => {
                self.must_have(Feature::Fencing, "this store's grants have no tokens")?;
            }
            ReleaseOf::Id(_) => {
                self.must_have(Feature::Inspection, "this store's grants have no public IDs")?;
            }
            ReleaseOf::Anyone => {
                self.must_have(Feature::ForceUnlock, "this store cannot unlock by force")?;
            }
            ReleaseOf::Claim(..) | ReleaseOf::Attempt(_) => {}
        }
        let known = named.as_ref().map(|(_, id)| *id);
        let release = Release { known, ..Release::new(request.resource, request.of) };
        let release = Arc::new(release);
        let pending = self.0.settler.guard(Arc::clone(&release));
        let unlocking = self.0.backend.unlock(&release, until);
        match self.0.bounded(Verb::Unlock, until, unlocking).await {
            Err(BackendError::Unknown(why)) if release.is_open() => {
                Err(LockError::StoreUnavailable(why))
            }
            Err(error @ BackendError::Unknown(_)) => Err(error.into()),
            settled => {
                pending.disarm();
                let has_ended = matches!(settled, Ok(()) | Err(BackendError::NotHeld { .. }));
                if let (true, Some((lock, id))) = (has_ended, named) {
                    self.0.grant_ids.forget(&lock, id);
                }
                Ok(settled?)
            }
        }
    }

    /// Asks whether the backend answers.
    pub async fn ping(&self) -> Result<(), LockError> {
        let until = self.0.until();
        Ok(self.0.bounded(Verb::Ping, until, self.0.backend.ping(until)).await?)
    }

    /// From now on refuses to acquire and ends every wait with
    /// [`LockError::ShuttingDown`]; renewals and unlocks are still served.
    pub fn drain(&self) {
        self.0.draining.cancel();
    }

    /// From now on ends every watch with [`LockError::ShuttingDown`]. All other calls are still
    /// served.
    pub fn end_watches(&self) {
        self.0.ending.cancel();
    }

    /// How many releases are not confirmed yet, and are tried again in the background.
    #[must_use]
    pub fn unsettled(&self) -> usize {
        self.0.settler.unsettled()
    }

    /// Waits until calls in flight are answered and nothing is left to settle,
    /// then closes the backend. Grants stay with their holders.
    pub async fn retire(self) {
        self.end_watches();
        self.0.calls.close();
        self.0.calls.wait().await;
        self.0.settler.settled().await;
        self.0.backend.close().await;
    }

    /// The TTL of a request that asks for `wish`: that, or this store's default. The
    /// violation names `ttl`.
    pub fn ttl(&self, wish: Option<Duration>) -> Result<Ttl, Violation> {
        Ttl::new(wish.unwrap_or(self.0.settings.ttl_default), self.0.settings.ttl_max)
    }

    /// When a call that begins now must have ended.
    pub fn until(&self) -> Instant {
        self.0.until()
    }

    pub(super) fn must_have(
        &self,
        feature: Feature,
        problem: &'static str,
    ) -> Result<(), LockError> {
        if self.features().contains(&feature) {
            Ok(())
        } else {
            let reason = self.0.backend.reason_without(feature);
            Err(LockError::Unsupported(reason.unwrap_or(problem).into()))
        }
    }
}

impl Inner {
    pub(super) fn until(&self) -> Instant {
        Instant::now() + self.settings.operation_timeout
    }

    /// See [`settle::bounded`](bounded).
    pub(super) fn bounded<T>(
        &self,
        verb: Verb,
        until: Instant,
        call: impl Future<Output = Result<T, BackendError>>,
    ) -> impl Future<Output = Result<T, BackendError>> {
        bounded(&*self.observer, verb, until, call)
    }
}

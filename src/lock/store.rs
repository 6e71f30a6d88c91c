//! An initialised store, which the edges call.

use std::{sync::Arc, time::Duration};

use futures_util::FutureExt as _;
use tokio::{
    sync::Mutex,
    time::{Instant, timeout_at},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    AcquireRequest, Attempt, AttemptId, Backend, BackendError, Feature, Grant, Granted,
    LockError, LockId, Mode, Receipt, Release, ReleaseOf, RenewRequest, Renewal, Renewed,
    RequestId, Settings, Ttl, UnlockRequest, Violation,
    deadlines::{limits, wait_deadline},
    grant_ids::GrantIds,
    inspect::Watches,
    join::{Joins, Outcome},
    observe::{self, AcquireOp, Acquiring, Observe, Unobserved, Verb},
    receipt, safe_deadline,
    settle::{Pending, Settler, bounded},
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
    settings: Settings,
    pub(super) observer: Arc<dyn Observe>,
    pub(super) settler: Settler,
    grant_ids: GrantIds,
    joins: Joins,
    draining: CancellationToken,
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

    /// Acquires a resource that is free and that nobody waits for.
    pub async fn try_lock(&self, request: AcquireRequest) -> Result<Granted, LockError> {
        let acquiring = self.0.acquiring(&request, false);
        let result = self.try_once(request).await;
        acquiring.end(&result);
        result
    }

    async fn try_once(&self, request: AcquireRequest) -> Result<Granted, LockError> {
        let _call = self.0.calls.token();
        let (arrived, mut attempt) = (request.arrived, Arc::new(self.admit(request)?));
        loop {
            let pending = self.0.guard(&attempt);
            let until = self.0.until();
            let trying = self.0.backend.try_lock(&attempt, until);
            let result = self.0.bounded(Verb::Try, until, trying).await;
            let granted = self.0.conclude(&attempt, pending, result)?;
            if let Some(granted) = self.unless_ending(&mut attempt, granted, None).await? {
                return Ok(granted.waited_since(arrived));
            }
        }
    }

    /// Waits for a resource until granted, until the request's deadline or the end of its
    /// wait, or until dropped.
    pub async fn lock(&self, request: AcquireRequest) -> Result<Granted, LockError> {
        let acquiring = self.0.acquiring(&request, true);
        let result = self.wait_for(request).await;
        acquiring.end(&result);
        result
    }

    async fn wait_for(&self, request: AcquireRequest) -> Result<Granted, LockError> {
        let _call = self.0.calls.token();
        let arrived = request.arrived;
        let (given_up, answer_by) = limits(&request);
        let mut attempt = Arc::new(self.admit(request)?);
        loop {
            let shared = Arc::clone(&attempt);
            let granted = match attempt.request_id.clone() {
                None => self.0.wait(shared, wait_deadline(given_up), answer_by).await,
                Some(id) => self.wait_with_others(id, shared, given_up, answer_by).await,
            }?;
            if let Some(granted) = self.unless_ending(&mut attempt, granted, given_up).await? {
                return Ok(granted.waited_since(arrived));
            }
        }
    }

    /// Returns the grant, unless it is that of an earlier request and is being ended. Then waits
    /// until it has ended, which must be before `given_up`, and makes `attempt` another one.
    async fn unless_ending(
        &self,
        attempt: &mut Arc<Attempt>,
        granted: Granted,
        given_up: Option<Instant>,
    ) -> Result<Option<Granted>, LockError> {
        if attempt.request_id.is_none() {
            return Ok(Some(granted));
        }
        let registry = self.0.settler.registry();
        let lock = (attempt.resource.clone(), granted.lock_id.clone());
        let id = granted.id;
        if !registry.is_ending(&lock, id) {
            return Ok(Some(granted));
        }
        drop(granted);
        let until = given_up.map_or(self.0.until(), |at| at.min(self.0.until()));
        timeout_at(until, registry.ended(&lock, id)).await.map_err(|_| {
            let why =
                "the grant of this request_id is being released, and that is not confirmed";
            LockError::OutcomeUnknown(why.into())
        })?;
        Arc::make_mut(attempt).id = AttemptId::random();
        Ok(None)
    }

    /// Waits together with all who repeat the request. Once the grant is made, each of them
    /// claims it by an attempt of its own, one after the other: so the end of one call never
    /// releases what another was answered, and each gets the TTL that it asked for.
    async fn wait_with_others(
        &self,
        id: RequestId,
        attempt: Arc<Attempt>,
        given_up: Option<Instant>,
        answer_by: Option<Instant>,
    ) -> Outcome {
        let mut _claimed;
        loop {
            let (inner, shared) = (Arc::clone(&self.0), Arc::clone(&attempt));
            let open = |stop: CancellationToken| {
                let stopped = async move {
                    stop.cancelled_owned().await;
                    LockError::WaitDeadline
                };
                async move { inner.wait(shared, stopped, None).await }.boxed()
            };
            let deadline = wait_deadline(given_up);
            let granted =
                self.0.joins.wait(id.clone(), &attempt, deadline, answer_by, open).await?;
            if granted.attempt == attempt.id {
                return Ok(granted);
            }
            // The first caller may have left: its grant must not be undone before it is claimed.
            _claimed = Some(granted);
        }
    }

    /// Starts the TTL of a live grant again. If that grant is being ended, because its caller
    /// went away, the renewal waits until it has ended, and then looks for another.
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
        let mut known = None;
        match &request.of {
            ReleaseOf::Owner(lock_id) => {
                let lock = (request.resource.clone(), lock_id.clone());
                known = self.0.grant_ids.take(&lock);
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

    fn admit(&self, request: AcquireRequest) -> Result<Attempt, LockError> {
        if self.0.draining.is_cancelled() {
            return Err(LockError::ShuttingDown);
        }
        if self.0.settler.is_full() {
            return Err(LockError::Overloaded);
        }
        let ttl = self.ttl(request.ttl)?;
        if request.request_id.is_some() {
            self.must_have(Feature::Replay, "this store cannot replay a request_id")?;
        }
        if request.mode == Mode::Shared {
            self.must_have(Feature::Shared, "this store has no shared locks")?;
        }
        Ok(Attempt {
            id: request.attempt.unwrap_or_else(AttemptId::random),
            resource: request.resource,
            lock_id_given: request.lock_id.is_some(),
            lock_id: request.lock_id.unwrap_or_else(LockId::random),
            request_id: request.request_id,
            published: request.published,
            mode: request.mode,
            holder: request.holder,
            ttl,
        })
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
    fn until(&self) -> Instant {
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

    /// Reports a call that acquires.
    fn acquiring(&self, request: &AcquireRequest, waits: bool) -> Acquiring<'_> {
        let call = match waits {
            _ if request.streamed => AcquireOp::Stream,
            true => AcquireOp::Wait,
            false => AcquireOp::Try,
        };
        let waits_since = waits.then_some(request.arrived);
        Acquiring::begin(&*self.observer, call, request.mode, waits_since)
    }

    fn guard(&self, attempt: &Arc<Attempt>) -> Pending {
        let of = ReleaseOf::Attempt(Arc::clone(attempt));
        self.settler.guard(Arc::new(Release::new(attempt.resource.clone(), of)))
    }

    /// Waits for a grant until `stop` says why not to. That answer is given
    /// only when it is confirmed by `answer_by` that nothing is held (trap 9).
    async fn wait(
        &self,
        attempt: Arc<Attempt>,
        stop: impl Future<Output = LockError>,
        answer_by: Option<Instant>,
    ) -> Result<Granted, LockError> {
        let pending = self.guard(&attempt);
        let ended = tokio::select! {
            biased;
            result = self.backend.lock(&attempt) => {
                return self.conclude(&attempt, pending, result);
            }
            ended = stop => ended,
            () = self.draining.cancelled() => LockError::ShuttingDown,
        };
        let until = answer_by.map_or(self.until(), |answer_by| answer_by.min(self.until()));
        // If it is dropped unfinished, the wait is settled in the background.
        if timeout_at(until, pending.settle(until)).await.unwrap_or(false) {
            Err(ended)
        } else {
            Err(LockError::OutcomeUnknown(
                "the wait ended, but the backend did not confirm \
                that it left the queue"
                    .into(),
            ))
        }
    }

    /// Leaves the clean-up armed for a new grant, until it is received, and for an unknown
    /// outcome. Every other outcome left nothing behind. A grant is none if its safe deadline
    /// has passed.
    fn conclude(
        &self,
        attempt: &Attempt,
        pending: Pending,
        result: Result<Grant, BackendError>,
    ) -> Result<Granted, LockError> {
        match result {
            Ok(grant) => {
                if (attempt.lock_id_given || !grant.created)
                    && let Some(id) = grant.id
                {
                    let lock = (attempt.resource.clone(), grant.lock_id.clone());
                    self.grant_ids.note(lock, id);
                }
                let pending = if grant.created {
                    Some(pending.granted())
                } else {
                    pending.disarm();
                    None
                };
                let receipt = Receipt::new(pending, safe_deadline(grant.since, grant.ttl));
                receipt.check()?;
                Ok(Granted {
                    id: grant.id,
                    attempt: attempt.id,
                    lock_id: grant.lock_id,
                    token: grant.token,
                    ttl: grant.ttl,
                    since: grant.since,
                    waited: Duration::ZERO,
                    receipt,
                })
            }
            Err(error) => {
                if !matches!(error, BackendError::Unknown(_)) {
                    pending.disarm();
                }
                Err(error.into())
            }
        }
    }
}

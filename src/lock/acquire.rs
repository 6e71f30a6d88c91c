//! Acquiring: tries, waits, and what becomes of their grants.

use std::{sync::Arc, time::Duration};

use futures_util::FutureExt as _;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::{
    AcquireRequest, Attempt, AttemptId, BackendError, Feature, Grant, Granted, LockError,
    LockId, Mode, Receipt, Release, ReleaseOf, RequestId,
    deadlines::{limits, wait_deadline},
    join::Outcome,
    observe::{AcquireOp, Acquiring, Verb},
    safe_deadline,
    settle::Pending,
    store::{Inner, Store},
};

impl Store {
    /// Acquires a resource that is free and that nobody waits for.
    pub async fn try_lock(&self, request: AcquireRequest) -> Result<Granted, LockError> {
        let acquiring = self.0.acquiring(&request, false);
        let result = self.try_once(request).await;
        acquiring.end(&result);
        result
    }

    async fn try_once(&self, request: AcquireRequest) -> Result<Granted, LockError> {
        let _call = self.0.calls.token();
        let (arrived, until) = (request.arrived, self.0.until());
        let mut attempt = Arc::new(self.admit(request)?);
        loop {
            let pending = self.0.guard(&attempt);
            let trying = self.0.backend.try_lock(&attempt, until);
            let result = self.0.bounded(Verb::Try, until, trying).await;
            let granted = self.0.conclude(&attempt, pending, result)?;
            if let Some(granted) =
                self.unless_ending(&mut attempt, granted, Some(until)).await?
            {
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
    /// until it has ended, which must be before `given_up`. An attempt that made the grant, and
    /// so is being undone, becomes another one.
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
        let is_undone = granted.receipt.is_of_new_grant();
        drop(granted);
        let until = given_up.map_or(self.0.until(), |at| at.min(self.0.until()));
        timeout_at(until, registry.ended(&lock, id)).await.map_err(|_| {
            let why =
                "the grant of this request_id is being released, and that is not confirmed";
            LockError::OutcomeUnknown(why.into())
        })?;
        if is_undone {
            Arc::make_mut(attempt).id = AttemptId::random();
        }
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
}

impl Inner {
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

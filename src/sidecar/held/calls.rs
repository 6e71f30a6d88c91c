//! The calls on a held lock: unlock, force, renew.

use std::time::Duration;

use tokio::{sync::oneshot, time::Instant};

use super::{
    Cause, Ended, Engine, HeldKey, Target,
    driver::{Sending, changed_nothing},
    record::{Record, RecordId},
    release::join,
};
use crate::{
    lock::{LockError, LockId, RenewRequest, Renewed, RequestId, UnlockRequest},
    sidecar::error::HeldError,
};

/// A repeated request that may find a grant which is held here.
#[derive(Debug)]
pub struct Resent {
    id: RecordId,
    sending: Sending,
}

impl Engine {
    /// Ends a grant, after the renewal of it that is under way has ended
    /// (trap 11). Completed also if the caller goes away. `target` is where it
    /// would be now, if it is not held here.
    pub async fn unlock<E: From<HeldError>>(
        &self,
        key: HeldKey,
        lock_id: LockId,
        target: Result<Target, E>,
    ) -> Result<(), E> {
        match self.find(&key, &lock_id) {
            Ok(Some(id)) => Ok(self.unlock_in_task(id, key, lock_id).await?),
            Ok(None) => Ok(target?.unlock(&lock_id).await.map_err(HeldError::from)?),
            Err(HeldError::Lost(cause)) if cause.may_be_held_yet() => {
                // The store knows whether another process renewed it.
                let released = match target {
                    Ok(target) => target.unlock(&lock_id).await.is_ok(),
                    Err(_) => false,
                };
                if !released {
                    return Err(HeldError::Lost(cause).into());
                }
                self.table().lost.forget(&key, &lock_id);
                Ok(())
            }
            Err(lost) => Err(lost.into()),
        }
    }

    /// Ends a grant if it is held here; `None` if it is not.
    pub async fn unlock_if_held(
        &self,
        key: HeldKey,
        lock_id: LockId,
    ) -> Option<Result<(), HeldError>> {
        let id = self.table().find(&key, &lock_id)?;
        Some(self.unlock_in_task(id, key, lock_id).await)
    }

    async fn unlock_in_task(
        &self,
        id: RecordId,
        key: HeldKey,
        lock_id: LockId,
    ) -> Result<(), HeldError> {
        let engine = self.clone();
        let unlocking = async move { engine.unlock_held(id, &key, &lock_id).await };
        let task = self.0.tasks.spawn(unlocking);
        task.await.unwrap_or(Err(HeldError::Lock(LockError::Internal)))
    }

    /// Ends whoever's grant it is in `target`, and what is held through this
    /// process in the store of before a reload. Such a holder is told at once,
    /// also if the caller goes away.
    pub async fn force_unlock<E: From<HeldError>>(
        &self,
        key: HeldKey,
        target: Result<Target, E>,
    ) -> Result<(), E> {
        // Looked up beforehand: what is granted to the next waiter meanwhile
        // is not what was forced.
        let held: Vec<_> = self
            .table()
            .of_key(&key)
            .map(|(id, held)| (id, held.target(), held.lock_id.clone()))
            .collect();
        let target = match target {
            Ok(target) => Some(target),
            Err(error) if held.is_empty() => return Err(error),
            Err(_) => None,
        };
        let engine = self.clone();
        let task = self.0.tasks.spawn(async move { engine.force(target, held).await });
        Ok(task.await.unwrap_or(Err(LockError::Internal)).map_err(HeldError::from)?)
    }

    async fn force(
        &self,
        target: Option<Target>,
        held: Vec<(RecordId, Target, LockId)>,
    ) -> Result<(), LockError> {
        let mut outcome = match &target {
            Some(target) => target.force().await,
            None => Err(LockError::NotFound { held: false }),
        };
        for (id, at, lock_id) in held {
            let is_in_target = target.as_ref().is_some_and(|target| target.is(&at));
            // The store before may have the same backend, which has handed the
            // resource over by now: there only this grant is ended.
            let ended = if is_in_target { outcome.clone() } else { at.unlock(&lock_id).await };
            let is_gone = match &ended {
                Ok(()) => true,
                Err(error) => !is_in_target && matches!(error, LockError::NotFound { .. }),
            };
            if is_gone {
                self.lose(&mut self.table(), id, Cause::Forced);
            }
            if ended.is_ok() || matches!(outcome, Err(LockError::NotFound { .. })) {
                outcome = ended;
            }
        }
        outcome
    }

    /// Starts a grant's TTL again, as the app asked. `target` is where it would
    /// be now, if it is not held here.
    pub async fn renew<E: From<HeldError>>(
        &self,
        key: HeldKey,
        lock_id: LockId,
        ttl: Option<Duration>,
        target: Result<Target, E>,
    ) -> Result<Renewed, E> {
        match self.find(&key, &lock_id)? {
            Some(id) => Ok(self.renew_held(id, &key, &lock_id, ttl).await?),
            None => Ok(target?.renew(&lock_id, ttl).await.map_err(HeldError::from)?),
        }
    }

    async fn renew_held(
        &self,
        id: RecordId,
        key: &HeldKey,
        lock_id: &LockId,
        ttl: Option<Duration>,
    ) -> Result<Renewed, HeldError> {
        let (answer, answered) = oneshot::channel();
        self.start_app_renewal(id, ttl, answer);
        if let Ok(result) = answered.await {
            return result.map_err(|error| match error {
                LockError::NotFound { .. } => self.why_gone(key, lock_id, error),
                error => error.into(),
            });
        }
        if self.find(key, lock_id)?.is_some() {
            return Err(HeldError::Lock(LockError::OutcomeUnknown(
                "another call took the place of this renewal".into(),
            )));
        }
        Err(HeldError::Lock(LockError::NotFound { held: false }))
    }

    fn find(&self, key: &HeldKey, lock_id: &LockId) -> Result<Option<RecordId>, HeldError> {
        let mut table = self.table();
        match table.find(key, lock_id) {
            Some(id) => Ok(Some(id)),
            None => match table.lost.cause(key, lock_id, Instant::now()) {
                Some(cause) => Err(HeldError::Lost(cause)),
                None => Ok(None),
            },
        }
    }

    /// What to tell of a lock that is not found although it was held here.
    fn why_gone(&self, key: &HeldKey, lock_id: &LockId, error: LockError) -> HeldError {
        match self.table().lost.cause(key, lock_id, Instant::now()) {
            Some(cause) => HeldError::Lost(cause),
            None => HeldError::Lock(error),
        }
    }

    fn start_app_renewal(
        &self,
        id: RecordId,
        ttl: Option<Duration>,
        answer: oneshot::Sender<Result<Renewed, LockError>>,
    ) {
        let mut table = self.table();
        table.dequeue(id);
        let Some(record) = table.get_mut(id) else { return };
        let before = record.renewal.take();
        record.run += 1;
        let run = record.run;
        if record.renewed {
            record.schedule.begin();
        }
        let (target, lock_id) = (record.target(), record.lock_id.clone());
        let engine = self.clone();
        record.renewal = Some(self.0.runtime.spawn(async move {
            join(before).await;
            let settings = target.store.store().settings();
            let asked = ttl.unwrap_or(settings.ttl_default);
            let Some(sending) = engine.sends(id, asked) else { return };
            let result = target.renew(&lock_id, ttl).await;
            engine.renewed(id, run, &sending, &result);
            let _ = answer.send(result);
        }));
        self.reschedule(&mut table, id);
    }

    /// A request with this `request_id` is sent now. If it finds the grant that
    /// is held here, that may end as early as the request asks.
    pub fn sends_again(
        &self,
        key: &HeldKey,
        request_id: &RequestId,
        asked: Duration,
    ) -> Option<Resent> {
        let id = {
            let table = self.table();
            let mut of_key = table.of_key(key);
            of_key.find(|(_, held)| held.request_id.as_ref() == Some(request_id))?.0
        };
        Some(Resent { id, sending: self.sends(id, asked)? })
    }

    /// That request failed.
    pub fn not_sent_again(&self, resent: &Resent, error: &LockError) {
        if !changed_nothing(error) {
            return;
        }
        let mut table = self.table();
        if let Some(held) = table.get_mut(resent.id) {
            held.schedule.did_not_happen(resent.sending.at, resent.sending.before);
            self.reschedule(&mut table, resent.id);
        }
    }

    async fn unlock_held(
        &self,
        id: RecordId,
        key: &HeldKey,
        lock_id: &LockId,
    ) -> Result<(), HeldError> {
        let (target, renewal_ended) = {
            let mut table = self.table();
            table.dequeue(id);
            let Some(record) = table.get_mut(id) else {
                drop(table);
                return Err(self.why_gone(key, lock_id, LockError::NotFound { held: false }));
            };
            record.run += 1;
            record.unlocks += 1;
            record.schedule.stop();
            let taken = (record.target(), record.end_renewal());
            self.reschedule(&mut table, id);
            taken
        };
        renewal_ended.await;
        let result = target.unlock(lock_id).await;
        let mut table = self.table();
        let others = table.get_mut(id).is_some_and(Record::unlock_has_ended);
        match result {
            Ok(()) => {
                if let Some(mut record) = table.remove(id) {
                    record.tell_stream(Ended::Unlocked);
                }
                Ok(())
            }
            Err(LockError::NotFound { .. })
                if table.get_mut(id).is_some_and(|record| record.unlock_unsure) =>
            {
                if let Some(mut record) = table.remove(id) {
                    record.tell_stream(Ended::Unlocked);
                }
                Ok(())
            }
            // Another unlock may have ended it, and its answer is on its way.
            Err(error @ LockError::NotFound { .. }) if others => Err(error.into()),
            Err(error @ LockError::NotFound { .. }) => {
                if let Some(mut record) = table.remove(id) {
                    table.lost.remember(
                        key.clone(),
                        lock_id.clone(),
                        Cause::Forced,
                        Instant::now(),
                    );
                    record.tell_stream(Ended::Lost(Cause::Forced));
                }
                drop(table);
                Err(self.why_gone(key, lock_id, error))
            }
            Err(error) => {
                if let (LockError::OutcomeUnknown(_), Some(record)) =
                    (&error, table.get_mut(id))
                {
                    record.unlock_unsure = true;
                }
                Err(error.into())
            }
        }
    }
}

impl Target {
    fn is(&self, other: &Self) -> bool {
        self.store.id() == other.store.id() && self.resource == other.resource
    }

    /// Ends the bearer's grant.
    pub(super) async fn unlock(&self, lock_id: &LockId) -> Result<(), LockError> {
        let request = UnlockRequest::owner(self.resource.clone(), lock_id.clone());
        self.store.store().unlock(request).await
    }

    async fn force(&self) -> Result<(), LockError> {
        let request = UnlockRequest::force(self.resource.clone());
        self.store.store().unlock(request).await
    }

    /// Starts the TTL of the bearer's grant again.
    pub(super) async fn renew(
        &self,
        lock_id: &LockId,
        ttl: Option<Duration>,
    ) -> Result<Renewed, LockError> {
        let request =
            RenewRequest { resource: self.resource.clone(), lock_id: lock_id.clone(), ttl };
        self.store.store().renew(request).await
    }
}

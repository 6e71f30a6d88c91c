//! The calls on a held lock: unlock, force, renew.

use std::{sync::Arc, time::Duration};

use tokio::{sync::oneshot, time::Instant};

use super::{
    Cause, Ended, Engine, HeldKey,
    driver::{Sending, changed_nothing},
    record::{Record, RecordId},
    release::join,
};
use crate::{
    lock::{LockError, LockId, RenewRequest, Renewed, RequestId, UnlockRequest},
    sidecar::{error::HeldError, stores::NamedStore},
};

/// A repeated request that may find a grant which is held here.
#[derive(Debug)]
pub struct Resent {
    id: RecordId,
    sending: Sending,
}

impl Engine {
    /// Ends a grant, after the renewal of it that is under way has ended
    /// (trap 11). Completed also if the caller goes away.
    pub async fn unlock(
        &self,
        store: &Arc<NamedStore>,
        key: HeldKey,
        lock_id: LockId,
    ) -> Result<(), HeldError> {
        match self.find(&key, &lock_id)? {
            Some(id) => {
                let engine = self.clone();
                let task = self
                    .0
                    .tasks
                    .spawn(async move { engine.unlock_held(id, &key, &lock_id).await });
                task.await.unwrap_or(Err(HeldError::Lock(LockError::Internal)))
            }
            None => Ok(store.store().unlock(unlock_request(&key, &lock_id)).await?),
        }
    }

    /// Ends a grant if it is held here; `None` if it is not.
    pub async fn unlock_if_held(
        &self,
        store: &Arc<NamedStore>,
        key: HeldKey,
        lock_id: LockId,
    ) -> Option<Result<(), HeldError>> {
        let held = self.table().find(&key, &lock_id).is_some();
        if held { Some(self.unlock(store, key, lock_id).await) } else { None }
    }

    /// Ends whoever's grant it is. If it is held here, that holder is told at
    /// once, also if the caller goes away.
    pub async fn force_unlock(
        &self,
        store: &Arc<NamedStore>,
        key: HeldKey,
    ) -> Result<(), HeldError> {
        let (engine, store) = (self.clone(), Arc::clone(store));
        let task = self.0.tasks.spawn(async move { engine.force(&store, &key).await });
        task.await.unwrap_or(Err(HeldError::Lock(LockError::Internal)))
    }

    async fn force(&self, store: &NamedStore, key: &HeldKey) -> Result<(), HeldError> {
        // Looked up beforehand: what is granted to the next waiter meanwhile
        // is not what was forced.
        let aimed_at = self.table().current(key);
        let request = UnlockRequest {
            resource_id: key.resource.as_str().to_owned(),
            lock_id: String::new(),
            force: true,
        };
        store.store().unlock(request).await?;
        if let Some(id) = aimed_at {
            self.lose(&mut self.table(), id, Cause::Forced);
        }
        Ok(())
    }

    /// Starts a grant's TTL again, as the app asked.
    pub async fn renew(
        &self,
        store: &Arc<NamedStore>,
        key: HeldKey,
        lock_id: LockId,
        ttl: Option<Duration>,
    ) -> Result<Renewed, HeldError> {
        let Some(id) = self.find(&key, &lock_id)? else {
            return Ok(store.store().renew(renew_request(&key, &lock_id, ttl)).await?);
        };
        let (answer, answered) = oneshot::channel();
        self.start_app_renewal(id, ttl, answer);
        if let Ok(result) = answered.await {
            return result.map_err(|error| match error {
                LockError::NotFound { .. } => self.why_gone(&key, &lock_id, error),
                error => error.into(),
            });
        }
        if self.find(&key, &lock_id)?.is_some() {
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
            record.clockwork.begin();
        }
        let request = renew_request(&record.key(), &record.lock_id, ttl);
        let store = Arc::clone(&record.store);
        let engine = self.clone();
        record.renewal = Some(self.0.runtime.spawn(async move {
            join(before).await;
            let asked = ttl.unwrap_or(store.store().settings().ttl_default);
            let Some(sending) = engine.sends(id, asked) else { return };
            let result = store.store().renew(request).await;
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
            let mut table = self.table();
            let id = table.current(key)?;
            table.get_mut(id).filter(|held| held.request_id.as_ref() == Some(request_id))?;
            id
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
            held.clockwork.did_not_happen(resent.sending.at, resent.sending.before);
            self.reschedule(&mut table, resent.id);
        }
    }

    async fn unlock_held(
        &self,
        id: RecordId,
        key: &HeldKey,
        lock_id: &LockId,
    ) -> Result<(), HeldError> {
        let (store, renewal_ended) = {
            let mut table = self.table();
            table.dequeue(id);
            let Some(record) = table.get_mut(id) else {
                drop(table);
                return Err(self.why_gone(key, lock_id, LockError::NotFound { held: false }));
            };
            record.run += 1;
            record.unlocks += 1;
            record.clockwork.stop();
            let taken = (Arc::clone(&record.store), record.end_renewal());
            self.reschedule(&mut table, id);
            taken
        };
        renewal_ended.await;
        let result = store.store().unlock(unlock_request(key, lock_id)).await;
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

fn unlock_request(key: &HeldKey, lock_id: &LockId) -> UnlockRequest {
    UnlockRequest {
        resource_id: key.resource.as_str().to_owned(),
        lock_id: lock_id.as_str().to_owned(),
        force: false,
    }
}

pub(super) fn renew_request(
    key: &HeldKey,
    lock_id: &LockId,
    ttl: Option<Duration>,
) -> RenewRequest {
    RenewRequest {
        resource_id: key.resource.as_str().to_owned(),
        lock_id: lock_id.as_str().to_owned(),
        ttl,
    }
}

//! The calls on a held lock: unlock, force, renew.

use std::time::Duration;

use leasehold_lock::{GrantId, Instant, LockError, LockId, Renewed};
use tokio::sync::oneshot;

use super::{
    Cause, Change, Engine, HeldError, HeldKey, HoldEnd, Target, record::RecordId,
    renewal::cancel,
};

impl Engine {
    /// Ends a grant, after its renewal under way has ended (trap 11). Runs to
    /// its end even if the caller goes away.
    pub async fn unlock(&self, target: &Target, lock_id: LockId) -> Result<(), HeldError> {
        let key = target.key();
        match self.find(&key, &lock_id) {
            Ok(Some(id)) => self.unlock_in_task(id, key, lock_id).await,
            Ok(None) => Ok(target.unlock(&lock_id).await?),
            Err(HeldError::Lost(cause)) if cause.may_still_be_held() => {
                // Another process may have renewed it, which only the store knows.
                if target.unlock(&lock_id).await.is_err() {
                    return Err(HeldError::Lost(cause));
                }
                self.table().lost.forget(&key, &lock_id);
                Ok(())
            }
            Err(lost) => Err(lost),
        }
    }

    /// Ends a grant if it is held here; `None` if it is not.
    pub async fn unlock_if_held(
        &self,
        target: &Target,
        lock_id: LockId,
    ) -> Option<Result<(), HeldError>> {
        let key = target.key();
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

    /// Ends all grants of `target`; with `grant_id`, only the grant with this public ID.
    /// Ends by `until`. Holders of this process are notified at once. Runs to its end even
    /// if the caller goes away.
    pub async fn force_unlock(
        &self,
        target: Target,
        grant_id: Option<GrantId>,
        until: tokio::time::Instant,
    ) -> Result<(), HeldError> {
        // Looked up first: a grant that the next waiter gets meanwhile was not forced.
        let held: Vec<_> = self
            .table()
            .of_key(&target.key())
            .filter(|(_, held)| grant_id.is_none() || held.grant_id == grant_id)
            .map(|(id, _)| id)
            .collect();
        let engine = self.clone();
        let task = self.0.tasks.spawn(async move {
            target.force(grant_id, until).await?;
            let mut table = engine.table();
            for id in held {
                engine.lose(&mut table, id, Cause::Forced);
            }
            Ok::<_, LockError>(())
        });
        Ok(task.await.unwrap_or(Err(LockError::Internal))?)
    }

    /// Notifies the holder at once that its grant was ended by force, if it is held through
    /// this process.
    pub fn forced(&self, target: &Target, grant: GrantId) {
        let mut table = self.table();
        let forced = table.of_key(&target.key()).find(|(_, held)| held.grant_id == Some(grant));
        if let Some(id) = forced.map(|(id, _)| id) {
            self.lose(&mut table, id, Cause::Forced);
        }
    }

    /// Restarts a grant's TTL for the app, and applies the change if that succeeds. If the
    /// grant is not held here, only its TTL can be changed.
    pub async fn renew(
        &self,
        target: &Target,
        lock_id: LockId,
        ttl: Option<Duration>,
        change: Change,
    ) -> Result<Renewed, HeldError> {
        let key = target.key();
        match self.find(&key, &lock_id) {
            Ok(Some(id)) => self.renew_held(id, &key, &lock_id, ttl, change).await,
            Ok(None) if change != Change::Nothing => Err(HeldError::NotHeldHere),
            Ok(None) => Ok(target.renew(&lock_id, ttl).await?),
            Err(HeldError::Lost(Cause::Expired)) if change == Change::Nothing => {
                // Its app may have renewed it through another process.
                let renewed =
                    target.renew(&lock_id, ttl).await.map_err(|error| match error {
                        LockError::NotFound { .. } => HeldError::Lost(Cause::Expired),
                        error => error.into(),
                    })?;
                self.table().lost.forget(&key, &lock_id);
                Ok(renewed)
            }
            Err(lost) => Err(lost),
        }
    }

    async fn renew_held(
        &self,
        id: RecordId,
        key: &HeldKey,
        lock_id: &LockId,
        ttl: Option<Duration>,
        change: Change,
    ) -> Result<Renewed, HeldError> {
        let (answer, answered) = oneshot::channel();
        self.start_app_renewal(id, ttl, change, answer)?;
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

    /// The error for a lock that was held here and is no longer found.
    fn why_gone(&self, key: &HeldKey, lock_id: &LockId, error: LockError) -> HeldError {
        match self.table().lost.cause(key, lock_id, Instant::now()) {
            Some(cause) => HeldError::Lost(cause),
            None => HeldError::Lock(error),
        }
    }

    /// Sends a renewal instead of the one under way. Too long a TTL is refused before, and
    /// leaves that one alone.
    fn start_app_renewal(
        &self,
        id: RecordId,
        ttl: Option<Duration>,
        change: Change,
        answer: oneshot::Sender<Result<Renewed, LockError>>,
    ) -> Result<(), LockError> {
        let mut table = self.table();
        let Some(record) = table.get_mut(id) else { return Ok(()) };
        if record.holder.is_nobody() {
            return Err(LockError::NotFound { held: false });
        }
        let target = record.target();
        let asked = target.store.store().ttl(ttl)?.duration();
        table.dequeue(id);
        let Some(record) = table.get_mut(id) else { return Ok(()) };
        let before = record.schedule.take_task();
        // Aborted here and not only in the new task: that task may itself be aborted
        // before it is polled for the first time.
        if let Some(before) = &before {
            before.abort();
        }
        let lock_id = record.lock_id.clone();
        let engine = self.clone();
        record.schedule.start(self.0.runtime.spawn(async move {
            cancel(before).await;
            let Some(sending) = engine.sends(id, Some(asked)) else { return };
            let result = target.renew(&lock_id, ttl).await;
            engine.renewed(id, &sending, &result, change);
            let _ = answer.send(result);
        }));
        self.reschedule(&mut table, id);
        Ok(())
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
            let renewal = record.schedule.stop();
            let taken = (record.target(), record.unlock.begin(renewal));
            self.reschedule(&mut table, id);
            taken
        };
        renewal_ended.await;
        let result = target.unlock(lock_id).await;
        let mut table = self.table();
        let ended = table.get_mut(id).and_then(|record| record.unlock.answered(&result));
        if let Some(ended) = ended
            && let Some(mut record) = table.remove(id)
        {
            if let HoldEnd::Lost(cause) = ended {
                let loss = record.loss(cause);
                table.lost.remember(key.clone(), lock_id.clone(), loss, Instant::now());
            }
            record.holder.notify(ended);
        }
        drop(table);
        match result {
            Err(LockError::NotFound { .. }) if ended == Some(HoldEnd::Unlocked) => Ok(()),
            Err(error @ LockError::NotFound { .. }) => Err(self.why_gone(key, lock_id, error)),
            result => Ok(result?),
        }
    }
}

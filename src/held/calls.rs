//! The calls on a held lock: unlock, force, renew.

use std::time::Duration;

use leasehold_lock::{GrantId, Instant, LockError, LockId, Renewed, observe::End};
use tokio::sync::oneshot;

use super::{
    Cause, Change, Engine, HeldError, HoldEnd, Resource,
    record::RecordId,
    renewal::{Renewal, cancel},
    store::GrantName,
};

impl Engine {
    /// Ends a grant, after its renewal under way has ended (trap 11). Runs to
    /// its end even if the caller goes away.
    pub async fn unlock(&self, resource: &Resource, lock_id: LockId) -> Result<(), HeldError> {
        let name = (resource.clone(), lock_id);
        match self.find(&name) {
            Ok(Some(id)) => self.unlock_in_task(id, name).await,
            Ok(None) => Ok(resource.unlock(&name.1).await?),
            Err(HeldError::Lost(cause)) if cause.may_still_be_held() => {
                // Another process may have renewed it, which only the store knows.
                if resource.unlock(&name.1).await.is_err() {
                    return Err(HeldError::Lost(cause));
                }
                self.table().lost.forget(&name);
                Ok(())
            }
            Err(lost) => Err(lost),
        }
    }

    /// Ends a grant if it is held here; `None` if it is not.
    pub async fn unlock_if_held(
        &self,
        resource: &Resource,
        lock_id: LockId,
    ) -> Option<Result<(), HeldError>> {
        let name = (resource.clone(), lock_id);
        let id = self.table().find(&name)?;
        Some(self.unlock_in_task(id, name).await)
    }

    async fn unlock_in_task(&self, id: RecordId, name: GrantName) -> Result<(), HeldError> {
        let engine = self.clone();
        let unlocking = async move { engine.unlock_held(id, &name).await };
        let task = self.0.tasks.spawn(unlocking);
        task.await.unwrap_or(Err(HeldError::Lock(LockError::Internal)))
    }

    /// Ends all grants of `resource`; with `grant_id`, only the grant with this public ID.
    /// Ends by `until`. Holders of this process are notified at once. Runs to its end even
    /// if the caller goes away.
    pub async fn force_unlock(
        &self,
        resource: Resource,
        grant_id: Option<GrantId>,
        until: tokio::time::Instant,
    ) -> Result<(), LockError> {
        // Looked up first: a grant that the next waiter gets meanwhile was not forced.
        let held: Vec<_> = self
            .table()
            .of_resource(&resource)
            .filter(|(_, held)| grant_id.is_none() || held.holding.grant_id == grant_id)
            .map(|(id, _)| id)
            .collect();
        let engine = self.clone();
        let task = self.0.tasks.spawn(async move {
            resource.force(grant_id, until).await?;
            let mut table = engine.table();
            for id in held {
                engine.lose(&mut table, id, Cause::Forced);
            }
            Ok(())
        });
        task.await.unwrap_or(Err(LockError::Internal))
    }

    /// Notifies the holder at once that its grant was ended by force, if it is held through
    /// this process.
    pub fn forced(&self, resource: &Resource, grant: GrantId) {
        let mut table = self.table();
        let forced =
            table.of_resource(resource).find(|(_, held)| held.holding.grant_id == Some(grant));
        if let Some(id) = forced.map(|(id, _)| id) {
            self.lose(&mut table, id, Cause::Forced);
        }
    }

    /// Restarts a grant's TTL for the app, and applies the change if that succeeds. If the
    /// grant is not held here, only its TTL can be changed.
    pub async fn renew(
        &self,
        resource: &Resource,
        lock_id: LockId,
        ttl: Option<Duration>,
        change: Change,
    ) -> Result<Renewed, HeldError> {
        let name = (resource.clone(), lock_id);
        match self.find(&name) {
            Ok(Some(id)) => self.renew_held(id, &name, ttl, change).await,
            Ok(None) if change != Change::Nothing => Err(HeldError::NotHeldHere),
            Ok(None) => Ok(resource.renew(&name.1, ttl).await?),
            Err(HeldError::Lost(Cause::Expired)) if change == Change::Nothing => {
                // Its app may have renewed it through another process.
                let renewed =
                    resource.renew(&name.1, ttl).await.map_err(|error| match error {
                        LockError::NotFound { .. } => HeldError::Lost(Cause::Expired),
                        error => error.into(),
                    })?;
                self.table().lost.forget(&name);
                Ok(renewed)
            }
            Err(lost) => Err(lost),
        }
    }

    async fn renew_held(
        &self,
        id: RecordId,
        name: &GrantName,
        ttl: Option<Duration>,
        change: Change,
    ) -> Result<Renewed, HeldError> {
        let (answer, answered) = oneshot::channel();
        self.start_app_renewal(id, ttl, change, answer)?;
        if let Ok(result) = answered.await {
            return result.map_err(|error| match error {
                LockError::NotFound { .. } => self.why_gone(name, error),
                error => error.into(),
            });
        }
        if self.find(name)?.is_some() {
            return Err(HeldError::Lock(LockError::OutcomeUnknown(
                "another call took the place of this renewal".into(),
            )));
        }
        Err(HeldError::Lock(LockError::NotFound { held: false }))
    }

    fn find(&self, name: &GrantName) -> Result<Option<RecordId>, HeldError> {
        let mut table = self.table();
        match table.find(name) {
            Some(id) => Ok(Some(id)),
            None => match table.lost.cause(name, Instant::now()) {
                Some(cause) => Err(HeldError::Lost(cause)),
                None => Ok(None),
            },
        }
    }

    /// The error for a lock that was held here and is no longer found.
    fn why_gone(&self, name: &GrantName, error: LockError) -> HeldError {
        self.find(name).err().unwrap_or(HeldError::Lock(error))
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
        if record.keeper.is_nobody() {
            return Err(LockError::NotFound { held: false });
        }
        let (resource, lock_id) = record.name();
        let asked = resource.store().ttl(ttl)?.duration();
        table.dequeue(id);
        let Some(record) = table.get_mut(id) else { return Ok(()) };
        let before = record.schedule.renewal.take_task();
        // Aborted here and not only in the new task: that task may itself be aborted
        // before it is polled for the first time.
        if let Some(before) = &before {
            before.abort();
        }
        let engine = self.clone();
        let task = self.0.runtime.spawn(async move {
            cancel(before).await;
            let Some(sending) = engine.sends(id, Some(asked)) else { return };
            let result = resource.renew(&lock_id, ttl).await;
            engine.renewed(id, &sending, &result, Some(change));
            let _ = answer.send(result);
        });
        record.schedule.renewal = Renewal::UnderWay(task);
        self.reschedule(&mut table, id);
        Ok(())
    }

    async fn unlock_held(&self, id: RecordId, name: &GrantName) -> Result<(), HeldError> {
        let renewal_ended = {
            let mut table = self.table();
            table.dequeue(id);
            let Some(record) = table.get_mut(id) else {
                drop(table);
                return Err(self.why_gone(name, LockError::NotFound { held: false }));
            };
            let renewal = record.schedule.stop();
            let renewal_ended = record.unlock.begin(renewal);
            self.reschedule(&mut table, id);
            renewal_ended
        };
        renewal_ended.await;
        let result = name.0.unlock(&name.1).await;
        let mut table = self.table();
        let ended = table.get_mut(id).and_then(|record| record.unlock.answered(&result));
        if let Some(ended) = ended
            && let Some(mut record) = table.remove(id)
        {
            record.tally.end(match ended {
                HoldEnd::Lost(cause) => cause.into(),
                _ => End::Unlocked,
            });
            if let HoldEnd::Lost(cause) = ended {
                table.lost.remember(name.clone(), record.loss(cause), Instant::now());
            }
            record.keeper.notify(ended);
        }
        drop(table);
        match result {
            Err(LockError::NotFound { .. }) if ended == Some(HoldEnd::Unlocked) => Ok(()),
            Err(error @ LockError::NotFound { .. }) => Err(self.why_gone(name, error)),
            result => Ok(result?),
        }
    }
}

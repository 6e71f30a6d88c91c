//! How a held lock ends without an unlock, and who is told.

use std::sync::Arc;

use leasehold_lock::{Instant, LockError, LockId};
use tokio::{sync::mpsc, task::JoinHandle};
use tracing::{info, warn};

use super::{
    Cause, Ended, Engine, Target,
    engine::Inner,
    lost::Name,
    record::{Record, RecordId},
    release::{self, Abandoned},
    renewal,
    table::Table,
};

/// Records the end of a release, also if its task is dropped.
struct Releasing<'a> {
    engine: &'a Engine,
    name: &'a Name,
}

impl Drop for Releasing<'_> {
    fn drop(&mut self) {
        self.engine.table().end_release(self.name);
    }
}

impl Engine {
    /// The guard of a lock was dropped: its stream has ended, or its answer was not
    /// written. Does nothing if a later request has found the lock since.
    pub(super) fn abandon(&self, id: RecordId, replays: u32) {
        let release = {
            let mut table = self.table();
            let held = table.get_mut(id).filter(|held| held.replays == replays);
            if held.is_none_or(|held| held.holder.has_received()) {
                return;
            }
            let Some(record) = table.remove(id) else { return };
            Self::release(&self.0, &mut table, record)
        };
        // Spawned without the table's lock: a runtime that is shutting down drops the
        // task here.
        self.0.tasks.spawn_on(release, &self.0.runtime);
    }

    /// If a release of this grant is under way, a future that ends with it.
    pub fn release_of(
        &self,
        target: &Target,
        lock_id: &LockId,
    ) -> Option<impl Future<Output = ()> + Send + 'static + use<>> {
        let ended = self.table().release_of(&target.key(), lock_id)?;
        Some(ended.cancelled_owned())
    }

    /// Releases a lock that was held for as long as is allowed.
    pub(super) fn release_held_long_enough(&self, table: &mut Table, id: RecordId) {
        let Some(mut record) = table.remove(id) else { return };
        self.tell_holder(table, &mut record, Cause::MaxHold);
        let release = Self::release(&self.0, table, record);
        self.0.tasks.spawn_on(release, &self.0.runtime);
    }

    /// Releases a lock whose unlock the app reports as failed: renews it no more, and tries
    /// until the release is confirmed. The store may still have a lock that was lost. Returns
    /// whether the lock is or was held here; if not, nothing is done. After an error nothing
    /// is settled.
    pub async fn give_up(&self, target: &Target, lock_id: &LockId) -> Result<bool, LockError> {
        let key = &target.key();
        let (release, loss) = {
            let mut table = self.table();
            let record = table.find(key, lock_id).and_then(|id| table.remove(id));
            let release = record.map(|mut record| {
                record.holder.tell(Ended::Unlocked);
                Self::release(&self.0, &mut table, record)
            });
            if release.is_none() && table.release_of(key, lock_id).is_some() {
                return Ok(true);
            }
            (release, table.lost.loss(key, lock_id, Instant::now()))
        };
        if let Some(release) = release {
            self.0.tasks.spawn_on(release, &self.0.runtime);
            return Ok(true);
        }
        let Some((cause, claims)) = loss else { return Ok(false) };
        if cause.may_still_be_held() {
            match target.release(lock_id, &claims).await {
                // After an unknown outcome the store goes on releasing it by itself.
                Ok(()) | Err(LockError::NotFound { .. } | LockError::OutcomeUnknown(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Removes a lock that is lost, and tells its holder.
    pub(super) fn lose(&self, table: &mut Table, id: RecordId, cause: Cause) {
        if let Some(record) = table.remove(id) {
            self.tell(table, record, cause);
        }
    }

    /// Tells the holder that this lock, which is not in the table, is lost.
    pub(super) fn tell(&self, table: &mut Table, mut record: Record, cause: Cause) {
        record.cancel_renewal();
        self.tell_holder(table, &mut record, cause);
    }

    fn tell_holder(&self, table: &mut Table, record: &mut Record, cause: Cause) {
        let had_stream = record.holder.tell(Ended::Lost(cause));
        self.note(table, record, cause, !had_stream);
    }

    fn note(&self, table: &mut Table, record: &Record, cause: Cause, by_notice: bool) {
        let lost = record.lost(cause);
        let (store, resource) = (&*lost.store, lost.resource.as_str());
        if cause == Cause::MaxHold && record.schedule.has_limit_of_its_app() {
            info!(store, resource, "a held lock is released after its max_hold");
        } else {
            warn!(store, resource, %cause, "a held lock is lost");
        }
        let loss = (cause, record.claims.clone());
        table.lost.remember(record.key(), lost.lock_id.clone(), loss, Instant::now());
        if by_notice
            && let Err(mpsc::error::TrySendError::Full(lost)) = self.0.notices.try_send(lost)
        {
            warn!(
                resource = lost.resource.as_str(),
                "too many callbacks wait; the app is not told that this lock is lost"
            );
        }
    }

    /// Releases a grant. Until that has ended no replay is handed the grant, because the
    /// release would end it.
    fn release(
        inner: &Arc<Inner>,
        table: &mut Table,
        mut record: Record,
    ) -> impl Future<Output = ()> + Send + 'static {
        let renewal = record.schedule.take_task();
        let released = Self::release_grant(inner, table, record.abandoned(), renewal);
        async move {
            released.await;
            // Its place is free only now.
            drop(record);
        }
    }

    /// The same for a grant that is not held here, once this renewal of it has ended.
    pub(super) fn release_grant(
        inner: &Arc<Inner>,
        table: &mut Table,
        grant: Abandoned,
        renewal: Option<JoinHandle<()>>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let name = (grant.target.key(), grant.lock_id.clone());
        table.begin_release(name.clone());
        let engine = Self(Arc::clone(inner));
        async move {
            // Made in the task, so that dropping a task that never ran takes no lock.
            let _ending = Releasing { engine: &engine, name: &name };
            renewal::cancel(renewal).await;
            release::until_gone(&grant, &engine.0.releases).await;
        }
    }
}

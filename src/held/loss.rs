//! The end of a held lock without an unlock, and the notice of it.

use leasehold_lock::{
    Instant, LockId,
    observe::{End, Notice},
};
use tokio::sync::mpsc;
use tracing::{info, warn};

use super::{
    Cause, Engine, HoldEnd, Resource,
    record::{Record, RecordId},
    renewal,
    table::Table,
};

impl Engine {
    /// The guard of a lock was dropped: its stream has ended. Does nothing if a later request
    /// has found the lock since.
    pub(super) fn abandon(&self, id: RecordId, replays: u32) {
        let mut table = self.table();
        let held = table.get_mut(id).filter(|held| held.replays == replays);
        if held.is_some_and(|held| held.keeper.is_stream())
            && let Some(record) = table.remove(id)
        {
            self.release(&mut table, record);
        }
    }

    /// Releases a lock that was held for the longest allowed time.
    pub(super) fn release_held_long_enough(&self, table: &mut Table, id: RecordId) {
        let Some(mut record) = table.remove(id) else { return };
        self.notify_keeper(table, &mut record, Cause::MaxHold);
        self.release(table, record);
    }

    /// Releases a lock whose unlock the app reports as failed: stops renewing it, and retries
    /// until the release is confirmed. The store may still have a lock that was lost. Returns
    /// whether the lock is held here, or was lost here lately; if not, nothing is done.
    pub fn give_up(&self, resource: &Resource, lock_id: &LockId) -> bool {
        let name = (resource.clone(), lock_id.clone());
        let mut table = self.table();
        if let Some(mut record) = table.find(&name).and_then(|id| table.remove(id)) {
            record.keeper.notify(HoldEnd::Unlocked);
            self.release(&mut table, record);
            return true;
        }
        let Some(loss) = table.lost.loss(&name, Instant::now()).cloned() else { return false };
        let store = resource.store();
        let is_ending = store.is_ending(&resource.id, lock_id);
        let in_flight = loss.request.is_some_and(|request| table.in_flight.contains(&request));
        // A request in flight may be answered with it. If not, the TTL ends it.
        if loss.cause.may_still_be_held() && !is_ending && !in_flight {
            self.spawn(store.abandon(loss.grant).end());
        }
        true
    }

    /// Removes a lost lock, and notifies its holder.
    pub(super) fn lose(&self, table: &mut Table, id: RecordId, cause: Cause) {
        if let Some(record) = table.remove(id) {
            self.report_loss(table, record, cause);
        }
    }

    /// Notifies the holder, if there is one, that this lock, which is not in the table, is lost.
    pub(super) fn report_loss(&self, table: &mut Table, mut record: Record, cause: Cause) {
        record.cancel_renewal();
        if record.keeper.is_nobody() {
            return;
        }
        self.notify_keeper(table, &mut record, cause);
    }

    fn notify_keeper(&self, table: &mut Table, record: &mut Record, cause: Cause) {
        let had_stream = record.keeper.notify(HoldEnd::Lost(cause));
        record.tally.end(cause.into());
        let lost = record.lost(cause);
        let (store, resource) = (&**lost.lock_store.name(), lost.resource.as_str());
        if cause == Cause::MaxHold && record.schedule.has_limit_of_its_app() {
            info!(store, resource, "a held lock is released after its max_hold");
        } else {
            warn!(store, resource, %cause, "a held lock is lost");
        }
        table.lost.remember(record.name(), record.loss(cause), Instant::now());
        if !had_stream
            && let Err(mpsc::error::TrySendError::Full(lost)) = self.0.notices.try_send(lost)
        {
            lost.lock_store.store().observer().notified(Notice::Dropped);
            warn!(
                resource = lost.resource.as_str(),
                "too many callbacks wait; the app is not notified that this lock is lost"
            );
        }
    }

    /// Releases a lock that is not in the table any more. If requests in flight may be answered
    /// with it, it goes back there, and the last of them that ends releases it.
    fn release(&self, table: &mut Table, mut record: Record) {
        record.tally.end(End::Released);
        let request = record.request();
        if !request.is_some_and(|request| table.in_flight.contains(&request)) {
            self.release_now(record);
            return;
        }
        record.leave_to_requests();
        let id = table.insert(record);
        self.reschedule(table, id);
    }

    /// Releases a lock that is not in the table any more.
    pub(super) fn release_now(&self, mut record: Record) {
        let renewal = record.schedule.renewal.take_task();
        let abandonment = record.holding.resource.store().abandon(record.abandoned());
        self.spawn(async move {
            renewal::cancel(renewal).await;
            abandonment.end().await;
            // Its place is free only now.
            drop(record);
        });
    }

    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.0.tasks.spawn_on(task, &self.0.runtime);
    }
}

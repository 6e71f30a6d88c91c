//! How a held lock ends without its holder's doing, and who is told.

use std::sync::Arc;

use tokio::{sync::mpsc, time::Instant};
use tracing::warn;

use super::{
    Cause, Ended, Engine, HeldKey, LostLock,
    engine::Inner,
    record::{Record, RecordId},
    release::{self, join},
    table::{Name, Table},
};
use crate::lock::LockId;

/// Notes the end of a release, however it ends.
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
    /// The stream of a lock has ended, or its answer was not written: releases
    /// it, unless a later one has it now, or an earlier caller. One that was
    /// only found is left to its TTL instead.
    pub(super) fn abandon(&self, id: RecordId, epoch: u32) {
        let release = {
            let mut table = self.table();
            if table.get_mut(id).is_none_or(|held| held.epoch != epoch || held.received) {
                return;
            }
            let Some(mut record) = table.remove(id) else { return };
            if record.found {
                record.give_up();
                return;
            }
            Self::release(&self.0, &mut table, record)
        };
        // The table is not locked any more: a runtime that is shutting down
        // drops the task here.
        self.0.tasks.spawn_on(release, &self.0.runtime);
    }

    /// Ends when the release of this grant that is under way has, if one is.
    pub fn release_of(
        &self,
        key: &HeldKey,
        lock_id: &LockId,
    ) -> Option<impl Future<Output = ()> + Send + 'static + use<>> {
        let ended = self.table().release_of(key, lock_id)?;
        Some(ended.cancelled_owned())
    }

    /// A caller without a stream has the lock.
    pub(super) fn received(&self, id: RecordId) {
        if let Some(record) = self.table().get_mut(id) {
            record.received |= record.stream.is_none();
        }
    }

    pub(super) fn release_held_long_enough(&self, table: &mut Table, id: RecordId) {
        let Some(mut record) = table.remove(id) else { return };
        let lost = record.lost(Cause::MaxHold);
        let had_stream = record.stream.is_some();
        record.tell_stream(Ended::Lost(Cause::MaxHold));
        self.note(table, lost, !had_stream);
        let release = Self::release(&self.0, table, record);
        self.0.tasks.spawn_on(release, &self.0.runtime);
    }

    pub(super) fn lose(&self, table: &mut Table, id: RecordId, cause: Cause) {
        if let Some(record) = table.remove(id) {
            self.tell(table, record, cause);
        }
    }

    pub(super) fn tell(&self, table: &mut Table, mut record: Record, cause: Cause) {
        record.give_up();
        let lost = record.lost(cause);
        let had_stream = record.stream.is_some();
        record.tell_stream(Ended::Lost(cause));
        self.note(table, lost, !had_stream);
    }

    fn note(&self, table: &mut Table, lost: LostLock, by_notice: bool) {
        warn!(store = %lost.store, resource = lost.resource.as_str(), cause = %lost.cause,
            "a held lock is lost");
        let key =
            HeldKey { store: Arc::clone(&lost.store), resource: lost.app_resource.clone() };
        table.lost.remember(key, lost.lock_id.clone(), lost.cause, Instant::now());
        if by_notice
            && let Err(mpsc::error::TrySendError::Full(lost)) = self.0.notices.try_send(lost)
        {
            warn!(
                resource = lost.resource.as_str(),
                "too many callbacks wait; the app is not told that this lock is lost"
            );
        }
    }

    /// Releases a grant by its name. Until that has ended nobody is handed it,
    /// not even by a replay, because the release would end it all the same.
    fn release(
        inner: &Arc<Inner>,
        table: &mut Table,
        mut record: Record,
    ) -> impl Future<Output = ()> + Send + 'static {
        let name = (record.key(), record.lock_id.clone());
        table.begin_release(name.clone());
        let renewal = record.renewal.take();
        let engine = Self(Arc::clone(inner));
        async move {
            // Made here, so that a task that never ran locks no table.
            let _ending = Releasing { engine: &engine, name: &name };
            join(renewal).await;
            release::until_gone(&record, &engine.0.releases).await;
        }
    }
}

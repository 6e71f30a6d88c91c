//! How a held lock ends without its holder's doing, and who is told.

use std::sync::Arc;

use tokio::{sync::mpsc, time::Instant};
use tracing::warn;

use super::{
    Cause, Ended, Engine, HeldKey, LostLock,
    record::{Record, RecordId},
    release::{self, join},
    table::Table,
};

impl Engine {
    /// The stream of a lock has ended: releases it, unless a later stream has
    /// it now.
    pub(super) fn abandon(&self, id: RecordId, epoch: u32) {
        let record = {
            let mut table = self.table();
            if table.get_mut(id).is_none_or(|record| record.epoch != epoch) {
                return;
            }
            table.remove(id)
        };
        if let Some(record) = record {
            self.release(record);
        }
    }

    pub(super) fn release_held_long_enough(&self, table: &mut Table, id: RecordId) {
        let Some(mut record) = table.remove(id) else { return };
        let lost = record.lost(Cause::MaxHold);
        let had_stream = record.stream.is_some();
        record.tell_stream(Ended::Lost(Cause::MaxHold));
        self.note(table, lost, !had_stream);
        self.release(record);
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
        warn!(store = %lost.store, resource = %lost.resource, cause = %lost.cause,
            "a held lock is lost");
        let key = HeldKey { store: Arc::clone(&lost.store), resource: lost.resource.clone() };
        table.lost.remember(key, lost.lock_id.clone(), lost.cause, Instant::now());
        if by_notice
            && let Err(mpsc::error::TrySendError::Full(lost)) = self.0.notices.try_send(lost)
        {
            warn!(resource = %lost.resource,
                "too many callbacks wait; the app is not told that this lock is lost");
        }
    }

    fn release(&self, mut record: Record) {
        let renewal = record.renewal.take();
        let releases = Arc::clone(&self.0.releases);
        let task = async move {
            join(renewal).await;
            release::until_gone(&record, &releases).await;
        };
        self.0.tasks.spawn_on(task, &self.0.runtime);
    }
}

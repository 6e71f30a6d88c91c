//! Takes a grant into the engine, with the guard that releases it.

use leasehold_lock::Instant;
use tokio::sync::oneshot;

use super::{
    Cause, Engine, HoldEnd, Holding,
    record::{Record, RecordId},
};

/// Releases a lock when dropped: the life of a stream, or of an answer that is
/// not written yet.
#[derive(Debug)]
pub struct HeldGuard {
    engine: Engine,
    /// The record, and how many requests had found it when this guard was made. The
    /// guard does nothing if a later request found it too.
    lock: Option<(RecordId, u32)>,
}

impl Engine {
    /// Renews a lock until it is unlocked or lost; its loss is reported by a notice. It
    /// is released if the guard is dropped without [`HeldGuard::keep`]. `None` if it is
    /// lost already, or if a later request with its `request_id` holds it.
    #[must_use]
    pub fn hold(&self, holding: Holding) -> Option<HeldGuard> {
        self.guard(holding, None)
    }

    /// Renews a lock for as long as the guard lives; its end is sent to the
    /// receiver.
    #[must_use]
    pub fn hold_for_stream(
        &self,
        holding: Holding,
    ) -> (Option<HeldGuard>, oneshot::Receiver<HoldEnd>) {
        let (sender, end) = oneshot::channel();
        (self.guard(holding, Some(sender)), end)
    }

    fn guard(
        &self,
        holding: Holding,
        stream: Option<oneshot::Sender<HoldEnd>>,
    ) -> Option<HeldGuard> {
        let lock = self.insert(Record::new(holding, stream))?;
        Some(HeldGuard { engine: self.clone(), lock: Some(lock) })
    }

    fn insert(&self, record: Record) -> Option<(RecordId, u32)> {
        let mut table = self.table();
        let key = record.key();
        table.lost.forget(&key, &record.lock_id);
        if let Some(id) = table.find(&key, &record.lock_id) {
            let replays = table.replayed(id, record);
            self.reschedule(&mut table, id);
            return replays.map(|replays| (id, replays));
        }
        // Of two grants that exclude each other, the later has the greater token, and the
        // earlier has ended. The tokens of shared grants do not show that.
        let mut is_over = false;
        for id in table.excluded_by(&key, record.mode) {
            let Some(held) = table.get_mut(id) else { continue };
            if held.token > record.token {
                is_over = true;
            } else {
                let cause = held.schedule.cause_at(Instant::now());
                self.lose(&mut table, id, cause);
            }
        }
        if is_over {
            self.report_loss(&mut table, record, Cause::Forced);
            return None;
        }
        let id = table.insert(record);
        self.reschedule(&mut table, id);
        Some((id, 0))
    }
}

impl HeldGuard {
    /// Leaves the lock held.
    pub fn keep(mut self) {
        if let Some((id, _)) = self.lock.take()
            && let Some(record) = self.engine.table().get_mut(id)
        {
            record.holder.received();
        }
    }
}

impl Drop for HeldGuard {
    fn drop(&mut self) {
        if let Some((id, replays)) = self.lock {
            self.engine.abandon(id, replays);
        }
    }
}

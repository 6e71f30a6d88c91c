//! Takes a grant into the engine.

use leasehold_lock::Instant;
use tokio::sync::oneshot;

use super::{
    Cause, Engine, HoldEnd, Holding,
    record::{Record, RecordId},
};

/// Releases the lock of a stream when dropped.
#[derive(Debug)]
pub struct HeldGuard {
    engine: Engine,
    /// The record, and how many requests had found it when this guard was made. The
    /// guard does nothing if a later request found it too.
    lock: (RecordId, u32),
}

impl Engine {
    /// Renews a lock until it is unlocked or lost; its loss is reported by a notice. If a lock
    /// that excludes it was granted later, it is lost at once. Does nothing if a later request
    /// with its `request_id` holds it.
    pub fn hold(&self, holding: Holding) {
        self.insert(Record::new(holding, None));
    }

    /// Renews a lock for as long as the guard lives; its end is sent to the
    /// receiver. There is no guard if [`Engine::hold`] would do nothing.
    #[must_use]
    pub fn hold_for_stream(
        &self,
        holding: Holding,
    ) -> (Option<HeldGuard>, oneshot::Receiver<HoldEnd>) {
        let (sender, end) = oneshot::channel();
        let lock = self.insert(Record::new(holding, Some(sender)));
        (lock.map(|lock| HeldGuard { engine: self.clone(), lock }), end)
    }

    fn insert(&self, record: Record) -> Option<(RecordId, u32)> {
        let mut table = self.table();
        let name = record.name();
        table.lost.forget(&name);
        if let Some(id) = table.find(&name) {
            let replays = table.replayed(id, record);
            self.reschedule(&mut table, id);
            return replays.map(|replays| (id, replays));
        }
        // Of two grants that exclude each other, the later has the greater token, and the
        // earlier has ended. The tokens of shared grants do not show that.
        let mut is_over = false;
        for id in table.excluded_by(&name.0, record.holding.mode) {
            let Some(held) = table.get_mut(id) else { continue };
            if held.holding.token > record.holding.token {
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

impl Drop for HeldGuard {
    fn drop(&mut self) {
        let (id, replays) = self.lock;
        self.engine.abandon(id, replays);
    }
}

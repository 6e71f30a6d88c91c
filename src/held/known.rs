//! What this process knows of a lock, without asking its store.

use std::time::Duration;

use leasehold_lock::{Instant, LockId};

use super::{Cause, Engine, Resource, record::Record, schedule::Due, unlock::Unlock};

/// What this process knows of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// It is held here. Its holder may believe in it for this long.
    Held(Duration),
    /// An unlock of it is under way or failed, or it is released because nobody holds it
    /// any more.
    Unlocking,
    /// It was held here, and is lost.
    Lost(Cause),
    /// It is not held here. Its store may still have it.
    NotHeld,
}

impl Engine {
    /// What is known of the lock with this ID.
    #[must_use]
    pub fn known(&self, resource: &Resource, lock_id: &LockId) -> Known {
        let name = (resource.clone(), lock_id.clone());
        let now = Instant::now();
        let mut table = self.table();
        if let Some(id) = table.find(&name)
            && let Some(record) = table.get_mut(id)
        {
            return record.known(now);
        }
        if let Some(cause) = table.lost.cause(&name, now) {
            return Known::Lost(cause);
        }
        if resource.store().is_ending(&resource.id, lock_id) {
            return Known::Unlocking;
        }
        Known::NotHeld
    }
}

impl Record {
    fn known(&self, now: Instant) -> Known {
        if self.keeper.is_nobody() {
            return Known::Unlocking;
        }
        // The driver may be late.
        match self.schedule.due(now) {
            Some(Due::Lose(cause)) => return Known::Lost(cause),
            Some(Due::Release) => return Known::Lost(Cause::MaxHold),
            Some(Due::Renew) | None => {}
        }
        if matches!(self.unlock, Unlock::None) {
            Known::Held(self.schedule.ends().saturating_duration_since(now))
        } else {
            Known::Unlocking
        }
    }
}

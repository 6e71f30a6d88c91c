//! Limits how many renewals are under way towards one server of a store, and queues the others.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use leasehold_lock::Instant;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::record::RecordId;

/// The renewals towards one server of a store. Each has its own lane, so that one that does
/// not answer delays the renewals of no other.
pub(super) struct Lane {
    places: Arc<Semaphore>,
    /// Those that wait, the nearest safe deadline first.
    due: BTreeSet<(Instant, RecordId)>,
    backlog: Arc<AtomicBool>,
}

/// Permits one renewal in its lane. Dropping it wakes the driver if others wait.
pub(super) struct LanePermit {
    permit: Option<OwnedSemaphorePermit>,
    backlog: Arc<AtomicBool>,
    wake: Arc<Notify>,
}

impl Lane {
    pub(super) fn new(in_flight_max: usize) -> Self {
        Self {
            places: Arc::new(Semaphore::new(in_flight_max)),
            due: BTreeSet::new(),
            backlog: Arc::default(),
        }
    }

    /// Whether nothing is queued or under way.
    pub(super) fn is_idle(&self) -> bool {
        self.due.is_empty() && Arc::strong_count(&self.places) == 1
    }

    pub(super) fn enqueue(&mut self, safe_deadline: Instant, id: RecordId) {
        self.due.insert((safe_deadline, id));
    }

    pub(super) fn dequeue(&mut self, safe_deadline: Instant, id: RecordId) {
        self.due.remove(&(safe_deadline, id));
    }

    /// The next to be renewed, and its permit, if there is one.
    pub(super) fn next(&mut self, wake: &Arc<Notify>) -> Option<(RecordId, LanePermit)> {
        if self.due.is_empty() {
            self.backlog.store(false, Ordering::SeqCst);
            return None;
        }
        // Set before the permits are looked at, so that one that is dropped meanwhile
        // wakes the driver.
        self.backlog.store(true, Ordering::SeqCst);
        let permit = Arc::clone(&self.places).try_acquire_owned().ok()?;
        let (_, id) = self.due.pop_first()?;
        let permit = LanePermit {
            permit: Some(permit),
            backlog: Arc::clone(&self.backlog),
            wake: Arc::clone(wake),
        };
        Some((id, permit))
    }
}

impl Drop for LanePermit {
    fn drop(&mut self) {
        drop(self.permit.take());
        if self.backlog.load(Ordering::SeqCst) {
            self.wake.notify_one();
        }
    }
}

//! How many renewals are under way towards one store, and which wait for that.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::{
    sync::{Notify, OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

use super::record::RecordId;

/// One store's lane, so that a silent backend holds up no other's renewals.
pub(super) struct Lane {
    in_flight_max: usize,
    places: Arc<Semaphore>,
    /// Those due, the nearest safe deadline first.
    due: BTreeSet<(Instant, RecordId)>,
    backlog: Arc<AtomicBool>,
}

/// A renewal's place in its lane. Leaving it wakes the engine if others wait.
pub(super) struct Place {
    permit: Option<OwnedSemaphorePermit>,
    backlog: Arc<AtomicBool>,
    wake: Arc<Notify>,
}

impl Lane {
    pub(super) fn new(in_flight_max: usize) -> Self {
        Self {
            in_flight_max,
            places: Arc::new(Semaphore::new(in_flight_max)),
            due: BTreeSet::new(),
            backlog: Arc::default(),
        }
    }

    /// Whether nothing is due and nothing under way.
    pub(super) fn is_idle(&self) -> bool {
        self.due.is_empty() && self.places.available_permits() == self.in_flight_max
    }

    pub(super) fn enqueue(&mut self, safe_deadline: Instant, id: RecordId) {
        self.due.insert((safe_deadline, id));
    }

    pub(super) fn dequeue(&mut self, safe_deadline: Instant, id: RecordId) {
        self.due.remove(&(safe_deadline, id));
    }

    /// The next to be renewed, if there is a place for it.
    pub(super) fn next(&mut self, wake: &Arc<Notify>) -> Option<(RecordId, Place)> {
        if self.due.is_empty() {
            self.backlog.store(false, Ordering::SeqCst);
            return None;
        }
        // Raised before the places are looked at: one that is left meanwhile
        // then wakes the engine.
        self.backlog.store(true, Ordering::SeqCst);
        let permit = Arc::clone(&self.places).try_acquire_owned().ok()?;
        let (_, id) = self.due.pop_first()?;
        let place = Place {
            permit: Some(permit),
            backlog: Arc::clone(&self.backlog),
            wake: Arc::clone(wake),
        };
        Some((id, place))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(self.permit.take());
        if self.backlog.load(Ordering::SeqCst) {
            self.wake.notify_one();
        }
    }
}

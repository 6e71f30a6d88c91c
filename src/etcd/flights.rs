//! Attempts in flight.

use std::{collections::HashMap, sync::Arc};

use leasehold_lock::AttemptId;
use parking_lot::{Mutex, MutexGuard};
use tokio_util::sync::CancellationToken;

/// The state of an attempt. An attempt runs in a task of its own and goes on when its
/// caller leaves, until the outcome of everything that it sent is known.
#[derive(Debug, Default)]
pub(super) struct Flight {
    /// Cancelled when nobody wants the grant any more.
    pub(super) unwanted: CancellationToken,
    /// Cancelled when the attempt has ended, and everything that it sent has taken effect
    /// or never will.
    pub(super) ended: CancellationToken,
    /// Cancelled before `ended` if the attempt is known to have left nothing behind.
    pub(super) left_nothing: CancellationToken,
}

/// The attempts in flight.
#[derive(Debug, Default)]
pub(super) struct Flights(Mutex<HashMap<AttemptId, Arc<Flight>>>);

impl Flights {
    /// Notes the start of an attempt.
    pub(super) fn start(&self, attempt: AttemptId) -> Arc<Flight> {
        let flight = Arc::new(Flight::default());
        self.flights().insert(attempt, Arc::clone(&flight));
        flight
    }

    /// The attempt, if it is in flight.
    pub(super) fn get(&self, attempt: AttemptId) -> Option<Arc<Flight>> {
        self.flights().get(&attempt).cloned()
    }

    /// Notes the end of an attempt.
    pub(super) fn end(&self, attempt: AttemptId) {
        if let Some(flight) = self.flights().remove(&attempt) {
            flight.ended.cancel();
        }
    }

    fn flights(&self) -> MutexGuard<'_, HashMap<AttemptId, Arc<Flight>>> {
        self.0.lock()
    }
}

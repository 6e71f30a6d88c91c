//! The engine: its parts, its limits, and its end.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::{
    runtime::Handle,
    sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, watch},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{LostLock, record::RecordId, table::Table};

/// The engine's limits.
#[derive(Clone, Copy, Debug)]
pub struct EngineOptions {
    /// How many locks may be held through this process: 200,000.
    pub held_max: usize,
    /// How many renewals may be in flight to one server of a store: 256. A server that
    /// answers in 1 ms then answers 256,000 a second.
    pub renewals_in_flight_max: usize,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self { held_max: 200_000, renewals_in_flight_max: 256 }
    }
}

/// Renews held locks, and reports lost ones. Cheap to clone.
#[derive(Clone)]
pub struct Engine(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) table: Mutex<Table>,
    /// Wakes the driver: something is due before it wakes by itself, or a lane has a
    /// free place.
    pub(super) wake: Arc<Notify>,
    pub(super) healthy: watch::Receiver<bool>,
    pub(super) notices: mpsc::Sender<LostLock>,
    pub(super) places: Arc<Semaphore>,
    held_max: usize,
    pub(super) draining: CancellationToken,
    pub(super) closed: CancellationToken,
    pub(super) tasks: TaskTracker,
    pub(super) runtime: Handle,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("held", &self.held()).finish()
    }
}

impl Engine {
    /// Starts the engine. It renews only while `healthy` is true, and sends lost locks
    /// that have no stream to `notices`; those that do not fit are dropped. Must be called
    /// within a runtime.
    #[must_use]
    pub fn start(
        options: EngineOptions,
        healthy: watch::Receiver<bool>,
        notices: mpsc::Sender<LostLock>,
    ) -> Self {
        let engine = Self(Arc::new(Inner {
            table: Mutex::new(Table::new(options.renewals_in_flight_max)),
            wake: Arc::new(Notify::new()),
            healthy,
            notices,
            places: Arc::new(Semaphore::new(options.held_max)),
            held_max: options.held_max,
            draining: CancellationToken::new(),
            closed: CancellationToken::new(),
            tasks: TaskTracker::new(),
            runtime: Handle::current(),
        }));
        engine.0.tasks.spawn(engine.clone().drive());
        engine
    }

    /// How many locks are held.
    #[must_use]
    pub fn held(&self) -> usize {
        self.table().len()
    }

    /// How many abandoned locks are being released, and how many grants are on their way to
    /// their callers.
    #[must_use]
    pub fn releasing(&self) -> usize {
        let places = self.0.held_max.saturating_sub(self.0.places.available_permits());
        places.saturating_sub(self.held())
    }

    /// A permit for one more held lock; `None` at the limit.
    #[must_use]
    pub fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0.places).try_acquire_owned().ok()
    }

    /// Whether the limit of held locks is reached.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.0.places.available_permits() == 0
    }

    /// Asks all streams to end, which releases their locks.
    pub fn drain(&self) {
        self.0.draining.cancel();
    }

    /// Waits until [`Engine::drain`] is called.
    pub async fn draining(&self) {
        self.0.draining.cancelled().await;
    }

    /// Whether [`Engine::drain`] was called.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.0.draining.is_cancelled()
    }

    /// Stops renewing and waits until releases under way are done. Locks
    /// without a stream stay with their holders until their TTL.
    pub async fn close(&self) {
        self.0.closed.cancel();
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }

    pub(super) fn table(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock()
    }

    /// Updates when a record is next due, and wakes the driver if that is before the
    /// driver wakes by itself.
    pub(super) fn reschedule(&self, table: &mut Table, id: RecordId) {
        let next = table.reschedule(id);
        if next.is_some_and(|next| table.driver_wakes_at.is_none_or(|at| next < at)) {
            self.0.wake.notify_one();
        }
    }
}

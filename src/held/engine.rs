//! The engine: what it is made of, and how a grant comes into it.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::{
    runtime::Handle,
    sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch},
    time::Instant,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    Cause, Ended, HeldGuard, Holding, LostLock,
    record::{Record, RecordId},
    schedule::Due,
    table::Table,
};

/// The engine's limits.
#[derive(Clone, Copy, Debug)]
pub struct EngineOptions {
    /// How many locks may be held through this process: 200,000.
    pub held_max: usize,
    /// How many renewals may be under way towards one store: 256. What a
    /// backend of 1 ms answers in that way is 256,000 a second.
    pub renewals_in_flight_max: usize,
    /// How many releases of locks whose stream ended may be under way: 256.
    pub releases_in_flight_max: usize,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self { held_max: 200_000, renewals_in_flight_max: 256, releases_in_flight_max: 256 }
    }
}

/// Renews what is held and tells what is lost. Cheap to clone.
#[derive(Clone)]
pub struct Engine(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) table: Mutex<Table>,
    /// Something is due earlier than the driver knows, or a lane has room.
    pub(super) wake: Arc<Notify>,
    pub(super) healthy: watch::Receiver<bool>,
    pub(super) notices: mpsc::Sender<LostLock>,
    pub(super) places: Arc<Semaphore>,
    pub(super) releases: Arc<Semaphore>,
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
    /// Starts the engine. Renews only while `healthy` is true; tells of lost
    /// locks that have no stream by `notices`, dropping what does not fit.
    /// Must be called within a runtime.
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
            releases: Arc::new(Semaphore::new(options.releases_in_flight_max)),
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

    /// Takes a place for one more held lock; `None` at the limit.
    #[must_use]
    pub fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0.places).try_acquire_owned().ok()
    }

    /// Whether [`Engine::place`] would find none.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.0.places.available_permits() == 0
    }

    /// Renews a lock until it is unlocked or lost; its loss is told by notice.
    /// It is released if the guard is dropped without [`HeldGuard::keep`].
    /// `None` if it is lost already.
    #[must_use]
    pub fn hold(&self, holding: Holding) -> Option<HeldGuard> {
        self.guard(holding, None)
    }

    /// Renews a lock for as long as the guard lives; how it ends is told to
    /// the receiver.
    #[must_use]
    pub fn hold_for_stream(
        &self,
        holding: Holding,
    ) -> (Option<HeldGuard>, oneshot::Receiver<Ended>) {
        let (tell, told) = oneshot::channel();
        (self.guard(holding, Some(tell)), told)
    }

    fn guard(
        &self,
        holding: Holding,
        stream: Option<oneshot::Sender<Ended>>,
    ) -> Option<HeldGuard> {
        let (id, epoch) = self.insert(holding, stream)?;
        Some(HeldGuard { engine: self.clone(), share: Some((id, epoch)) })
    }

    /// From now on streams end, releasing what they hold.
    pub fn drain(&self) {
        self.0.draining.cancel();
    }

    /// Ends when the drain begins.
    pub async fn draining(&self) {
        self.0.draining.cancelled().await;
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

    fn insert(
        &self,
        holding: Holding,
        stream: Option<oneshot::Sender<Ended>>,
    ) -> Option<(RecordId, u32)> {
        let mut table = self.table();
        let mut record = Record::new(holding, stream);
        let key = record.key();
        table.lost.forget(&key, &record.lock_id);
        if table.release_of(&key, &record.lock_id).is_some() {
            self.tell(&mut table, record, Cause::Forced);
            return None;
        }
        if let Some(id) = table.find(&key, &record.lock_id) {
            // Its place in the queue is that of the store before.
            table.dequeue(id);
            let held = table.get_mut(id)?;
            held.tell_stream(Ended::Superseded);
            held.epoch += 1;
            held.stream = record.stream.take();
            held.received &= held.stream.is_none();
            held.found &= held.stream.is_none();
            held.schedule.replayed(record.schedule);
            held.renewed = record.renewed;
            held.request_id = record.request_id.or(held.request_id.take());
            (held.store, held.resource) = (record.store, record.resource);
            held.give_up();
            let epoch = held.epoch;
            self.reschedule(&mut table, id);
            return Some((id, epoch));
        }
        // What is held in the store of before a reload is another grant.
        if let Some(id) = table.in_store(&key, record.store.id()) {
            let held = table.get_mut(id)?;
            if held.token > record.token {
                self.tell(&mut table, record, Cause::Forced);
                return None;
            }
            let cause = match held.schedule.due(Instant::now()) {
                Some(Due::Lose(cause)) => cause,
                _ => Cause::Forced,
            };
            self.lose(&mut table, id, cause);
        }
        let id = table.insert(record);
        self.reschedule(&mut table, id);
        Some((id, 0))
    }

    /// Moves a record to its place in time, and wakes the driver if that is
    /// before it wakes by itself.
    pub(super) fn reschedule(&self, table: &mut Table, id: RecordId) {
        let next = table.reschedule(id);
        if next.is_some_and(|next| table.driver_wakes_at.is_none_or(|at| next < at)) {
            self.0.wake.notify_one();
        }
    }
}

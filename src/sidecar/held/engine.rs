//! The one task that renews what is held, and the calls that go through it.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    runtime::Handle,
    sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch},
    task::{JoinHandle, yield_now},
    time::{Instant, sleep_until, timeout_at},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::warn;

use super::{
    Cause, Ended, HeldGuard, HeldKey, Holding, LostLock,
    clockwork::{Clockwork, Due},
    lane::Place,
    record::{Record, RecordId},
    release,
    table::Table,
};
use crate::{
    lock::{LockError, LockId, RenewRequest, Renewed, UnlockRequest},
    sidecar::{error::HeldError, stores::NamedStore},
};

/// How many due records are acted on before others get a turn.
const BATCH: usize = 512;

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
pub struct Engine(Arc<Inner>);

struct Inner {
    table: Mutex<Table>,
    /// Something is due earlier than the driver knows, or a lane has room.
    wake: Arc<Notify>,
    healthy: watch::Receiver<bool>,
    notices: mpsc::Sender<LostLock>,
    places: Arc<Semaphore>,
    releases: Arc<Semaphore>,
    draining: CancellationToken,
    closed: CancellationToken,
    tasks: TaskTracker,
    runtime: Handle,
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
    pub fn hold(&self, holding: Holding) {
        let _ = self.insert(holding, None);
    }

    /// Renews a lock for as long as the guard lives; how it ends is told to
    /// the receiver.
    #[must_use]
    pub fn hold_for_stream(
        &self,
        holding: Holding,
    ) -> (Option<HeldGuard>, oneshot::Receiver<Ended>) {
        let (tell, told) = oneshot::channel();
        let guard = self.insert(holding, Some(tell)).map(|(id, epoch)| HeldGuard {
            engine: self.clone(),
            id,
            epoch,
        });
        (guard, told)
    }

    /// Ends a grant, after the renewal of it that is under way has ended
    /// (trap 11). Completed also if the caller goes away.
    pub async fn unlock(
        &self,
        store: &Arc<NamedStore>,
        key: HeldKey,
        lock_id: LockId,
    ) -> Result<(), HeldError> {
        match self.find(&key, &lock_id)? {
            Some(id) => {
                let engine = self.clone();
                let task = self
                    .0
                    .tasks
                    .spawn(async move { engine.unlock_held(id, &key, &lock_id).await });
                task.await.unwrap_or(Err(HeldError::Lock(LockError::Internal)))
            }
            None => Ok(store.store().unlock(unlock_request(&key, &lock_id)).await?),
        }
    }

    /// Ends a grant if it is held here; `None` if it is not.
    pub async fn unlock_if_held(
        &self,
        store: &Arc<NamedStore>,
        key: HeldKey,
        lock_id: LockId,
    ) -> Option<Result<(), HeldError>> {
        let held = self.table().find(&key, &lock_id).is_some();
        if held { Some(self.unlock(store, key, lock_id).await) } else { None }
    }

    /// Ends whoever's grant it is. If it is held here, that holder is told at
    /// once.
    pub async fn force_unlock(
        &self,
        store: &Arc<NamedStore>,
        key: HeldKey,
    ) -> Result<(), HeldError> {
        // Looked up beforehand: what is granted to the next waiter meanwhile
        // is not what was forced.
        let aimed_at = self.table().current(&key);
        let request = UnlockRequest {
            resource_id: key.resource.as_str().to_owned(),
            lock_id: String::new(),
            force: true,
        };
        store.store().unlock(request).await?;
        if let Some(id) = aimed_at {
            self.lose(&mut self.table(), id, Cause::Forced);
        }
        Ok(())
    }

    /// Starts a grant's TTL again, as the app asked.
    pub async fn renew(
        &self,
        store: &Arc<NamedStore>,
        key: HeldKey,
        lock_id: LockId,
        ttl: Option<Duration>,
    ) -> Result<Renewed, HeldError> {
        let Some(id) = self.find(&key, &lock_id)? else {
            return Ok(store.store().renew(renew_request(&key, &lock_id, ttl)).await?);
        };
        let (answer, answered) = oneshot::channel();
        self.start_app_renewal(id, ttl, answer);
        if let Ok(result) = answered.await {
            return result.map_err(|error| match error {
                LockError::NotFound { .. } => self.why_gone(&key, &lock_id, error),
                error => error.into(),
            });
        }
        if self.find(&key, &lock_id)?.is_some() {
            return Err(HeldError::Lock(LockError::OutcomeUnknown(
                "another call took the place of this renewal".into(),
            )));
        }
        Err(HeldError::Lock(LockError::NotFound { held: false }))
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

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, key: &HeldKey, lock_id: &LockId) -> Result<Option<RecordId>, HeldError> {
        let mut table = self.table();
        match table.find(key, lock_id) {
            Some(id) => Ok(Some(id)),
            None => match table.lost.cause(key, lock_id, Instant::now()) {
                Some(cause) => Err(HeldError::Lost(cause)),
                None => Ok(None),
            },
        }
    }

    /// What to tell of a lock that is not found although it was held here.
    fn why_gone(&self, key: &HeldKey, lock_id: &LockId, error: LockError) -> HeldError {
        match self.table().lost.cause(key, lock_id, Instant::now()) {
            Some(cause) => HeldError::Lost(cause),
            None => HeldError::Lock(error),
        }
    }

    fn insert(
        &self,
        holding: Holding,
        stream: Option<oneshot::Sender<Ended>>,
    ) -> Option<(RecordId, u32)> {
        let mut table = self.table();
        let mut record = record_of(holding, stream);
        let key = record.key();
        table.lost.forget(&key, &record.lock_id);
        if let Some(id) = table.current(&key) {
            let held = table.get_mut(id)?;
            if held.lock_id == record.lock_id {
                held.tell_stream(Ended::Superseded);
                held.epoch += 1;
                held.stream = record.stream.take();
                held.clockwork = record.clockwork;
                held.renewed = record.renewed;
                give_up(held);
                let epoch = held.epoch;
                table.dequeue(id);
                self.reschedule(&mut table, id);
                return Some((id, epoch));
            }
            if held.token > record.token {
                self.tell(&mut table, record, Cause::Forced);
                return None;
            }
            let cause = match held.clockwork.due(Instant::now()) {
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
    /// first.
    fn reschedule(&self, table: &mut Table, id: RecordId) {
        let next = table.reschedule(id);
        if next.is_some() && table.next_due() == next {
            self.0.wake.notify_one();
        }
    }

    async fn drive(self) {
        let mut healthy = self.0.healthy.clone();
        let mut watching = true;
        while !self.0.closed.is_cancelled() {
            let Some(next) = self.step(*healthy.borrow_and_update() || !watching) else {
                yield_now().await;
                continue;
            };
            let timer = async {
                match next {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.0.closed.cancelled() => return,
                () = self.0.wake.notified() => {}
                () = timer => {}
                changed = healthy.changed(), if watching => {
                    watching = changed.is_ok();
                    if !watching || *healthy.borrow() {
                        self.resume();
                    }
                }
            }
        }
    }

    /// Acts on what is due. Returns when the next is, or `None` if there is
    /// more to do now.
    #[allow(clippy::option_option, reason = "more to do now; nothing at all; then")]
    fn step(&self, healthy: bool) -> Option<Option<Instant>> {
        let now = Instant::now();
        let mut table = self.table();
        for _ in 0..BATCH {
            let Some((id, due)) = table.due(now) else { break };
            match due {
                Due::Renew if healthy => table.enqueue(id),
                Due::Renew => {
                    if let Some(record) = table.get_mut(id) {
                        record.clockwork.park();
                    }
                    table.reschedule(id);
                }
                Due::Lose(cause) => self.lose(&mut table, id, cause),
                Due::Release => self.release_held_long_enough(&mut table, id),
            }
        }
        for _ in 0..BATCH {
            let Some((id, place)) = table.next_renewal(&self.0.wake) else {
                let next = table.next_due();
                return if next.is_some_and(|next| next <= now) { None } else { Some(next) };
            };
            if healthy {
                self.start_renewal(&mut table, id, place);
            } else if let Some(record) = table.get_mut(id) {
                record.clockwork.park();
                table.reschedule(id);
            }
        }
        None
    }

    /// The app is healthy again: renews what is still held.
    fn resume(&self) {
        let now = Instant::now();
        let mut table = self.table();
        for id in table.ids() {
            if table.get_mut(id).is_some_and(|record| record.clockwork.resume(now)) {
                table.reschedule(id);
            }
        }
    }

    fn start_renewal(&self, table: &mut Table, id: RecordId, place: Place) {
        let Some(record) = table.get_mut(id) else { return };
        record.run += 1;
        let run = record.run;
        let until = record.clockwork.attempt_until(Instant::now());
        let request =
            renew_request(&record.key(), &record.lock_id, Some(record.clockwork.ttl()));
        let store = Arc::clone(&record.store);
        let engine = self.clone();
        record.renewal = Some(self.0.runtime.spawn(async move {
            let result = timeout_at(until, store.store().renew(request))
                .await
                .unwrap_or_else(|_| Err(LockError::OutcomeUnknown("no answer in time".into())));
            drop(place);
            engine.renewed(id, run, &result);
        }));
    }

    fn start_app_renewal(
        &self,
        id: RecordId,
        ttl: Option<Duration>,
        answer: oneshot::Sender<Result<Renewed, LockError>>,
    ) {
        let mut table = self.table();
        table.dequeue(id);
        let Some(record) = table.get_mut(id) else { return };
        let before = record.renewal.take();
        record.run += 1;
        let run = record.run;
        if record.renewed {
            record.clockwork.begin();
        }
        let request = renew_request(&record.key(), &record.lock_id, ttl);
        let store = Arc::clone(&record.store);
        let engine = self.clone();
        record.renewal = Some(self.0.runtime.spawn(async move {
            join(before).await;
            let result = store.store().renew(request).await;
            engine.renewed(id, run, &result);
            let _ = answer.send(result);
        }));
        self.reschedule(&mut table, id);
    }

    /// A renewal has ended.
    fn renewed(&self, id: RecordId, run: u32, result: &Result<Renewed, LockError>) {
        let now = Instant::now();
        let mut table = self.table();
        let Some(record) = table.get_mut(id).filter(|record| record.run == run) else { return };
        record.renewal = None;
        match result {
            Ok(renewed) => record.clockwork.renewed(*renewed, record.renewed, fastrand::f64()),
            Err(LockError::NotFound { .. }) => {
                let cause = match record.clockwork.due(now) {
                    Some(Due::Lose(cause)) => cause,
                    _ => Cause::Forced,
                };
                return self.lose(&mut table, id, cause);
            }
            Err(_) => record.clockwork.failed(now, record.renewed, fastrand::f64()),
        }
        self.reschedule(&mut table, id);
    }

    async fn unlock_held(
        &self,
        id: RecordId,
        key: &HeldKey,
        lock_id: &LockId,
    ) -> Result<(), HeldError> {
        let (store, renewal) = {
            let mut table = self.table();
            table.dequeue(id);
            let Some(record) = table.get_mut(id) else {
                drop(table);
                return Err(self.why_gone(key, lock_id, LockError::NotFound { held: false }));
            };
            record.run += 1;
            record.clockwork.stop();
            let taken = (Arc::clone(&record.store), record.renewal.take());
            self.reschedule(&mut table, id);
            taken
        };
        join(renewal).await;
        let result = store.store().unlock(unlock_request(key, lock_id)).await;
        let mut table = self.table();
        match result {
            Ok(()) => {
                if let Some(mut record) = table.remove(id) {
                    record.tell_stream(Ended::Unlocked);
                }
                Ok(())
            }
            Err(LockError::NotFound { .. })
                if table.get_mut(id).is_some_and(|record| record.unlock_unsure) =>
            {
                if let Some(mut record) = table.remove(id) {
                    record.tell_stream(Ended::Unlocked);
                }
                Ok(())
            }
            Err(error @ LockError::NotFound { .. }) => {
                if let Some(mut record) = table.remove(id) {
                    table.lost.remember(
                        key.clone(),
                        lock_id.clone(),
                        Cause::Forced,
                        Instant::now(),
                    );
                    record.tell_stream(Ended::Lost(Cause::Forced));
                }
                drop(table);
                Err(self.why_gone(key, lock_id, error))
            }
            Err(error) => {
                if let (LockError::OutcomeUnknown(_), Some(record)) =
                    (&error, table.get_mut(id))
                {
                    record.unlock_unsure = true;
                }
                Err(error.into())
            }
        }
    }

    fn release_held_long_enough(&self, table: &mut Table, id: RecordId) {
        let Some(mut record) = table.remove(id) else { return };
        let lost = record.lost(Cause::MaxHold);
        let had_stream = record.stream.is_some();
        record.tell_stream(Ended::Lost(Cause::MaxHold));
        self.note(table, lost, !had_stream);
        self.release(record);
    }

    fn lose(&self, table: &mut Table, id: RecordId, cause: Cause) {
        if let Some(record) = table.remove(id) {
            self.tell(table, record, cause);
        }
    }

    fn tell(&self, table: &mut Table, mut record: Record, cause: Cause) {
        give_up(&mut record);
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

/// Cancels a renewal and waits until nothing of it is left.
async fn join(renewal: Option<JoinHandle<()>>) {
    if let Some(renewal) = renewal {
        renewal.abort();
        let _ = renewal.await;
    }
}

/// Cancels the renewal of a lock that needs none any more.
fn give_up(record: &mut Record) {
    record.run += 1;
    if let Some(renewal) = record.renewal.take() {
        renewal.abort();
    }
}

fn record_of(holding: Holding, stream: Option<oneshot::Sender<Ended>>) -> Record {
    let clockwork = Clockwork::new(
        holding.since,
        holding.ttl,
        holding.renewed,
        holding.max_hold,
        fastrand::f64(),
    );
    Record {
        store: holding.store,
        resource: holding.resource,
        prefix_bytes: u32::try_from(holding.prefix_bytes).unwrap_or(0),
        lock_id: holding.lock_id,
        token: holding.token,
        clockwork,
        renewed: holding.renewed,
        renewal: None,
        run: 0,
        timer: holding.since,
        queued: None,
        unlock_unsure: false,
        stream,
        epoch: 0,
        _place: holding.place,
    }
}

fn unlock_request(key: &HeldKey, lock_id: &LockId) -> UnlockRequest {
    UnlockRequest {
        resource_id: key.resource.as_str().to_owned(),
        lock_id: lock_id.as_str().to_owned(),
        force: false,
    }
}

fn renew_request(key: &HeldKey, lock_id: &LockId, ttl: Option<Duration>) -> RenewRequest {
    RenewRequest {
        resource_id: key.resource.as_str().to_owned(),
        lock_id: lock_id.as_str().to_owned(),
        ttl,
    }
}

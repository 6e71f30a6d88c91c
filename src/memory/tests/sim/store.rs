//! The model as a backend: waits that are woken, grants that expire.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
};

use async_trait::async_trait;
use leasehold_lock::{
    Attempt, AttemptId, Backend, BackendError, Feature, Grant, Release, Renewal, Renewed,
};
use tokio::{
    sync::{Notify, oneshot},
    time::{Instant, sleep_until},
};
use tokio_util::task::AbortOnDropHandle;

use leasehold_testing::model::Model;

/// A lock store that consists of the model alone.
pub struct ModelStore {
    shared: Arc<Shared>,
    _sweeper: AbortOnDropHandle<()>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    model: Model,
    turns: HashMap<AttemptId, oneshot::Sender<Result<Grant, BackendError>>>,
}

impl ModelStore {
    pub fn new() -> Self {
        let shared = Arc::<Shared>::default();
        let sweeper = tokio::spawn(Arc::clone(&shared).sweep());
        Self { shared, _sweeper: AbortOnDropHandle::new(sweeper) }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Runs one operation, and wakes the sweeper.
    fn with<T>(&self, operation: impl FnOnce(&mut Model, Instant) -> T) -> T {
        let result = self.apply(operation);
        self.changed.notify_one();
        result
    }

    fn apply<T>(&self, operation: impl FnOnce(&mut Model, Instant) -> T) -> T {
        let mut state = self.state();
        let result = operation(&mut state.model, Instant::now());
        state.model.expired.clear();
        for (attempt, grant) in std::mem::take(&mut state.model.handed) {
            let turn = state.turns.remove(&attempt).expect("a waiter has a turn");
            turn.send(grant).expect("a waiter that goes leaves first");
        }
        result
    }

    async fn sweep(self: Arc<Self>) {
        loop {
            let next = self.apply(|model, now| {
                model.pass(now);
                model.next_expiry()
            });
            match next {
                None => self.changed.notified().await,
                Some(next) => tokio::select! {
                    biased;
                    () = sleep_until(next) => {}
                    () = self.changed.notified() => {}
                },
            }
        }
    }
}

/// Leaves the queue when the wait is dropped.
struct QueueGuard<'a>(&'a Shared, &'a Attempt);

impl Drop for QueueGuard<'_> {
    fn drop(&mut self) {
        self.0.state().turns.remove(&self.1.id);
        self.0.with(|model, now| model.leave(self.1, now));
    }
}

#[async_trait]
impl Backend for ModelStore {
    fn features(&self) -> &[Feature] {
        &[
            Feature::Fencing,
            Feature::ForceUnlock,
            Feature::Fair,
            Feature::Replay,
            Feature::Shared,
        ]
    }

    async fn try_lock(&self, attempt: &Attempt, _: Instant) -> Result<Grant, BackendError> {
        self.shared.with(|model, now| model.try_lock(attempt, now))
    }

    async fn lock(&self, attempt: &Attempt) -> Result<Grant, BackendError> {
        if let Some(grant) = self.shared.with(|model, now| model.enter(attempt, now))? {
            return Ok(grant);
        }
        let (turn, granted) = oneshot::channel();
        self.shared.state().turns.insert(attempt.id, turn);
        let _place = QueueGuard(&self.shared, attempt);
        granted.await.unwrap_or_else(|_| Err(BackendError::Unavailable("no turn".into())))
    }

    async fn renew(&self, renewal: &Renewal, _: Instant) -> Result<Renewed, BackendError> {
        self.shared.with(|model, now| model.renew(renewal, now))
    }

    async fn unlock(&self, release: &Release, _: Instant) -> Result<(), BackendError> {
        self.shared.with(|model, now| model.unlock(release, now)).map(drop)
    }

    async fn ping(&self, _: Instant) -> Result<(), BackendError> {
        Ok(())
    }

    async fn close(&self) {}
}

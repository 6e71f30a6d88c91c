//! A backend that can be seen, and fails on demand when it is read or watched.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use leasehold_lock::{
    Attempt, Backend, BackendError, Clock, Context, Feature, Grant, Release, Renewal, Renewed,
    ResourceId, Settings, Store,
    inspect::{Inspect, Inspected, LockView, Mirror, Page, PageRequest, Selection, WaiterView},
};
use leasehold_memory::Memory;
use tokio::time::Instant;

/// Memory that fails some of the watches first, and counts them.
pub(crate) struct Watched {
    pub(crate) memory: Memory,
    failures: AtomicUsize,
    error: BackendError,
    /// How many watches panic after that.
    pub(crate) panics: AtomicUsize,
    /// How many reads are answered. The others never are.
    pub(crate) reads_left: AtomicUsize,
    pub(crate) watches: AtomicUsize,
    pub(crate) running: AtomicUsize,
}

pub(crate) fn watched(failures: usize) -> (Store, Arc<Watched>) {
    watched_with(failures, BackendError::Unavailable("cut".into()))
}

pub(crate) fn watched_with(failures: usize, error: BackendError) -> (Store, Arc<Watched>) {
    let settings = Settings::default();
    let memory = Memory::new(&Context::new(settings.clone(), Clock::system()));
    let failures = AtomicUsize::new(failures);
    let backend = Arc::new(Watched {
        memory,
        failures,
        error,
        panics: 0.into(),
        reads_left: usize::MAX.into(),
        watches: 0.into(),
        running: 0.into(),
    });
    (Store::new(backend.clone(), settings), backend)
}

/// Counts a watch until it is dropped.
struct Running<'a>(&'a AtomicUsize);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Watched {
    fn inspected(&self) -> &dyn Inspect {
        self.memory.inspect().unwrap()
    }

    async fn may_read(&self) {
        if count_down(&self.reads_left).is_err() {
            std::future::pending::<()>().await;
        }
    }
}

fn count_down(left: &AtomicUsize) -> Result<usize, usize> {
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
}

#[async_trait]
impl Backend for Watched {
    fn features(&self) -> &[Feature] {
        self.memory.features()
    }

    async fn try_lock(&self, attempt: &Attempt, until: Instant) -> Result<Grant, BackendError> {
        self.memory.try_lock(attempt, until).await
    }

    async fn lock(&self, attempt: &Attempt) -> Result<Grant, BackendError> {
        self.memory.lock(attempt).await
    }

    async fn renew(&self, renewal: &Renewal, until: Instant) -> Result<Renewed, BackendError> {
        self.memory.renew(renewal, until).await
    }

    async fn unlock(&self, release: &Release, until: Instant) -> Result<(), BackendError> {
        self.memory.unlock(release, until).await
    }

    async fn ping(&self, until: Instant) -> Result<(), BackendError> {
        self.memory.ping(until).await
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        Some(self)
    }

    async fn close(&self) {}
}

#[async_trait]
impl Inspect for Watched {
    async fn get(
        &self,
        resource: &ResourceId,
        grants: &PageRequest,
        until: Instant,
    ) -> Result<Inspected, BackendError> {
        self.may_read().await;
        self.inspected().get(resource, grants, until).await
    }

    async fn list(
        &self,
        selection: &Selection,
        page: &PageRequest,
        until: Instant,
    ) -> Result<Page<LockView>, BackendError> {
        self.may_read().await;
        self.inspected().list(selection, page, until).await
    }

    async fn waiters(
        &self,
        resource: &ResourceId,
        page: &PageRequest,
        until: Instant,
    ) -> Result<Page<WaiterView>, BackendError> {
        self.may_read().await;
        self.inspected().waiters(resource, page, until).await
    }

    async fn watch(&self, mirror: &Mirror) -> BackendError {
        self.watches.fetch_add(1, Ordering::Relaxed);
        self.running.fetch_add(1, Ordering::Relaxed);
        let _running = Running(&self.running);
        if count_down(&self.failures).is_ok() {
            return self.error.clone();
        }
        assert!(count_down(&self.panics).is_err(), "a defect of the backend");
        self.inspected().watch(mirror).await
    }
}

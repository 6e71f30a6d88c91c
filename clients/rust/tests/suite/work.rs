//! Work that records how it ends.

use std::{
    convert::Infallible,
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use leasehold_client::LockBuilder;
use leasehold_client::{Lock, RunError, Waits};
use tokio::sync::Notify;

/// Work that goes on until it is dropped.
#[derive(Clone, Default)]
pub(crate) struct Endless {
    started: Arc<Notify>,
    ended: Arc<AtomicBool>,
    held: Arc<AtomicBool>,
}

impl Endless {
    /// Starts it in a task of its own.
    pub(crate) fn spawn(&self, lock: LockBuilder<Waits>) -> Task {
        let work = self.clone();
        tokio::spawn(lock.run(async move |lock| work.work(lock).await))
    }

    async fn work(self, lock: &Lock) -> Result<(), Infallible> {
        let _end = End { work: self.clone(), lock };
        self.started.notify_one();
        pending().await
    }

    /// Waits until it holds the lock.
    pub(crate) async fn started(&self) {
        self.started.notified().await;
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// Whether the lock was still valid when it ended.
    pub(crate) fn held_at_its_end(&self) -> bool {
        self.held.load(Ordering::SeqCst)
    }
}

pub(crate) type Task = tokio::task::JoinHandle<Result<(), RunError<Infallible>>>;

struct End<'a> {
    work: Endless,
    lock: &'a Lock,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.work.held.store(self.lock.check().is_ok(), Ordering::SeqCst);
        self.work.ended.store(true, Ordering::SeqCst);
    }
}

//! The mirror of a store, which runs while anybody watches the store.

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, Weak},
    time::Duration,
};

use futures_util::FutureExt as _;
use parking_lot::Mutex;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::sleep,
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tracing::warn;

use super::Mirror;
use crate::{Backend, LockError};

/// The most watches of a store.
const WATCHES_MAX: usize = 1000;
/// The pause before a backend that cannot be watched is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

pub(super) const NOT_WATCHABLE: &str = "this store cannot be watched";

/// The watches of a store.
#[derive(Debug)]
pub(crate) struct Watches {
    running: Mutex<Weak<Running>>,
    permits: Arc<Semaphore>,
}

impl Default for Watches {
    fn default() -> Self {
        let permits = Arc::new(Semaphore::new(WATCHES_MAX));
        Self { running: Mutex::default(), permits }
    }
}

/// A mirror that its backend keeps up to date until the last watch is dropped, or watches end.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) mirror: Arc<Mirror>,
    _task: AbortOnDropHandle<Option<()>>,
}

impl Watches {
    /// The running mirror of the store, for one more watcher. [`LockError::Overloaded`] if
    /// 1,000 watch already.
    pub(super) fn join(
        &self,
        backend: Arc<dyn Backend>,
        ending: &CancellationToken,
    ) -> Result<(Arc<Running>, OwnedSemaphorePermit), LockError> {
        let permits = Arc::clone(&self.permits);
        let permit = permits.try_acquire_owned().map_err(|_| LockError::Overloaded)?;
        Ok((self.running(backend, ending), permit))
    }

    fn running(&self, backend: Arc<dyn Backend>, ending: &CancellationToken) -> Arc<Running> {
        let mut running = self.running.lock();
        if let Some(running) = running.upgrade()
            && !running.mirror.has_failed()
        {
            return running;
        }
        let mirror = Arc::new(Mirror::default());
        // A watch that its client does not read is not dropped, and must not keep the backend.
        let keeping = keep(backend, Arc::clone(&mirror));
        let task = tokio::spawn(ending.clone().run_until_cancelled_owned(keeping));
        let new = Arc::new(Running { mirror, _task: AbortOnDropHandle::new(task) });
        *running = Arc::downgrade(&new);
        new
    }
}

/// Keeps the mirror up to date, also after the backend could not be watched for a while.
/// Returns if it never can be.
async fn keep(backend: Arc<dyn Backend>, mirror: Arc<Mirror>) {
    let Some(inspect) = backend.inspect() else {
        return mirror.fail(LockError::Unsupported(NOT_WATCHABLE.into()));
    };
    let mut is_known = false;
    loop {
        // A panic must not leave watchers without events.
        let watched = AssertUnwindSafe(inspect.watch(&mirror)).catch_unwind().await;
        let error = watched.map_or(LockError::Internal, LockError::of_read);
        if matches!(error, LockError::Unsupported(_)) {
            warn!(%error, "the store cannot be watched");
            return mirror.fail(error);
        }
        // An outage is logged once, not at every retry.
        if mirror.restart() || !is_known {
            warn!(%error, "the store cannot be watched; trying again");
        }
        is_known = true;
        sleep(RETRY_AFTER).await;
    }
}

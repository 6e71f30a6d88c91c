//! Watching: one mirror of a store for all who watch it.

use std::{
    collections::VecDeque,
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    task::consume_budget,
    time::{Instant, sleep, sleep_until},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tracing::warn;

use super::{
    EndedGrant, LockView, Mirror, Scope,
    mirror::{Next, Position},
    wanted::Want,
};
use crate::lock::{Backend, BackendError, Feature, LockError, Store};

/// How many may watch a store.
const WATCHES_MAX: usize = 1000;
/// How often a watcher is told that it knows everything.
const SYNCED_EVERY: Duration = Duration::from_secs(10);
/// How many changes are read from the mirror at a time.
const BATCH: usize = 100;
/// How long changes are collected before the next are told. Several changes of a resource
/// within this time are told as one, so that a busy store costs a watch little.
const TELL_EVERY: Duration = Duration::from_millis(100);
/// The pause before a backend that cannot be watched is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

const PROBLEM: &str = "this store cannot be watched";

/// What a watcher is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// The grants of a resource have changed.
    Changed {
        /// The resource as it is now.
        lock: LockView,
        /// Grants that ended since the watcher was last told of the resource, as far as they
        /// were seen: the last 100, or 10 if the resource is free now.
        ended: Vec<EndedGrant>,
    },
    /// Changes may have been missed: what was told so far counts no more, and all states
    /// follow.
    Restarted,
    /// All states have been told. Repeated every 10 s.
    Synced,
}

/// A subscription to the changes of a store's locks. Dropping it ends it.
#[derive(Debug)]
pub struct Watch {
    running: Arc<Running>,
    scope: Scope,
    position: Position,
    changed: watch::Receiver<()>,
    read: VecDeque<WatchEvent>,
    /// When `Synced` is told next if nothing changes.
    synced_next: Option<Instant>,
    /// When everything that was there had been told.
    caught_up: Instant,
    ending: CancellationToken,
    _want: Want,
    _permit: OwnedSemaphorePermit,
}

/// Those who watch a store.
#[derive(Debug)]
pub(in crate::lock) struct Watches {
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
struct Running {
    mirror: Arc<Mirror>,
    _task: AbortOnDropHandle<Option<()>>,
}

impl Store {
    /// Watches the resources of `scope`. [`LockError::Overloaded`] if 1,000 watch already.
    pub fn watch(&self, scope: Scope) -> Result<Watch, LockError> {
        self.must_have(Feature::Watch, PROBLEM)?;
        let ending = self.ending();
        if ending.is_cancelled() {
            return Err(LockError::ShuttingDown);
        }
        let watches = self.watches();
        let permits = Arc::clone(&watches.permits);
        let permit = permits.try_acquire_owned().map_err(|_| LockError::Overloaded)?;
        let running = watches.running(self.backend(), &ending);
        let want = Want::new(Arc::clone(&running.mirror), scope.clone());
        Ok(Watch {
            position: running.mirror.beginning(want.number),
            changed: running.mirror.changes(),
            running,
            scope,
            read: VecDeque::new(),
            synced_next: None,
            caught_up: Instant::now(),
            ending,
            _want: want,
            _permit: permit,
        })
    }
}

impl Watches {
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
        return mirror.fail(LockError::Unsupported(PROBLEM.into()));
    };
    let mut is_known = false;
    loop {
        let error = inspect.watch(&mirror).await;
        if matches!(error, BackendError::Unsupported(_)) {
            warn!(%error, "the store cannot be watched");
            return mirror.fail(error.into());
        }
        // An outage is logged once, however often it is tried again.
        if mirror.restart() || !is_known {
            warn!(%error, "the store cannot be watched; trying again");
        }
        is_known = true;
        sleep(RETRY_AFTER).await;
    }
}

impl Watch {
    /// What is told next. May be dropped at any await without losing anything.
    /// [`LockError::ShuttingDown`] when the store drains or was replaced,
    /// [`LockError::Unsupported`] if the backend turns out not to be watchable.
    pub async fn next(&mut self) -> Result<WatchEvent, LockError> {
        loop {
            if let Some(event) = self.read.pop_front() {
                return Ok(event);
            }
            if self.ending.is_cancelled() {
                return Err(LockError::ShuttingDown);
            }
            // Before the mirror is read, so that no change is missed.
            self.changed.mark_unchanged();
            match self.running.mirror.next(&mut self.position, BATCH, &self.scope) {
                Next::Changes(changes) => {
                    self.read.extend(changes);
                    // There may be very many that are not wanted.
                    consume_budget().await;
                }
                Next::Failed(error) => return Err(error),
                Next::Restarted => {
                    self.synced_next = None;
                    return Ok(WatchEvent::Restarted);
                }
                Next::CaughtUp { is_complete: true }
                    if self.synced_next.is_none_or(|next| next <= Instant::now()) =>
                {
                    self.synced_next = Some(Instant::now() + SYNCED_EVERY);
                    return Ok(WatchEvent::Synced);
                }
                Next::CaughtUp { is_complete } => {
                    self.caught_up = Instant::now();
                    let synced = self.synced_next.filter(|_| is_complete);
                    tokio::select! {
                        // The sender lives as long as `running`.
                        _ = self.changed.changed() => {}
                        () = sleep_until(synced.unwrap_or_else(Instant::now)), if synced.is_some() => {}
                        () = self.ending.cancelled() => continue,
                    }
                    sleep_until(self.caught_up + TELL_EVERY).await;
                }
            }
        }
    }
}

//! One watch of a store's changes.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use tokio::{
    sync::{OwnedSemaphorePermit, watch},
    task::consume_budget,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{
    Mirror, Scope, WatchEvent,
    mirror::{Next, Position, Subscription},
    running::{NOT_WATCHABLE, Running},
};
use crate::{Feature, LockError, Store, observe::Counted};

/// How often `Synced` is sent.
const SYNCED_EVERY: Duration = Duration::from_secs(10);
/// How many changes are read from the mirror at a time.
const BATCH: usize = 100;
/// How long changes are collected before the next events. Several changes of a resource
/// within this time become one event, so that a watch of a busy store costs little.
const COLLECTED_FOR: Duration = Duration::from_millis(100);

/// A subscription to the changes of a store's locks. Dropping it ends it.
#[derive(Debug)]
pub struct Watch {
    running: Arc<Running>,
    scope: Scope,
    position: Position,
    changed: watch::Receiver<()>,
    read: VecDeque<WatchEvent>,
    /// When the next `Synced` is due if nothing changes.
    synced_next: Option<Instant>,
    ending: CancellationToken,
    _subscription: Subscription,
    _permit: OwnedSemaphorePermit,
    _counted: Counted,
}

impl Store {
    /// Watches the resources of `scope`. [`LockError::Overloaded`] if 1,000 watch already.
    pub fn watch(&self, scope: Scope) -> Result<Watch, LockError> {
        self.must_have(Feature::Watch, NOT_WATCHABLE)?;
        let ending = self.0.ending.clone();
        if ending.is_cancelled() {
            return Err(LockError::ShuttingDown);
        }
        let (running, permit) = self.0.watches.join(self.backend(), &ending)?;
        let subscription = Mirror::subscribe(&running.mirror, scope.clone());
        Ok(Watch {
            position: running.mirror.beginning(subscription.number()),
            changed: running.mirror.changes(),
            running,
            scope,
            read: VecDeque::new(),
            synced_next: None,
            ending,
            _subscription: subscription,
            _permit: permit,
            _counted: Counted::new(Arc::clone(self.observer()), |it, n| it.watching(n)),
        })
    }
}

impl Watch {
    /// The next event. May be dropped at any await without losing anything.
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
                    // There may be very many that this watch does not cover.
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
                    let caught_up = Instant::now();
                    let synced = self.synced_next.filter(|_| is_complete);
                    let synced_at = synced.unwrap_or(caught_up);
                    tokio::select! {
                        // The sender lives as long as `running`.
                        _ = self.changed.changed() => {}
                        () = sleep_until(synced_at), if synced.is_some() => {}
                        () = self.ending.cancelled() => continue,
                    }
                    sleep_until(caught_up + COLLECTED_FOR).await;
                }
            }
        }
    }
}

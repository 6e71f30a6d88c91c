//! Reports a held lock to the observer of its store.

use std::{fmt, sync::Arc};

use leasehold_lock::{
    Instant,
    observe::{End, Observe},
};

use super::LockStore;

/// Counts a held lock for as long as its record lives, which includes its release, and reports
/// its end once.
pub(super) struct Tally {
    lock_store: Arc<LockStore>,
    /// Since when it is held; `None` if it has ended.
    since: Option<Instant>,
}

impl Tally {
    /// A lock of this store is held since then.
    pub(super) fn begin(store: &Arc<LockStore>, since: Instant) -> Self {
        let tally = Self { lock_store: Arc::clone(store), since: Some(since) };
        tally.observer().held(1);
        tally
    }

    /// The lock is no longer held.
    pub(super) fn end(&mut self, end: End) {
        if let Some(since) = self.since.take() {
            self.observer().hold_ended(end, Instant::now().saturating_duration_since(since));
        }
    }

    /// A repeated request got the lock. If it had ended for the one before, it is held anew.
    pub(super) fn replayed(&mut self, again: &Self) {
        self.since = self.since.or(again.since);
    }

    fn observer(&self) -> &dyn Observe {
        &**self.lock_store.store().observer()
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        self.observer().held(-1);
    }
}

impl fmt::Debug for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tally").field(&self.since).finish()
    }
}

//! Acquisitions that are being undone although their callers know the lock ID, because they
//! brought it. A renewal that found such a grant would tell its caller of a lock that ends.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Attempt, LockId, ResourceId};

type Lock = (ResourceId, LockId);

/// The lock IDs of acquisitions that are being undone, and of renewals under way.
#[derive(Default)]
pub(super) struct Undoing {
    counts: Mutex<HashMap<Lock, Counts>>,
    /// Notified when an acquisition is undone.
    ended: Notify,
}

/// What is under way with one lock ID.
#[derive(Default)]
struct Counts {
    /// Acquisitions that are being undone.
    undone: usize,
    /// How many undoings have begun since this is kept.
    begun: u64,
    renewed: usize,
}

impl Undoing {
    /// Notes that an attempt is being undone until the guard is dropped. Nobody can ask for a
    /// lock ID that leasehold chose, so such an attempt has no guard.
    pub(super) fn undo(self: &Arc<Self>, attempt: &Attempt) -> Option<Undo> {
        if !attempt.lock_id_given {
            return None;
        }
        let lock = (attempt.resource.clone(), attempt.lock_id.clone());
        self.change(&lock, |counts| {
            counts.undone += 1;
            counts.begun += 1;
        });
        Some(Undo { undoing: Arc::clone(self), lock })
    }

    /// Notes that a lock is being renewed until the guard is dropped.
    pub(super) fn renew(&self, lock: Lock) -> Renew<'_> {
        self.change(&lock, |counts| counts.renewed += 1);
        Renew { undoing: self, lock }
    }

    fn change<T>(&self, lock: &Lock, change: impl FnOnce(&mut Counts) -> T) -> T {
        let mut all = self.counts.lock();
        let counts = all.entry(lock.clone()).or_default();
        let changed = change(counts);
        if counts.undone == 0 && counts.renewed == 0 {
            all.remove(lock);
        }
        changed
    }
}

/// An acquisition that is being undone.
pub(super) struct Undo {
    undoing: Arc<Undoing>,
    lock: Lock,
}

impl Drop for Undo {
    fn drop(&mut self) {
        self.undoing.change(&self.lock, |counts| counts.undone -= 1);
        self.undoing.ended.notify_waiters();
    }
}

/// A renewal under way.
pub(super) struct Renew<'a> {
    undoing: &'a Undoing,
    lock: Lock,
}

impl Renew<'_> {
    /// Waits until no acquisition of the lock ID is being undone.
    pub(super) async fn ended(&self) {
        loop {
            let ended = self.undoing.ended.notified();
            if self.undoing.change(&self.lock, |counts| counts.undone) == 0 {
                return;
            }
            ended.await;
        }
    }

    /// How many undoings have begun since the renewal did, and some before.
    pub(super) fn begun(&self) -> u64 {
        self.undoing.change(&self.lock, |counts| counts.begun)
    }
}

impl Drop for Renew<'_> {
    fn drop(&mut self) {
        self.undoing.change(&self.lock, |counts| counts.renewed -= 1);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::lock::{AttemptId, Mode, Ttl};

    fn attempt() -> Attempt {
        Attempt {
            id: AttemptId::random(),
            resource: "r".parse().unwrap(),
            lock_id: LockId::new("mine").unwrap(),
            lock_id_given: true,
            request_id: None,
            mode: Mode::Exclusive,
            holder: None,
            ttl: Ttl::new(Duration::from_secs(1), Duration::from_secs(9)).unwrap(),
        }
    }

    fn lock() -> Lock {
        (attempt().resource, attempt().lock_id)
    }

    /// The renewal and the release may be carried out in this order and answered in the other.
    #[test]
    fn an_undoing_that_begins_and_ends_during_a_renewal_is_noticed() {
        let undoing = Arc::new(Undoing::default());
        let renew = undoing.renew(lock());
        let before = renew.begun();
        drop(undoing.undo(&attempt()));
        assert_ne!(renew.begun(), before);
    }

    #[test]
    fn nothing_is_kept_once_nothing_is_under_way() {
        let undoing = Arc::new(Undoing::default());
        let (renew, undo) = (undoing.renew(lock()), undoing.undo(&attempt()));
        drop(renew);
        assert_eq!(undoing.counts.lock().len(), 1);
        drop(undo);
        assert!(undoing.counts.lock().is_empty());
    }
}

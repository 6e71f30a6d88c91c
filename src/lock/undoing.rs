//! Acquisitions that are being undone although their callers know the lock ID, because they
//! brought it. A renewal that found such a grant would tell its caller of a lock that ends.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Attempt, LockId, ResourceId};

/// How many acquisitions of each resource and lock ID are being undone.
#[derive(Default)]
pub(super) struct Undoing {
    counts: Mutex<HashMap<(ResourceId, LockId), usize>>,
    /// Notified when an acquisition is undone.
    ended: Notify,
}

impl Undoing {
    /// Notes that an attempt is being undone until the guard is dropped. Nobody can ask for a
    /// lock ID that leasehold chose, so such an attempt has no guard.
    pub(super) fn begin(self: &Arc<Self>, attempt: &Attempt) -> Option<Undo> {
        if !attempt.lock_id_given {
            return None;
        }
        let lock = (attempt.resource.clone(), attempt.lock_id.clone());
        *self.counts.lock().entry(lock.clone()).or_default() += 1;
        Some(Undo { undoing: Arc::clone(self), lock })
    }

    /// Whether an acquisition of this lock ID is being undone.
    pub(super) fn has(&self, lock: &(ResourceId, LockId)) -> bool {
        self.counts.lock().contains_key(lock)
    }

    /// Waits until no acquisition of this lock ID is being undone.
    pub(super) async fn ended(&self, lock: &(ResourceId, LockId)) {
        loop {
            let ended = self.ended.notified();
            if !self.has(lock) {
                return;
            }
            ended.await;
        }
    }
}

/// Notes the end of the undoing when it is dropped.
pub(super) struct Undo {
    undoing: Arc<Undoing>,
    lock: (ResourceId, LockId),
}

impl Drop for Undo {
    fn drop(&mut self) {
        if let Entry::Occupied(mut count) = self.undoing.counts.lock().entry(self.lock.clone())
        {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        self.undoing.ended.notify_waiters();
    }
}

//! The tries under way, and which attempts were granted.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use leasehold_lock::{Attempt, AttemptId, LockId, ResourceId};
use parking_lot::Mutex;
use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};

/// How many grants with lock IDs that callers chose are remembered. A grant is looked up
/// soon after it was made, when its caller has gone away.
const GRANTED_MAX: usize = 10_000;

/// Which tries are under way, and which attempts with a lock ID that the caller chose were
/// granted.
#[derive(Clone, Default)]
pub(super) struct Attempts(Arc<Mutex<AttemptTable>>);

#[derive(Default)]
struct AttemptTable {
    running: HashMap<AttemptId, watch::Receiver<()>>,
    /// The last attempt that was granted with a lock ID.
    granted: HashMap<(ResourceId, LockId), AttemptId>,
    /// The entries of `granted`, the oldest first.
    noted: VecDeque<((ResourceId, LockId), AttemptId)>,
}

/// Marks a try as under way until it is dropped.
pub(super) struct Running {
    attempts: Attempts,
    id: AttemptId,
    _ended_by_drop: watch::Sender<()>,
}

impl Attempts {
    /// Registers a try. Its clean-up waits until the try has ended (trap 7).
    pub(super) fn begin(&self, id: AttemptId) -> Running {
        let (sender, receiver) = watch::channel(());
        self.0.lock().running.insert(id, receiver);
        Running { attempts: self.clone(), id, _ended_by_drop: sender }
    }

    /// Waits until the try has ended, or `until` has passed. Returns whether it has ended.
    pub(super) async fn ended(&self, id: AttemptId, until: Instant) -> bool {
        let running = self.0.lock().running.get(&id).cloned();
        let Some(mut running) = running else { return true };
        // Nothing is ever sent; an error means that the sender was dropped.
        timeout_at(until, async { while running.changed().await.is_ok() {} }).await.is_ok()
    }

    pub(super) fn note_granted(&self, attempt: &Attempt) {
        let mut state = self.0.lock();
        let state = &mut *state;
        if state.noted.len() == GRANTED_MAX
            && let Some((lock, id)) = state.noted.pop_front()
            && state.granted.get(&lock) == Some(&id)
        {
            state.granted.remove(&lock);
        }
        let lock = (attempt.resource.clone(), attempt.lock_id.clone());
        state.granted.insert(lock.clone(), attempt.id);
        state.noted.push_back((lock, attempt.id));
    }

    /// The last attempt that was granted with this lock ID, if it is remembered.
    pub(super) fn granted(&self, resource: &ResourceId, lock_id: &LockId) -> Option<AttemptId> {
        self.0.lock().granted.get(&(resource.clone(), lock_id.clone())).copied()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.attempts.0.lock().running.remove(&self.id);
    }
}

//! Hints which tries are likely to fail, so that they cost etcd less.

use std::collections::{HashMap, HashSet};

use leasehold_lock::{Mode, ResourceId};
use parking_lot::Mutex;

/// Resources remembered as held. When there are more, all are forgotten, which costs a
/// failed transaction each.
const HELD_MAX: usize = 16_384;

/// The last known states of resources that this process tried to lock.
#[derive(Debug, Default)]
pub(crate) struct Contention {
    /// Resources that were held or waited for when last seen: `Shared` if they could have
    /// been locked in that mode.
    held: Mutex<HashMap<ResourceId, Mode>>,
    /// Resources that a waiter tries to lock before it queues.
    tried: Mutex<HashSet<ResourceId>>,
}

/// Held by the only waiter of this process that tries to lock a resource before it queues.
pub(crate) struct FirstTry<'a> {
    contention: &'a Contention,
    resource: &'a ResourceId,
}

impl Drop for FirstTry<'_> {
    fn drop(&mut self) {
        self.contention.tried.lock().remove(self.resource);
    }
}

impl Contention {
    /// Whether the resource, when last seen, could not be locked in this mode. A try should
    /// then read first, because a failed transaction is a raft entry too.
    pub(crate) fn seems_held(&self, resource: &ResourceId, mode: Mode) -> bool {
        let held = self.held.lock().get(resource).copied();
        held.is_some_and(|held| held == Mode::Exclusive || mode == Mode::Exclusive)
    }

    /// Records the state of a resource: free, with shared grants, or held exclusively or
    /// waited for.
    pub(crate) fn saw(&self, resource: &ResourceId, seen: Option<Mode>) {
        let mut held = self.held.lock();
        let Some(mode) = seen else {
            held.remove(resource);
            return;
        };
        if held.len() >= HELD_MAX {
            held.clear();
        }
        held.insert(resource.clone(), mode);
    }

    /// Allows one waiter at a time to try to lock the resource before it queues. Of many
    /// that come together at most one can succeed, and each try costs a lease and a place
    /// in a batch.
    pub(crate) fn first_try<'a>(&'a self, resource: &'a ResourceId) -> Option<FirstTry<'a>> {
        let first = self.tried.lock().insert(resource.clone());
        first.then(|| FirstTry { contention: self, resource })
    }
}

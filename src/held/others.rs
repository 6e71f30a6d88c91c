//! The held locks of one name beyond the first, which are shared grants.

use std::collections::{BTreeSet, HashMap};

use leasehold_lock::{LockId, RequestId};

use super::record::{Record, RecordId};

/// Records of one name. Each is found by its lock ID and by its request ID, also among
/// thousands.
#[derive(Default)]
pub(super) struct Others {
    /// In the order in which they were added, so that a schedule can be repeated.
    ids: BTreeSet<RecordId>,
    by_lock_id: HashMap<LockId, RecordId>,
    by_request_id: HashMap<RequestId, RecordId>,
}

impl Others {
    pub(super) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = RecordId> {
        self.ids.iter().copied()
    }

    pub(super) fn with_lock_id(&self, lock_id: &LockId) -> Option<RecordId> {
        self.by_lock_id.get(lock_id).copied()
    }

    pub(super) fn with_request_id(&self, request_id: &RequestId) -> Option<RecordId> {
        self.by_request_id.get(request_id).copied()
    }

    /// Adds a record, whose lock ID no other of this name has.
    pub(super) fn insert(&mut self, id: RecordId, record: &Record) {
        self.ids.insert(id);
        self.by_lock_id.insert(record.lock_id.clone(), id);
        if let Some(request_id) = &record.request_id {
            self.by_request_id.insert(request_id.clone(), id);
        }
    }

    /// Removes a record, if it is one of these.
    pub(super) fn remove(&mut self, id: RecordId, record: &Record) {
        self.ids.remove(&id);
        remove_if(&mut self.by_lock_id, &record.lock_id, id);
        if let Some(request_id) = &record.request_id {
            // The same request may have made a later grant, if the store ended this one.
            remove_if(&mut self.by_request_id, request_id, id);
        }
    }
}

fn remove_if<K: Eq + std::hash::Hash>(
    index: &mut HashMap<K, RecordId>,
    name: &K,
    id: RecordId,
) {
    if index.get(name) == Some(&id) {
        index.remove(name);
    }
}

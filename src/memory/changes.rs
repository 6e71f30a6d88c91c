//! The resources that have changed, for watches of the store.

use std::collections::HashMap;

use leasehold_lock::{
    ResourceId,
    inspect::{EndedGrant, GRANTS_SHOWN_MAX},
};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Resources with changed grants since the last [`Changes::take`], each with the grants that
/// have ended. At most all resources that are held or were freed since.
#[derive(Debug, Default)]
pub(super) struct Changes {
    changed: Mutex<HashMap<ResourceId, Vec<EndedGrant>>>,
    /// Notified of each change.
    pub(super) noted: Notify,
}

impl Changes {
    /// Records that a grant of the resource was made, or that `ended` has.
    pub(super) fn note(&self, resource: &ResourceId, ended: Option<EndedGrant>) {
        let mut changed = self.changed.lock();
        let grants = changed.entry(resource.clone()).or_default();
        if grants.len() < GRANTS_SHOWN_MAX {
            grants.extend(ended);
        }
        drop(changed);
        self.noted.notify_one();
    }

    /// Takes the recorded changes out.
    pub(super) fn take(&self) -> HashMap<ResourceId, Vec<EndedGrant>> {
        std::mem::take(&mut *self.changed.lock())
    }
}

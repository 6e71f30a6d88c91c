//! Which resources have changed, for those who watch the store.

use std::collections::HashMap;

use leasehold_lock::{
    ResourceId,
    inspect::{EndedGrant, GRANTS_SHOWN_MAX},
};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Resources whose grants have changed since they were last taken out, each with grants that
/// have ended. There are at most as many as are held and were freed meanwhile.
#[derive(Debug, Default)]
pub(super) struct Changes {
    changed: Mutex<HashMap<ResourceId, Vec<EndedGrant>>>,
    /// Notified when there are some.
    pub(super) noted: Notify,
}

impl Changes {
    /// Notes that a grant of the resource was made, or that this one has ended.
    pub(super) fn note(&self, resource: &ResourceId, ended: Option<EndedGrant>) {
        let mut changed = self.changed.lock();
        let grants = changed.entry(resource.clone()).or_default();
        if grants.len() < GRANTS_SHOWN_MAX {
            grants.extend(ended);
        }
        drop(changed);
        self.noted.notify_one();
    }

    /// Takes them out.
    pub(super) fn take(&self) -> HashMap<ResourceId, Vec<EndedGrant>> {
        std::mem::take(&mut *self.changed.lock())
    }
}

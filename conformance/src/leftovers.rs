//! Records what a case may have left in the store.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tokio::task::AbortHandle;

use crate::connection::Instance;

/// All requests of one case. The calls record them, so no case can forget to.
#[derive(Default)]
pub(crate) struct Leftovers {
    noted: Mutex<Noted>,
}

/// The recorded requests.
#[derive(Default)]
pub(crate) struct Noted {
    pub(crate) waits: Vec<AbortHandle>,
    /// By resource.
    pub(crate) grants: BTreeMap<String, Grants>,
}

/// The grants of one resource that may exist.
pub(crate) struct Grants {
    /// The instance of the first request for the resource.
    pub(crate) instance: Instance,
    pub(crate) lock_ids: Vec<String>,
}

impl Leftovers {
    pub(crate) fn note_wait(&self, wait: AbortHandle) {
        self.noted.lock().waits.push(wait);
    }

    /// Records a grant that may exist. The lock ID is empty if the store chooses it.
    pub(crate) fn note_grant(&self, instance: &Instance, resource: &str, lock_id: &str) {
        let mut noted = self.noted.lock();
        let grants = noted
            .grants
            .entry(resource.to_owned())
            .or_insert_with(|| Grants { instance: instance.clone(), lock_ids: Vec::new() });
        if !lock_id.is_empty() && !grants.lock_ids.iter().any(|known| known == lock_id) {
            grants.lock_ids.push(lock_id.to_owned());
        }
    }

    pub(crate) fn note_unlock(&self, resource: &str, lock_id: &str) {
        if let Some(grants) = self.noted.lock().grants.get_mut(resource) {
            grants.lock_ids.retain(|known| known != lock_id);
        }
    }

    pub(crate) fn take(&self) -> Noted {
        std::mem::take(&mut *self.noted.lock())
    }
}

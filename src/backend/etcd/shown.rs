//! Where the shared grants are that were lately shown to somebody.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::lock::GrantId;

/// How many grants are remembered. With more of them all are forgotten.
const GRANTS_MAX: usize = 32_768;

/// The part of its key that names a shared grant, by the grant's public ID. This is only a
/// cache: without it, ending one of many shared grants by its ID would read them all.
#[derive(Debug, Default)]
pub(super) struct Shown {
    locks: Mutex<HashMap<GrantId, Box<str>>>,
}

impl Shown {
    /// Notes the key of a grant that is shown.
    pub(super) fn note(&self, id: GrantId, record_key: &str) {
        let Some((_, lock)) = record_key.rsplit_once('/') else { return };
        let mut locks = self.locks.lock();
        if locks.len() >= GRANTS_MAX && !locks.contains_key(&id) {
            *locks = HashMap::new();
        }
        locks.insert(id, lock.into());
    }

    /// The last part of the key of the grant with this ID, if it was shown.
    pub(super) fn lock(&self, id: GrantId) -> Option<Box<str>> {
        self.locks.lock().get(&id).cloned()
    }
}

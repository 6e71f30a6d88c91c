//! A cache of the keys of shared grants that were lately shown to somebody.

use std::collections::HashMap;

use leasehold_lock::GrantId;
use parking_lot::Mutex;

/// How many grants are remembered. With more of them all are forgotten.
const GRANTS_MAX: usize = 32_768;

/// The last part of a shared grant's key, LOCK in [`Keys`](super::keys::Keys), by the grant's
/// public ID. Without it, ending one of many shared grants by its ID would read them all.
#[derive(Debug, Default)]
pub(super) struct KeyCache {
    locks: Mutex<HashMap<GrantId, Box<str>>>,
}

impl KeyCache {
    /// Remembers the key of a grant's record.
    pub(super) fn insert(&self, id: GrantId, record_key: &str) {
        let Some((_, lock)) = record_key.rsplit_once('/') else { return };
        let mut locks = self.locks.lock();
        if locks.len() >= GRANTS_MAX && !locks.contains_key(&id) {
            *locks = HashMap::new();
        }
        locks.insert(id, lock.into());
    }

    /// The last part of the key of the grant with this ID, if it is remembered.
    pub(super) fn get(&self, id: GrantId) -> Option<Box<str>> {
        self.locks.lock().get(&id).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_part_of_a_key_is_remembered() {
        let cache = KeyCache::default();
        cache.insert(GrantId::from_u128(1), "p/r/a%2Fb/h/5e0c");
        assert_eq!(cache.get(GrantId::from_u128(1)).as_deref(), Some("5e0c"));
        assert_eq!(cache.get(GrantId::from_u128(2)), None);
    }

    #[test]
    fn the_cache_does_not_grow_without_limit() {
        let cache = KeyCache::default();
        for id in (0..).take(GRANTS_MAX + 1) {
            cache.insert(GrantId::from_u128(id), "p/r/a/h/5e0c");
        }
        assert_eq!(cache.locks.lock().len(), 1);
    }
}

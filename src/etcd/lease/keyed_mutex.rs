//! A mutex for each grant.
//!
//! Whatever moves a grant from one lease to another locks the grant, so that this process
//! updates what it knows of the lease in the order in which etcd changes it.

use std::{collections::HashMap, hash::Hash, sync::Arc};

use parking_lot::{Mutex, MutexGuard};
use tokio::{
    sync::OwnedMutexGuard,
    time::{Instant, timeout_at},
};

type Mutexed = Arc<tokio::sync::Mutex<()>>;

/// The mutexes. Only those that somebody holds or waits for are listed.
#[derive(Debug)]
pub(crate) struct KeyedMutex<K>(Mutex<HashMap<K, Mutexed>>);

/// A locked key; unlocked when dropped.
pub(crate) struct KeyedGuard<'a, K: Eq + Hash> {
    mutexes: &'a KeyedMutex<K>,
    key: K,
    guard: Option<OwnedMutexGuard<()>>,
}

impl<K> Default for KeyedMutex<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Clone + Eq + Hash> KeyedMutex<K> {
    /// Locks a key, in the order of arrival; `None` if that takes longer than `until`.
    pub(crate) async fn lock(&self, key: K, until: Instant) -> Option<KeyedGuard<'_, K>> {
        let mutex = self.mutex(&key);
        // Made before the wait, so that the mutex is unlisted if the wait is given up.
        let mut locked = KeyedGuard { mutexes: self, key, guard: None };
        locked.guard = Some(timeout_at(until, mutex.lock_owned()).await.ok()?);
        Some(locked)
    }

    fn mutex(&self, key: &K) -> Mutexed {
        Arc::clone(self.listed().entry(key.clone()).or_default())
    }
}

impl<K> KeyedMutex<K> {
    fn listed(&self) -> MutexGuard<'_, HashMap<K, Mutexed>> {
        self.0.lock()
    }
}

impl<K: Eq + Hash> Drop for KeyedGuard<'_, K> {
    fn drop(&mut self) {
        let mut listed = self.mutexes.listed();
        self.guard = None;
        // Whoever waits for it has another reference.
        if listed.get(&self.key).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            listed.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_key_is_locked_once_at_a_time_and_unlisted_afterwards() {
        let mutexes = KeyedMutex::default();
        let until = Instant::now() + Duration::from_secs(1);
        let first = mutexes.lock("key", until).await.unwrap();
        drop(mutexes.lock("other", until).await.unwrap());
        assert!(mutexes.lock("key", until).await.is_none(), "it is still locked");
        let (next, ()) =
            tokio::join!(mutexes.lock("key", until + Duration::from_secs(1)), async {
                drop(first);
            });
        drop(next.unwrap());
        assert!(mutexes.listed().is_empty());
    }
}

//! A mutex for each resource.
//!
//! Whatever moves a grant from one lease to another locks the resource, so that this process
//! updates what it knows of the lease in the order in which etcd changes it.

use std::{collections::HashMap, sync::Arc};

use parking_lot::{Mutex, MutexGuard};
use tokio::{
    sync::OwnedMutexGuard,
    time::{Instant, timeout_at},
};

use crate::lock::ResourceId;

type Mutexed = Arc<tokio::sync::Mutex<()>>;

/// The mutexes. Only those that somebody holds or waits for are listed.
#[derive(Debug, Default)]
pub(crate) struct KeyedMutex(Mutex<HashMap<ResourceId, Mutexed>>);

/// A locked resource; unlocked when dropped.
pub(crate) struct KeyedGuard<'a> {
    mutexes: &'a KeyedMutex,
    resource: &'a ResourceId,
    guard: Option<OwnedMutexGuard<()>>,
}

impl KeyedMutex {
    /// Locks a resource, in the order of arrival; `None` if that takes longer than `until`.
    pub(crate) async fn lock<'a>(
        &'a self,
        resource: &'a ResourceId,
        until: Instant,
    ) -> Option<KeyedGuard<'a>> {
        let mutex = self.mutex(resource);
        // Made before the wait, so that the mutex is unlisted if the wait is given up.
        let mut locked = KeyedGuard { mutexes: self, resource, guard: None };
        locked.guard = Some(timeout_at(until, mutex.lock_owned()).await.ok()?);
        Some(locked)
    }

    /// Locks a resource, if nobody has locked it.
    pub(crate) fn try_lock<'a>(&'a self, resource: &'a ResourceId) -> Option<KeyedGuard<'a>> {
        let mutex = self.mutex(resource);
        let mut locked = KeyedGuard { mutexes: self, resource, guard: None };
        locked.guard = Some(mutex.try_lock_owned().ok()?);
        Some(locked)
    }

    fn mutex(&self, resource: &ResourceId) -> Mutexed {
        Arc::clone(self.listed().entry(resource.clone()).or_default())
    }

    fn listed(&self) -> MutexGuard<'_, HashMap<ResourceId, Mutexed>> {
        self.0.lock()
    }
}

impl Drop for KeyedGuard<'_> {
    fn drop(&mut self) {
        let mut listed = self.mutexes.listed();
        self.guard = None;
        // Whoever waits for it has another reference.
        if listed.get(self.resource).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            listed.remove(self.resource);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_resource_is_locked_once_at_a_time_and_unlisted_afterwards() {
        let (mutexes, resource) = (KeyedMutex::default(), ResourceId::new("r").unwrap());
        let other = ResourceId::new("other").unwrap();
        let until = Instant::now() + Duration::from_secs(1);
        let first = mutexes.lock(&resource, until).await.unwrap();
        assert!(mutexes.try_lock(&resource).is_none());
        assert!(mutexes.try_lock(&other).is_some());
        assert!(mutexes.lock(&resource, until).await.is_none(), "it is still locked");
        let (next, ()) =
            tokio::join!(mutexes.lock(&resource, until + Duration::from_secs(1)), async {
                drop(first);
            });
        drop(next.unwrap());
        assert!(mutexes.listed().is_empty());
    }
}

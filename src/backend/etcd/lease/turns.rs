//! One at a time, for each resource.
//!
//! Whatever moves a grant from one lease to another takes its resource's turn: so what
//! this process knows of the lease is changed in the order in which etcd changes it.

use std::{collections::HashMap, sync::Arc};

use parking_lot::{Mutex, MutexGuard};
use tokio::{
    sync::OwnedMutexGuard,
    time::{Instant, timeout_at},
};

use crate::lock::ResourceId;

type Lock = Arc<tokio::sync::Mutex<()>>;

/// See the module. Only resources whose turn somebody has or awaits are listed.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<HashMap<ResourceId, Lock>>);

/// The turn of a resource; it ends when this is dropped.
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    resource: &'a ResourceId,
    guard: Option<OwnedMutexGuard<()>>,
}

impl Turns {
    /// Waits for the turn, in the order of arrival; `None` if it does not come in time.
    pub(crate) async fn take<'a>(
        &'a self,
        resource: &'a ResourceId,
        until: Instant,
    ) -> Option<Turn<'a>> {
        let lock = self.lock(resource);
        // Before the wait, so that it is not listed for ever if that is given up.
        let mut turn = Turn { turns: self, resource, guard: None };
        turn.guard = Some(timeout_at(until, lock.lock_owned()).await.ok()?);
        Some(turn)
    }

    /// The turn, if nobody has it.
    pub(crate) fn try_take<'a>(&'a self, resource: &'a ResourceId) -> Option<Turn<'a>> {
        let lock = self.lock(resource);
        let mut turn = Turn { turns: self, resource, guard: None };
        turn.guard = Some(lock.try_lock_owned().ok()?);
        Some(turn)
    }

    fn lock(&self, resource: &ResourceId) -> Lock {
        Arc::clone(self.locks().entry(resource.clone()).or_default())
    }

    fn locks(&self) -> MutexGuard<'_, HashMap<ResourceId, Lock>> {
        self.0.lock()
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut locks = self.turns.locks();
        self.guard = None;
        // Whoever waits has a share of it.
        if locks.get(self.resource).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            locks.remove(self.resource);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_resource_has_one_turn_at_a_time_and_none_is_listed_after_it() {
        let (turns, resource) = (Turns::default(), ResourceId::new("r").unwrap());
        let other = ResourceId::new("other").unwrap();
        let until = Instant::now() + Duration::from_secs(1);
        let first = turns.take(&resource, until).await.unwrap();
        assert!(turns.try_take(&resource).is_none());
        assert!(turns.try_take(&other).is_some());
        assert!(turns.take(&resource, until).await.is_none(), "it is not its turn");
        let (next, ()) =
            tokio::join!(turns.take(&resource, until + Duration::from_secs(1)), async {
                drop(first);
            });
        drop(next.unwrap());
        assert!(turns.locks().is_empty());
    }
}

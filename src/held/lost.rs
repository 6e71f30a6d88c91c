//! The locks that were lost in the last minutes, so that a call that names one
//! gets the cause.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use leasehold_lock::{Abandoned, Instant};

use super::{
    Cause,
    store::{GrantName, Request},
};

/// How long a lost lock is remembered.
const REMEMBERED_FOR: Duration = Duration::from_secs(600);
/// How many are remembered. The oldest is forgotten first.
const REMEMBERED_MAX: usize = 10_000;

/// The loss of a lock.
#[derive(Clone, Debug)]
pub(super) struct Loss {
    pub(super) cause: Cause,
    /// The grant, which its store may still have.
    pub(super) grant: Abandoned,
    /// The request that made it.
    pub(super) request: Option<Request>,
}

/// Remembers lost locks for a while.
#[derive(Debug, Default)]
pub(super) struct Lost {
    losses: HashMap<GrantName, (Instant, Loss)>,
    order: VecDeque<(Instant, GrantName)>,
}

impl Lost {
    /// Records a loss at `now`.
    pub(super) fn remember(&mut self, name: GrantName, loss: Loss, now: Instant) {
        self.forget_old(now);
        if self.order.len() >= REMEMBERED_MAX {
            self.forget_oldest();
        }
        self.losses.insert(name.clone(), (now, loss));
        self.order.push_back((now, name));
    }

    /// Why this lock was lost, if that is still remembered.
    pub(super) fn cause(&mut self, name: &GrantName, now: Instant) -> Option<Cause> {
        self.loss(name, now).map(|loss| loss.cause)
    }

    /// Like [`Lost::cause`], with the grant that the store may still have.
    pub(super) fn loss(&mut self, name: &GrantName, now: Instant) -> Option<&Loss> {
        self.forget_old(now);
        self.losses.get(name).map(|(_, loss)| loss)
    }

    /// A lock of this name is held again: a caller that chooses its lock ID may use it
    /// twice.
    pub(super) fn forget(&mut self, name: &GrantName) {
        self.losses.remove(name);
    }

    fn forget_old(&mut self, now: Instant) {
        while self.order.front().is_some_and(|(at, _)| now >= *at + REMEMBERED_FOR) {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let Some((at, name)) = self.order.pop_front() else { return };
        if self.losses.get(&name).is_some_and(|(noted, _)| *noted == at) {
            self.losses.remove(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use leasehold_lock::{LockId, ResourceId};

    use super::*;
    use crate::{LockStore, Resource, tests::scripted};

    fn name(store: &Arc<LockStore>, resource: usize, lock_id: &LockId) -> GrantName {
        let id = ResourceId::new(&format!("r{resource}")).unwrap();
        (Resource { lock_store: Arc::clone(store), id }, lock_id.clone())
    }

    fn loss(cause: Cause) -> Loss {
        let grant = Abandoned {
            resource: "r".parse().unwrap(),
            lock_id: LockId::random(),
            id: None,
            claims: Vec::new(),
        };
        Loss { cause, grant, request: None }
    }

    #[tokio::test(start_paused = true)]
    async fn a_loss_is_remembered_for_ten_minutes() {
        let (mut lost, id, now) = (Lost::default(), LockId::random(), Instant::now());
        let store = scripted("s").0;
        let named = |resource| name(&store, resource, &id);
        lost.remember(named(0), loss(Cause::Forced), now);
        let last = now + Duration::from_secs(600) - Duration::from_millis(1);
        assert_eq!(lost.cause(&named(0), last), Some(Cause::Forced));
        assert_eq!(lost.cause(&name(&store, 0, &LockId::random()), last), None);
        assert_eq!(lost.cause(&named(1), last), None);
        assert_eq!(lost.cause(&named(0), now + Duration::from_secs(600)), None);
        assert!(lost.losses.is_empty() && lost.order.is_empty());
    }

    /// Trap: sidecar 20
    #[tokio::test(start_paused = true)]
    async fn ten_thousand_are_remembered() {
        let (mut lost, id, now) = (Lost::default(), LockId::random(), Instant::now());
        let store = scripted("s").0;
        for resource in 0..=REMEMBERED_MAX {
            lost.remember(name(&store, resource, &id), loss(Cause::Expired), now);
        }
        assert_eq!(lost.cause(&name(&store, 0, &id), now), None);
        assert_eq!(lost.cause(&name(&store, 1, &id), now), Some(Cause::Expired));
        assert_eq!(lost.losses.len(), REMEMBERED_MAX);
    }
}

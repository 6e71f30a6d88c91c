//! The locks that were lost in the last minutes, so that a call that names one
//! gets the cause.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use leasehold_lock::{Abandoned, Instant, LockId};

use super::{Cause, HeldKey, store::Request};

/// How long a lost lock is remembered.
const REMEMBERED_FOR: Duration = Duration::from_secs(600);
/// How many are remembered. The oldest is forgotten first.
const REMEMBERED_MAX: usize = 10_000;

/// A grant's full name.
pub(super) type Name = (HeldKey, LockId);

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
    losses: HashMap<Name, (Instant, Loss)>,
    order: VecDeque<(Instant, Name)>,
}

impl Lost {
    /// Records a loss at `now`.
    pub(super) fn remember(&mut self, key: HeldKey, lock_id: LockId, loss: Loss, now: Instant) {
        self.forget_old(now);
        if self.order.len() >= REMEMBERED_MAX {
            self.forget_oldest();
        }
        let name = (key, lock_id);
        self.losses.insert(name.clone(), (now, loss));
        self.order.push_back((now, name));
    }

    /// Why this lock was lost, if that is still remembered.
    pub(super) fn cause(
        &mut self,
        key: &HeldKey,
        lock_id: &LockId,
        now: Instant,
    ) -> Option<Cause> {
        self.loss(key, lock_id, now).map(|loss| loss.cause)
    }

    /// Like [`Lost::cause`], with the grant that the store may still have.
    pub(super) fn loss(
        &mut self,
        key: &HeldKey,
        lock_id: &LockId,
        now: Instant,
    ) -> Option<Loss> {
        self.forget_old(now);
        self.losses.get(&(key.clone(), lock_id.clone())).map(|(_, loss)| loss.clone())
    }

    /// A lock of this name is held again: a caller that chooses its lock ID may use it
    /// twice.
    pub(super) fn forget(&mut self, key: &HeldKey, lock_id: &LockId) {
        if !self.losses.is_empty() {
            self.losses.remove(&(key.clone(), lock_id.clone()));
        }
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
    use leasehold_lock::ResourceId;

    use super::*;

    fn key(resource: usize) -> HeldKey {
        HeldKey {
            store: "s".into(),
            resource: ResourceId::new(&format!("r{resource}")).unwrap(),
        }
    }

    fn loss(cause: Cause) -> Loss {
        let (resource, lock_id) = (key(0).resource, LockId::random());
        let ttl = Duration::from_secs(30);
        let grant = Abandoned { resource, lock_id, id: None, claims: Vec::new(), ttl };
        Loss { cause, grant, request: None }
    }

    #[tokio::test(start_paused = true)]
    async fn a_loss_is_remembered_for_ten_minutes() {
        let (mut lost, id, now) = (Lost::default(), LockId::random(), Instant::now());
        lost.remember(key(0), id.clone(), loss(Cause::Forced), now);
        let last = now + Duration::from_secs(600) - Duration::from_millis(1);
        assert_eq!(lost.cause(&key(0), &id, last), Some(Cause::Forced));
        assert_eq!(lost.cause(&key(0), &LockId::random(), last), None);
        assert_eq!(lost.cause(&key(1), &id, last), None);
        assert_eq!(lost.cause(&key(0), &id, now + Duration::from_secs(600)), None);
        assert!(lost.losses.is_empty() && lost.order.is_empty());
    }

    /// Trap: sidecar 20
    #[tokio::test(start_paused = true)]
    async fn ten_thousand_are_remembered() {
        let (mut lost, id, now) = (Lost::default(), LockId::random(), Instant::now());
        for resource in 0..=REMEMBERED_MAX {
            lost.remember(key(resource), id.clone(), loss(Cause::Expired), now);
        }
        assert_eq!(lost.cause(&key(0), &id, now), None);
        assert_eq!(lost.cause(&key(1), &id, now), Some(Cause::Expired));
        assert_eq!(lost.losses.len(), REMEMBERED_MAX);
    }
}

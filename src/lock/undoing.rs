//! Acquisitions that are being undone although their callers know the lock ID, because they
//! brought it. A renewal that found such a grant would tell its caller of a lock that ends.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Attempt, GrantId, LockId, ResourceId};

type Lock = (ResourceId, LockId);

/// The acquisitions that are being undone, and the renewals under way.
#[derive(Default)]
pub(super) struct Undoing {
    locks: Mutex<HashMap<Lock, UnderWay>>,
    /// Notified when an acquisition is undone.
    ended: Notify,
}

/// What is under way with one lock ID.
#[derive(Default)]
struct UnderWay {
    /// By the grant that the acquisition may have made.
    undos: HashMap<GrantId, State>,
    /// The numbers of the renewals under way.
    renewals: BTreeSet<u64>,
    /// Numbers the begins of renewals and the ends of undos in their order.
    events: u64,
}

/// How far an acquisition is undone.
#[derive(Default)]
struct State {
    /// How many releases of it are under way.
    open: usize,
    /// The number of its last end.
    ended: u64,
}

impl UnderWay {
    fn next(&mut self) -> u64 {
        self.events += 1;
        self.events
    }

    /// Forgets the undos that ended before every renewal that is under way began.
    fn prune(&mut self) {
        let oldest = self.renewals.first().copied().unwrap_or(u64::MAX);
        self.undos.retain(|_, state| state.open > 0 || state.ended > oldest);
    }

    /// Whether this grant is being undone. `None` may be any grant.
    fn is_open(&self, grant: Option<GrantId>) -> bool {
        match grant {
            Some(grant) => self.undos.get(&grant).is_some_and(|state| state.open > 0),
            None => self.undos.values().any(|state| state.open > 0),
        }
    }
}

impl Undoing {
    /// Notes that an attempt is being undone until the guard is dropped. Nobody can ask for a
    /// lock ID that leasehold chose, so such an attempt has no guard.
    pub(super) fn undo(self: &Arc<Self>, attempt: &Attempt) -> Option<Undo> {
        if !attempt.lock_id_given {
            return None;
        }
        let lock = (attempt.resource.clone(), attempt.lock_id.clone());
        let grant = GrantId::from(attempt.id);
        self.with(&lock, |under_way| under_way.undos.entry(grant).or_default().open += 1);
        Some(Undo { undoing: Arc::clone(self), lock, grant })
    }

    /// Notes that a lock is being renewed until the guard is dropped.
    pub(super) fn renew(&self, lock: Lock) -> Renew<'_> {
        let number = self.with(&lock, |under_way| {
            let number = under_way.next();
            under_way.renewals.insert(number);
            number
        });
        Renew { undoing: self, lock, number }
    }

    fn with<T>(&self, lock: &Lock, change: impl FnOnce(&mut UnderWay) -> T) -> T {
        let mut locks = self.locks.lock();
        let under_way = locks.entry(lock.clone()).or_default();
        let changed = change(under_way);
        if under_way.undos.is_empty() && under_way.renewals.is_empty() {
            locks.remove(lock);
        }
        changed
    }
}

/// An acquisition that is being undone.
pub(super) struct Undo {
    undoing: Arc<Undoing>,
    lock: Lock,
    grant: GrantId,
}

impl Drop for Undo {
    fn drop(&mut self) {
        self.undoing.with(&self.lock, |under_way| {
            let number = under_way.next();
            let state = under_way.undos.entry(self.grant).or_default();
            state.open -= 1;
            state.ended = number;
            if under_way.renewals.is_empty() && state.open == 0 {
                under_way.undos.remove(&self.grant);
            }
        });
        self.undoing.ended.notify_waiters();
    }
}

/// A renewal under way.
pub(super) struct Renew<'a> {
    undoing: &'a Undoing,
    lock: Lock,
    number: u64,
}

impl Renew<'_> {
    /// Whether this grant is being undone, or was since the renewal began. `None` may be any
    /// grant, of which only those count that are being undone.
    pub(super) fn meets_undo_of(&self, grant: Option<GrantId>) -> bool {
        self.undoing.with(&self.lock, |under_way| {
            let state = grant.and_then(|grant| under_way.undos.get(&grant));
            state.is_some_and(|state| state.ended > self.number) || under_way.is_open(grant)
        })
    }

    /// Waits until this grant is not being undone.
    pub(super) async fn undone(&self, grant: Option<GrantId>) {
        loop {
            let ended = self.undoing.ended.notified();
            if !self.undoing.with(&self.lock, |under_way| under_way.is_open(grant)) {
                return;
            }
            ended.await;
        }
    }
}

impl Drop for Renew<'_> {
    fn drop(&mut self) {
        self.undoing.with(&self.lock, |under_way| {
            under_way.renewals.remove(&self.number);
            under_way.prune();
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{AttemptId, Mode, Ttl};

    fn attempt() -> Attempt {
        Attempt {
            id: AttemptId::random(),
            resource: "r".parse().unwrap(),
            lock_id: LockId::new("mine").unwrap(),
            lock_id_given: true,
            request_id: None,
            mode: Mode::Exclusive,
            holder: None,
            ttl: Ttl::new(Duration::from_secs(1), Duration::from_secs(9)).unwrap(),
        }
    }

    fn lock() -> Lock {
        (attempt().resource, attempt().lock_id)
    }

    /// The renewal and the release may be carried out in this order and answered in the other.
    #[test]
    fn an_undoing_that_begins_and_ends_during_a_renewal_is_noticed() {
        let undoing = Arc::new(Undoing::default());
        let renew = undoing.renew(lock());
        let attempt = attempt();
        let grant = Some(attempt.id.into());
        drop(undoing.undo(&attempt));
        assert!(renew.meets_undo_of(grant));
        assert!(!renew.meets_undo_of(Some(AttemptId::random().into())), "another grant");
        assert!(!undoing.renew(lock()).meets_undo_of(grant), "the undoing was over");
    }

    #[test]
    fn nothing_is_kept_once_nothing_is_under_way() {
        let undoing = Arc::new(Undoing::default());
        let (renew, undo) = (undoing.renew(lock()), undoing.undo(&attempt()));
        drop(undoing.undo(&attempt()));
        drop(renew);
        assert_eq!(undoing.locks.lock()[&lock()].undos.len(), 1);
        drop(undo);
        assert!(undoing.locks.lock().is_empty());
    }
}

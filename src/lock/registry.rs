//! The acquisitions and ends of grants in this process, by lock ID.
//!
//! A caller that chose the lock ID can name a lock before it is granted. Every caller that has the
//! lock ID can name it while it is being ended, because the grant was not received, is no longer
//! held, or is being unlocked. The registry keeps three promises for such a lock:
//!
//! - A renewal, or a repeated request, that finds a grant which is being ended waits until that
//!   has happened, and asks again. A renewal is never answered with a lock that then ends, nor a
//!   repeated request with one whose end is under way when its answer arrives.
//! - It waits for that grant only, and for unlocks, which name a lock ID and no grant ID. There may
//!   always be other acquisitions with its lock ID.
//! - A grant that was renewed before its acquisition was answered is not undone: its caller has it.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Attempt, GrantId, LockId, ResourceId};

pub(super) type Lock = (ResourceId, LockId);

/// The acquisitions in flight, the grants that are being ended, and the looks at them.
#[derive(Default)]
pub(super) struct Registry {
    locks: Mutex<HashMap<Lock, Entry>>,
}

/// What is under way with one lock ID.
#[derive(Default)]
struct Entry {
    /// By the grant that was or may have been made; `None` if its name is not known.
    grants: HashMap<Option<GrantId>, GrantMoves>,
    /// The numbers of the looks under way.
    looks: BTreeSet<u64>,
    /// Numbers the begins of looks and the ends of grants in their order.
    events: u64,
    /// Notified when a grant has ended, if somebody waits for that. One for all locks would wake
    /// all who wait at each end: thousands end together when a process drains.
    ended: Option<Arc<Notify>>,
}

/// What is under way with one grant.
#[derive(Default)]
struct GrantMoves {
    /// Whether its acquisition is in flight.
    acquiring: bool,
    /// Whether a renewal has found it meanwhile.
    renewed: bool,
    /// How many releases of it are under way.
    ending: usize,
    /// The number of the last end of such a release.
    ended: u64,
}

impl Entry {
    fn next(&mut self) -> u64 {
        self.events += 1;
        self.events
    }

    /// Forgets ends that are older than every look under way.
    fn prune(&mut self) {
        let oldest = self.looks.first().copied().unwrap_or(u64::MAX);
        self.grants
            .retain(|_, state| state.acquiring || state.ending > 0 || state.ended > oldest);
    }

    /// Whether this grant is being ended. `None` may be any grant.
    fn is_ending(&self, grant: Option<GrantId>) -> bool {
        self.may_be(grant).any(|state| state.ending > 0)
    }

    /// What is under way with this grant, or with one that may be it.
    fn may_be(&self, grant: Option<GrantId>) -> impl Iterator<Item = &GrantMoves> {
        let is_it = move |id: Option<GrantId>| id.is_none() || grant.is_none() || id == grant;
        self.grants.iter().filter(move |(id, _)| is_it(**id)).map(|(_, state)| state)
    }
}

impl Registry {
    /// Registers an acquisition in flight until the guard is dropped. Nobody can name a lock ID
    /// that leasehold chose, so such an attempt has no guard.
    pub(super) fn acquire(self: &Arc<Self>, attempt: &Attempt) -> Option<Acquisition> {
        if !attempt.lock_id_given {
            return None;
        }
        let lock = (attempt.resource.clone(), attempt.lock_id.clone());
        let grant = Some(GrantId::from(attempt.id));
        self.with(&lock, |entry| entry.grants.entry(grant).or_default().acquiring = true);
        Some(Acquisition { registry: Arc::clone(self), lock, grant })
    }

    /// Registers the end of a grant until the guard is dropped.
    pub(super) fn end(self: &Arc<Self>, lock: Lock, grant: Option<GrantId>) -> Ending {
        self.with(&lock, |entry| entry.grants.entry(grant).or_default().ending += 1);
        Ending { registry: Arc::clone(self), lock, grant }
    }

    /// Whether this grant is being ended. `None` may be any grant.
    pub(super) fn is_ending(&self, lock: &Lock, grant: Option<GrantId>) -> bool {
        self.locks.lock().get(lock).is_some_and(|entry| entry.is_ending(grant))
    }

    /// Waits until this grant is not being ended. `None` may be any grant.
    pub(super) async fn ended(&self, lock: &Lock, grant: Option<GrantId>) {
        loop {
            let ended = {
                let mut locks = self.locks.lock();
                match locks.get_mut(lock) {
                    Some(entry) if entry.is_ending(grant) => {
                        Arc::clone(entry.ended.get_or_insert_default()).notified_owned()
                    }
                    _ => return,
                }
            };
            ended.await;
        }
    }

    /// To be called before a request is sent that may find a grant with this lock ID.
    pub(super) fn look(&self, lock: Lock) -> Look<'_> {
        let number = self.with(&lock, |entry| {
            let number = entry.next();
            entry.looks.insert(number);
            number
        });
        Look { registry: self, lock, number }
    }

    fn with<T>(&self, lock: &Lock, change: impl FnOnce(&mut Entry) -> T) -> T {
        let mut locks = self.locks.lock();
        let entry = locks.entry(lock.clone()).or_default();
        let changed = change(entry);
        entry.prune();
        if entry.grants.is_empty() && entry.looks.is_empty() {
            locks.remove(lock);
        }
        changed
    }
}

/// An acquisition in flight.
pub(super) struct Acquisition {
    registry: Arc<Registry>,
    lock: Lock,
    grant: Option<GrantId>,
}

impl Acquisition {
    /// Registers that it is being undone, unless a renewal has found its grant.
    pub(super) fn undo(&self) -> Option<Ending> {
        self.registry.with(&self.lock, |entry| {
            let state = entry.grants.entry(self.grant).or_default();
            (!state.renewed).then(|| state.ending += 1)
        })?;
        let (registry, lock) = (Arc::clone(&self.registry), self.lock.clone());
        Some(Ending { registry, lock, grant: self.grant })
    }
}

impl Drop for Acquisition {
    fn drop(&mut self) {
        self.registry.with(&self.lock, |entry| {
            if let Some(state) = entry.grants.get_mut(&self.grant) {
                state.acquiring = false;
            }
        });
    }
}

/// A grant that is being ended.
pub(super) struct Ending {
    registry: Arc<Registry>,
    lock: Lock,
    grant: Option<GrantId>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.registry.with(&self.lock, |entry| {
            let number = entry.next();
            let state = entry.grants.entry(self.grant).or_default();
            state.ending -= 1;
            state.ended = number;
            if let Some(ended) = &entry.ended {
                ended.notify_waiters();
            }
        });
    }
}

/// A request under way that may find a grant.
pub(super) struct Look<'a> {
    registry: &'a Registry,
    lock: Lock,
    number: u64,
}

impl Look<'_> {
    /// Whether a renewal that found this grant may be answered: the grant is not being ended,
    /// nor was since the look began. From then on its acquisition is not undone. For `None`, any
    /// grant that is being ended counts, and none that was.
    pub(super) fn may_answer(&self, grant: Option<GrantId>) -> bool {
        self.registry.with(&self.lock, |entry| {
            let has_ended = |state: &GrantMoves| state.ended > self.number;
            let was_ended = grant.is_some() && entry.may_be(grant).any(has_ended);
            if was_ended || entry.is_ending(grant) {
                return false;
            }
            if let (Some(_), Some(state)) = (grant, entry.grants.get_mut(&grant)) {
                state.renewed = true;
            }
            true
        })
    }
}

impl Drop for Look<'_> {
    fn drop(&mut self) {
        self.registry.with(&self.lock, |entry| entry.looks.remove(&self.number));
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        sync::atomic::{AtomicBool, Ordering},
        task::{Context, Wake, Waker},
        time::Duration,
    };

    use super::*;
    use crate::{AttemptId, Ttl};

    fn attempt() -> Attempt {
        Attempt {
            lock_id: LockId::new("mine").unwrap(),
            lock_id_given: true,
            ..Attempt::new(
                "r".parse().unwrap(),
                Ttl::new(Duration::from_secs(1), Duration::from_secs(9)).unwrap(),
            )
        }
    }

    fn lock() -> Lock {
        (attempt().resource, attempt().lock_id)
    }

    /// The renewal and the release may be carried out in this order and answered in the other.
    #[test]
    fn an_end_that_begins_and_is_over_during_a_look_is_noticed() {
        let registry = Arc::new(Registry::default());
        let look = registry.look(lock());
        let attempt = attempt();
        let grant = Some(attempt.id.into());
        let acquisition = registry.acquire(&attempt).unwrap();
        drop(acquisition.undo().unwrap());
        drop(acquisition);
        assert!(!look.may_answer(grant));
        assert!(look.may_answer(Some(AttemptId::random().into())), "another grant");
        assert!(registry.look(lock()).may_answer(grant), "the end was over");
    }

    #[test]
    fn a_renewed_grant_is_not_undone() {
        let registry = Arc::new(Registry::default());
        let (attempt, other) = (attempt(), attempt());
        let acquisitions = [&attempt, &other].map(|it| registry.acquire(it).unwrap());
        assert!(registry.look(lock()).may_answer(Some(attempt.id.into())));
        assert!(acquisitions[0].undo().is_none());
        assert!(acquisitions[1].undo().is_some(), "another acquisition with the same lock ID");
    }

    /// Each end once woke all who waited for any.
    #[test]
    fn the_end_of_a_grant_wakes_nobody_who_waits_for_another_lock() {
        let registry = Arc::new(Registry::default());
        let other = ("other".parse().unwrap(), attempt().lock_id);
        let (first, second) = (registry.end(lock(), None), registry.end(other.clone(), None));
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut context = Context::from_waker(&waker);
        let mut wait = pin!(registry.ended(&other, None));
        assert!(wait.as_mut().poll(&mut context).is_pending());
        drop(first);
        assert!(!woken.0.load(Ordering::Relaxed));
        drop(second);
        assert!(woken.0.load(Ordering::Relaxed));
        assert!(wait.as_mut().poll(&mut context).is_ready());
    }

    #[derive(Default)]
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn nothing_is_kept_once_nothing_is_under_way() {
        let registry = Arc::new(Registry::default());
        let (look, first) = (registry.look(lock()), registry.acquire(&attempt()).unwrap());
        let ending = first.undo();
        let unnamed = registry.end(lock(), None);
        drop((unnamed, first));
        drop(look);
        assert_eq!(registry.locks.lock()[&lock()].grants.len(), 1);
        drop(ending);
        assert!(registry.locks.lock().is_empty());
    }
}

//! The held resources of a store in the order of their last changes, and the positions
//! of watchers in it.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::super::{
    EndCause, EndedGrant, GRANTS_SHOWN_MAX, LockView, Scope, WatchEvent,
    subscriptions::{CompleteUpTo, SubscriptionNumber},
};
use crate::{LockError, ResourceId};

/// How many free resources are remembered, so that watchers learn that they became free. A
/// watcher that is further behind is restarted.
pub(super) const FREED_MAX: usize = 100_000;
/// How many ended grants of a free resource are remembered; there may be many free resources.
const FREED_ENDED_MAX: usize = 10;

/// The state of a mirror.
#[derive(Debug, Default)]
pub(super) struct Mirrored {
    locks: HashMap<ResourceId, Entry>,
    order: BTreeMap<u64, ResourceId>,
    /// The number of the last change.
    last: u64,
    /// How many of `locks` are free.
    freed: usize,
    /// Free resources whose changes have numbers up to this one were forgotten.
    forgotten: u64,
    /// Increases with each restart.
    epoch: u64,
    /// The subscriptions for which all that was held is known.
    pub(super) complete: CompleteUpTo,
    /// Why it is no longer kept up to date.
    pub(super) failed: Option<LockError>,
}

#[derive(Debug)]
struct Entry {
    number: u64,
    lock: LockView,
    /// The grants that ended last, each with the number of its change.
    ended: VecDeque<(u64, EndedGrant)>,
}

/// How far a watcher has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Position {
    subscription: SubscriptionNumber,
    epoch: u64,
    /// The last change that it has received.
    read: u64,
    /// The last change when it began. Resources that were free then are not reported to it.
    begun: u64,
}

/// The next events of a watcher.
#[derive(Debug, PartialEq, Eq)]
pub(in super::super) enum Next {
    /// These changes. There may be none, if the watch does not cover those looked at.
    Changes(Vec<WatchEvent>),
    /// It may have missed changes, and begins again.
    Restarted,
    /// There is nothing new; `is_complete` if all states have been reported.
    CaughtUp { is_complete: bool },
    /// The watch is over, because the store cannot be watched.
    Failed(LockError),
}

impl Mirrored {
    /// Forgets everything. Returns whether watchers can have received anything, so that they
    /// must be restarted.
    pub(super) fn restart(&mut self) -> bool {
        let Self { last, epoch, complete, .. } = *self;
        if self.locks.is_empty() && complete == CompleteUpTo::default() {
            return false;
        }
        *self = Self { last, forgotten: last, epoch: epoch + 1, ..Self::default() };
        true
    }

    /// How many resources are held.
    pub(super) fn held_count(&self) -> usize {
        self.locks.len() - self.freed
    }

    /// The resources that are held, and that `accepts` accepts.
    pub(super) fn held(&self, accepts: impl Fn(&ResourceId) -> bool) -> Vec<ResourceId> {
        let held = self.locks.iter().filter(|(_, entry)| !entry.lock.grants.is_empty());
        held.map(|(resource, _)| resource).filter(|it| accepts(it)).cloned().collect()
    }

    /// The position of a watcher that has read nothing.
    pub(super) fn beginning(&self, subscription: SubscriptionNumber) -> Position {
        Position { subscription, epoch: self.epoch, read: 0, begun: self.last }
    }

    /// The next changes in the scope, of at most `limit` resources. Advances `position`.
    pub(super) fn next(&self, position: &mut Position, limit: usize, scope: &Scope) -> Next {
        if let Some(error) = &self.failed {
            return Next::Failed(error.clone());
        }
        if position.epoch != self.epoch || (1..self.forgotten).contains(&position.read) {
            *position = self.beginning(position.subscription);
            return Next::Restarted;
        }
        let Position { read: before, begun, .. } = *position;
        let mut changes = Vec::new();
        if let Some(only) = scope.only() {
            let entry = self.locks.get(only).filter(|entry| entry.number > before);
            changes.extend(entry.and_then(|entry| entry.event_since(begun, before)));
            position.read = self.last;
        } else {
            for (number, resource) in self.order.range(before + 1..).take(limit) {
                position.read = *number;
                let entry = self.locks.get(resource).filter(|_| scope.has(resource));
                changes.extend(entry.and_then(|entry| entry.event_since(begun, before)));
            }
        }
        if position.read == before {
            Next::CaughtUp { is_complete: self.complete.covers(position.subscription) }
        } else {
            Next::Changes(changes)
        }
    }

    /// Sets the state of a resource, and adds grants that have ended. Returns whether it is a
    /// change.
    pub(super) fn set(&mut self, lock: LockView, ended: Vec<EndedGrant>) -> bool {
        let is_free = lock.grants.is_empty();
        let before = self.locks.get_mut(&lock.resource);
        let is_same = before.as_ref().map_or(is_free, |before| before.lock == lock);
        if is_same && ended.is_empty() {
            return false;
        }
        self.last += 1;
        let mut all_ended = VecDeque::new();
        if let Some(before) = before {
            self.order.remove(&before.number);
            self.freed -= usize::from(before.lock.grants.is_empty());
            all_ended = std::mem::take(&mut before.ended);
        }
        all_ended.extend(ended.into_iter().map(|ended| (self.last, ended)));
        let ended_max = if is_free { FREED_ENDED_MAX } else { GRANTS_SHOWN_MAX };
        all_ended.drain(..all_ended.len().saturating_sub(ended_max));
        self.freed += usize::from(is_free);
        self.order.insert(self.last, lock.resource.clone());
        let resource = lock.resource.clone();
        self.locks.insert(resource, Entry { number: self.last, lock, ended: all_ended });
        if self.freed > FREED_MAX {
            self.forget_freed();
        }
        true
    }

    /// Sets the state of a resource. Grants that it no longer has have ended with an
    /// unknown cause. Returns whether it is a change.
    pub(super) fn set_read(&mut self, lock: LockView) -> bool {
        let before = self.locks.get(&lock.resource).map_or(&[][..], |it| &it.lock.grants);
        let ended = before.iter().filter(|was| lock.grants.iter().all(|is| is.id != was.id));
        let ended =
            ended.map(|was| EndedGrant { grant: was.clone(), cause: EndCause::Unknown });
        let ended = ended.collect();
        self.set(lock, ended)
    }

    /// Forgets the resources that `accepts` does not accept. Watchers get no event, because
    /// none of them covers those.
    pub(super) fn retain(&mut self, accepts: impl Fn(&ResourceId) -> bool) {
        let Self { locks, order, freed, .. } = self;
        locks.retain(|resource, entry| {
            let is_kept = accepts(resource);
            if !is_kept {
                order.remove(&entry.number);
                *freed -= usize::from(entry.lock.grants.is_empty());
            }
            is_kept
        });
    }

    /// Forgets the half of the free resources that changed first. Watchers that are not far
    /// behind have received those already.
    fn forget_freed(&mut self) {
        let Self { locks, order, freed, forgotten, .. } = self;
        let mut excess = *freed - FREED_MAX / 2;
        *freed -= excess;
        order.retain(|number, resource| {
            let is_free = || locks.get(resource).is_none_or(|it| it.lock.grants.is_empty());
            if excess == 0 || !is_free() {
                return true;
            }
            excess -= 1;
            *forgotten = *number;
            locks.remove(resource);
            false
        });
    }

    /// How many resources are remembered, held or free.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.locks.len()
    }

    /// Each resource's name, how many grants it has, and why earlier ones ended, in the order
    /// of their last changes.
    #[cfg(any(test, feature = "test-util"))]
    pub(super) fn all_states(&self) -> Vec<(String, usize, Vec<EndCause>)> {
        let entries = self.order.values().map(|resource| &self.locks[resource]);
        let states = entries.map(|Entry { lock, ended, .. }| {
            let causes = ended.iter().map(|(_, ended)| ended.cause).collect();
            (lock.resource.as_str().to_owned(), lock.grants_total, causes)
        });
        states.collect()
    }
}

impl Entry {
    /// The event for a watcher that started after the change `begun` and has read up to the
    /// change `read`.
    fn event_since(&self, begun: u64, read: u64) -> Option<WatchEvent> {
        let is_old = self.number <= begun;
        if is_old && self.lock.grants.is_empty() {
            return None;
        }
        let ended = self.ended.iter().filter(|(number, _)| *number > begun.max(read));
        let ended = ended.map(|(_, ended)| ended.clone()).collect();
        Some(WatchEvent::Changed { lock: self.lock.clone(), ended })
    }
}

//! What is held in a store, kept up to date by its backend while somebody watches.

use std::collections::{BTreeMap, HashMap, VecDeque};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::{
    EndedGrant, GRANTS_SHOWN_MAX, LockView, Scope, WatchEvent,
    wanted::{Demands, Number, Told},
};
use crate::lock::{LockError, ResourceId};

mod polled;

/// How many free resources the mirror remembers, so that watchers are told that they became
/// free. A watcher that is further behind begins again.
const FREED_MAX: usize = 100_000;
/// How many ended grants are remembered of a free resource, because there may be many of those.
const FREED_ENDED_MAX: usize = 10;

/// The held resources of a store in the order of their last changes.
///
/// There is one for all watchers of a store. Each of them has a position in the order of the
/// changes. A resource that changes again moves to the end of the order. So a slow watcher
/// misses changes in between, never the last one, and needs no buffer of its own.
#[derive(Debug, Default)]
pub struct Mirror {
    state: Mutex<State>,
    /// Sent whenever there may be something to tell.
    changed: watch::Sender<()>,
    /// Who watches. Locked before `state`, if both are.
    demands: Mutex<Demands>,
    /// Sent whenever something else may be wanted.
    demanded: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct State {
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
    told: Told,
    /// Why it is kept up to date no more.
    failed: Option<LockError>,
}

#[derive(Debug)]
struct Entry {
    number: u64,
    lock: LockView,
    /// The grants that ended last, each with the number of the change that told it.
    ended: VecDeque<(u64, EndedGrant)>,
}

/// How far a watcher has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    watch: Number,
    epoch: u64,
    /// The last change that it was told.
    read: u64,
    /// The last change when it began. It is not told which resources were free then.
    begun: u64,
}

/// What a watcher is told next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// These changes. There may be none, if those looked at were not wanted.
    Changes(Vec<WatchEvent>),
    /// It may have missed changes, and begins again.
    Restarted,
    /// There is nothing new. Says whether all states have been told.
    CaughtUp { is_complete: bool },
    /// The watch is over, because the store cannot be watched.
    Failed(LockError),
}

impl Mirror {
    /// Forgets everything, because changes may have been missed. Watchers are told of it if
    /// they can have been told anything, which is returned.
    pub fn restart(&self) -> bool {
        {
            let mut state = self.state.lock();
            let State { last, epoch, told, .. } = *state;
            if state.locks.is_empty() && told == Told::default() {
                return false;
            }
            *state = State { last, forgotten: last, epoch: epoch + 1, ..State::default() };
        }
        self.changed.send_replace(());
        true
    }

    /// Notes the state of a resource as it is now, and the grants that have ended since it
    /// was last noted. At most [`GRANTS_SHOWN_MAX`] of each are kept, and 10 ended ones of a
    /// resource that is free.
    pub fn set(&self, mut lock: LockView, ended: Vec<EndedGrant>) {
        lock.grants.truncate(GRANTS_SHOWN_MAX);
        if self.state.lock().set(lock, ended) {
            self.changed.send_replace(());
        }
    }

    /// Notes that every held resource has been told, also to watches that begin later: what
    /// changed before they began is told at once.
    pub fn complete(&self) {
        self.state.lock().told = Told::ALL;
        self.changed.send_replace(());
    }

    /// The number of the newest watch. A backend that learns of changes later than callers
    /// reads it, catches up with the store, and then calls [`complete_up_to`](Self::complete_up_to);
    /// it does so again after each [`demand`](Self::demand).
    #[must_use]
    pub fn newest(&self) -> u64 {
        self.demands.lock().newest()
    }

    /// Notes that everything has been told that was held when the watch with this number
    /// began.
    pub fn complete_up_to(&self, newest: u64) {
        self.state.lock().told = Told { resources: newest, scopes: newest };
        self.changed.send_replace(());
    }

    /// How many resources are held as far as was noted.
    #[must_use]
    pub fn held_count(&self) -> usize {
        let state = self.state.lock();
        state.locks.len() - state.freed
    }

    /// Ends all watches with this error, because there will never be anything to tell.
    pub(super) fn fail(&self, error: LockError) {
        self.state.lock().failed = Some(error);
        self.changed.send_replace(());
    }

    pub(super) fn has_failed(&self) -> bool {
        self.state.lock().failed.is_some()
    }

    /// Is told whenever there may be something to read.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// The position of a watcher that has read nothing.
    pub(super) fn beginning(&self, watch: Number) -> Position {
        self.state.lock().beginning(watch)
    }

    /// Each resource's name, how many grants it has, and why earlier ones ended, in the order
    /// of their last changes.
    #[cfg(test)]
    pub(crate) fn told_from_the_beginning(&self) -> Vec<(String, usize, Vec<super::EndCause>)> {
        let state = self.state.lock();
        let entries = state.order.values().map(|resource| &state.locks[resource]);
        let told = entries.map(|Entry { lock, ended, .. }| {
            let causes = ended.iter().map(|(_, ended)| ended.cause).collect();
            (lock.resource.as_str().to_owned(), lock.grants_total, causes)
        });
        told.collect()
    }

    /// What follows of the scope. Moves `position` behind it. Looks at no more than `limit`
    /// resources.
    pub(super) fn next(&self, position: &mut Position, limit: usize, scope: &Scope) -> Next {
        let state = self.state.lock();
        if let Some(error) = &state.failed {
            return Next::Failed(error.clone());
        }
        if position.epoch != state.epoch || (1..state.forgotten).contains(&position.read) {
            *position = state.beginning(position.watch);
            return Next::Restarted;
        }
        let Position { read: before, begun, .. } = *position;
        let mut changes = Vec::new();
        if let Some(only) = scope.only() {
            let entry = state.locks.get(only).filter(|entry| entry.number > before);
            changes.extend(entry.and_then(|entry| entry.told_since(begun, before)));
            position.read = state.last;
        } else {
            for (number, resource) in state.order.range(before + 1..).take(limit) {
                position.read = *number;
                let entry = state.locks.get(resource).filter(|_| scope.has(resource));
                changes.extend(entry.and_then(|entry| entry.told_since(begun, before)));
            }
        }
        if position.read == before {
            Next::CaughtUp { is_complete: state.told.has(position.watch) }
        } else {
            Next::Changes(changes)
        }
    }
}

impl Entry {
    /// What a watcher is told of it that began behind the change `begun`, and has read up to
    /// the change `read`.
    fn told_since(&self, begun: u64, read: u64) -> Option<WatchEvent> {
        let is_old = self.number <= begun;
        if is_old && self.lock.grants.is_empty() {
            return None;
        }
        let ended = self.ended.iter().filter(|(number, _)| *number > begun.max(read));
        let ended = ended.map(|(_, ended)| ended.clone()).collect();
        Some(WatchEvent::Changed { lock: self.lock.clone(), ended })
    }
}

impl State {
    fn beginning(&self, watch: Number) -> Position {
        Position { watch, epoch: self.epoch, read: 0, begun: self.last }
    }

    /// Returns whether it is a change.
    fn set(&mut self, lock: LockView, ended: Vec<EndedGrant>) -> bool {
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

    /// Forgets the half of the free resources that changed first. Watchers that are not far
    /// behind know of those already.
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::{
        GrantId, Mode,
        inspect::{EndCause, GrantView},
    };

    pub(super) fn grant(id: u128) -> GrantView {
        GrantView {
            id: Some(GrantId::from_u128(id)),
            holder: None,
            mode: Mode::Exclusive,
            remaining: None,
            since_unix_ms: None,
            foreign: false,
        }
    }

    pub(super) fn held(name: &str, id: u128) -> LockView {
        LockView {
            resource: ResourceId::new(name).unwrap(),
            grants: vec![grant(id)],
            grants_total: 1,
        }
    }

    pub(super) fn free(name: &str) -> LockView {
        LockView::free(ResourceId::new(name).unwrap())
    }

    pub(super) fn changed(lock: LockView) -> WatchEvent {
        WatchEvent::Changed { lock, ended: Vec::new() }
    }

    fn beginning(mirror: &Mirror) -> Position {
        mirror.beginning(Number::Scope(1))
    }

    pub(super) fn all(mirror: &Mirror, position: &mut Position) -> Next {
        mirror.next(position, 1000, &Scope::prefix(""))
    }

    #[test]
    fn a_watcher_is_told_what_is_held_and_then_that_it_is_all() {
        let mirror = Mirror::default();
        mirror.set(held("a", 1), Vec::new());
        mirror.set(held("b", 2), Vec::new());
        mirror.set(free("b"), Vec::new());
        let mut position = beginning(&mirror);
        let told = all(&mirror, &mut position);
        assert_eq!(told, Next::Changes(vec![changed(held("a", 1))]));
        assert_eq!(all(&mirror, &mut position), Next::CaughtUp { is_complete: false });
        mirror.complete();
        assert_eq!(all(&mirror, &mut position), Next::CaughtUp { is_complete: true });
    }

    #[test]
    fn a_slow_watcher_is_told_the_last_of_several_changes() {
        let mirror = Mirror::default();
        let mut position = beginning(&mirror);
        mirror.set(held("a", 1), Vec::new());
        mirror.set(held("b", 2), Vec::new());
        mirror.set(held("a", 3), Vec::new());
        let told = all(&mirror, &mut position);
        assert_eq!(told, Next::Changes(vec![changed(held("b", 2)), changed(held("a", 3))]));
    }

    #[test]
    fn a_watcher_is_told_of_an_end_with_its_cause() {
        let mirror = Mirror::default();
        mirror.set(held("a", 1), Vec::new());
        let mut position = beginning(&mirror);
        all(&mirror, &mut position);
        let ended = vec![EndedGrant { grant: grant(1), cause: EndCause::Released }];
        mirror.set(free("a"), ended.clone());
        let told = all(&mirror, &mut position);
        assert_eq!(told, Next::Changes(vec![WatchEvent::Changed { lock: free("a"), ended }]));
    }

    /// Only what ended with the last change was told.
    #[test]
    fn a_slow_watcher_is_told_of_each_end_once() {
        let mirror = Mirror::default();
        mirror.set(held("a", 1), Vec::new());
        let mut position = beginning(&mirror);
        all(&mirror, &mut position);
        let ended = |id| vec![EndedGrant { grant: grant(id), cause: EndCause::Expired }];
        let told = |position: &mut Position| match all(&mirror, position) {
            Next::Changes(mut changes) => match changes.remove(0) {
                WatchEvent::Changed { ended, .. } => ended,
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        };
        mirror.set(held("a", 2), ended(1));
        mirror.set(held("a", 3), ended(2));
        assert_eq!(told(&mut position), [ended(1), ended(2)].concat());
        mirror.set(held("a", 4), ended(3));
        assert_eq!(told(&mut position), ended(3));
    }

    #[test]
    fn of_many_grants_that_left_a_resource_free_a_few_are_told() {
        let mirror = Mirror::default();
        let mut position = beginning(&mirror);
        let ended = |id| EndedGrant { grant: grant(id), cause: EndCause::Released };
        mirror.set(held("a", 0), (1..=50).map(ended).collect());
        let Next::Changes(told) = all(&mirror, &mut position) else { panic!() };
        assert!(matches!(&told[..], [WatchEvent::Changed { ended, .. }] if ended.len() == 50));
        mirror.set(free("a"), (1..=50).map(ended).collect());
        let Next::Changes(told) = all(&mirror, &mut position) else { panic!() };
        assert!(matches!(&told[..], [WatchEvent::Changed { ended, .. }] if ended.len() == 10));
    }

    #[test]
    fn the_same_state_again_is_no_change() {
        let mirror = Mirror::default();
        mirror.set(held("a", 1), Vec::new());
        let mut position = beginning(&mirror);
        all(&mirror, &mut position);
        mirror.set(held("a", 1), Vec::new());
        mirror.set(free("b"), Vec::new());
        assert_eq!(all(&mirror, &mut position), Next::CaughtUp { is_complete: false });
    }

    #[test]
    fn a_restart_is_told_and_all_states_follow() {
        let mirror = Mirror::default();
        mirror.set(held("a", 1), Vec::new());
        mirror.complete();
        let mut position = beginning(&mirror);
        all(&mirror, &mut position);
        mirror.restart();
        mirror.set(held("a", 1), Vec::new());
        assert_eq!(all(&mirror, &mut position), Next::Restarted);
        let told = all(&mirror, &mut position);
        assert_eq!(told, Next::Changes(vec![changed(held("a", 1))]));
        assert_eq!(all(&mirror, &mut position), Next::CaughtUp { is_complete: false });
    }

    #[test]
    fn a_watcher_that_is_behind_forgotten_resources_begins_again() {
        let mirror = Mirror::default();
        mirror.set(held("kept", 1), Vec::new());
        let (mut slow, mut fast) = (beginning(&mirror), beginning(&mirror));
        all(&mirror, &mut slow);
        for at in 0..=FREED_MAX {
            let name = format!("r{at}");
            mirror.set(held(&name, 1), Vec::new());
            mirror.set(free(&name), Vec::new());
            all(&mirror, &mut fast);
        }
        assert!(mirror.state.lock().locks.len() < FREED_MAX);
        assert_eq!(all(&mirror, &mut slow), Next::Restarted);
        let told = all(&mirror, &mut slow);
        assert_eq!(told, Next::Changes(vec![changed(held("kept", 1))]));
        assert_eq!(all(&mirror, &mut fast), Next::CaughtUp { is_complete: false });
    }

    #[test]
    fn a_watcher_of_some_resources_is_told_of_no_others() {
        let mirror = Mirror::default();
        let mut position = beginning(&mirror);
        mirror.set(held("a", 1), Vec::new());
        mirror.set(held("b", 2), Vec::new());
        let told = mirror.next(&mut position, 1000, &Scope::prefix("b"));
        assert_eq!(told, Next::Changes(vec![changed(held("b", 2))]));
    }

    #[test]
    fn a_single_resource_is_found_without_a_look_at_the_others() {
        let mirror = Mirror::default();
        let mut position = beginning(&mirror);
        for name in ["a", "b", "c"] {
            mirror.set(held(name, 1), Vec::new());
        }
        let only = Scope::resource(ResourceId::new("b").unwrap());
        let told = mirror.next(&mut position, 1, &only);
        assert_eq!(told, Next::Changes(vec![changed(held("b", 1))]));
        let nothing = mirror.next(&mut position, 1, &only);
        assert_eq!(nothing, Next::CaughtUp { is_complete: false });
        mirror.set(free("b"), Vec::new());
        let told = mirror.next(&mut position, 1, &only);
        assert_eq!(told, Next::Changes(vec![changed(free("b"))]));
    }
}

//! The events of a watch, folded into a table.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_proto::locks::{LockEvent, LockState};

/// The grants of one lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// How many there are.
    total: usize,
    /// Their public IDs, if all were reported.
    grant_ids: BTreeSet<String>,
}

impl Held {
    /// The grants of a reported lock.
    #[must_use]
    pub fn of(state: &LockState) -> Self {
        let total = usize::try_from(state.grants_total).unwrap_or(0);
        let is_whole = total == state.grants.len();
        let grants = state.grants.iter().filter(|_| is_whole);
        Self { total, grant_ids: grants.map(|grant| grant.grant_id.clone()).collect() }
    }
}

/// The held locks according to a watch.
#[derive(Clone, Debug, Default)]
pub struct Table {
    locks: BTreeMap<String, Held>,
    /// Whether all states have been reported.
    is_synced: bool,
}

impl Table {
    /// Applies an event.
    pub fn fold(&mut self, event: &LockEvent) {
        if event.restarted {
            *self = Self::default();
        }
        if let Some(state) = &event.state {
            let held = Held::of(state);
            if held.total == 0 {
                self.locks.remove(&state.resource_id);
            } else {
                self.locks.insert(state.resource_id.clone(), held);
            }
        }
        self.is_synced |= event.synced;
    }

    /// How it differs from a list; `None` if it does not.
    #[must_use]
    pub fn difference(&self, listed: &BTreeMap<String, Held>) -> Option<String> {
        if !self.is_synced {
            return Some("not all states have been reported".into());
        }
        let names: BTreeSet<_> = self.locks.keys().chain(listed.keys()).collect();
        names.into_iter().find_map(|name| {
            let (reported, listed) = (self.locks.get(name), listed.get(name));
            (reported != listed).then(|| {
                format!("{name} was reported as {reported:?}, and is listed as {listed:?}")
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use leasehold_proto::locks::GrantInfo;

    use super::*;

    fn state(resource: &str, grant_ids: &[&str]) -> LockState {
        let grant =
            |id: &&str| GrantInfo { grant_id: (*id).to_owned(), ..GrantInfo::default() };
        LockState {
            resource_id: resource.into(),
            grants: grant_ids.iter().map(grant).collect(),
            grants_total: i32::try_from(grant_ids.len()).unwrap(),
            ..LockState::default()
        }
    }

    fn reported(resource: &str, grant_ids: &[&str]) -> LockEvent {
        LockEvent { state: Some(state(resource, grant_ids)), ..LockEvent::default() }
    }

    fn synced() -> LockEvent {
        LockEvent { synced: true, ..LockEvent::default() }
    }

    fn restarted() -> LockEvent {
        LockEvent { restarted: true, ..LockEvent::default() }
    }

    fn table(events: &[LockEvent]) -> Table {
        let mut table = Table::default();
        events.iter().for_each(|event| table.fold(event));
        table
    }

    fn listed(locks: &[LockState]) -> BTreeMap<String, Held> {
        locks.iter().map(|lock| (lock.resource_id.clone(), Held::of(lock))).collect()
    }

    #[test]
    fn the_last_state_of_each_lock_counts() {
        let table = table(&[
            reported("a", &["1"]),
            reported("b", &["2"]),
            synced(),
            reported("a", &["1", "3"]),
        ]);
        let listed = listed(&[state("a", &["3", "1"]), state("b", &["2"])]);
        assert_eq!(table.difference(&listed), None);
    }

    #[test]
    fn a_free_lock_that_was_not_reported_is_a_difference() {
        let table = table(&[reported("a", &["1"]), synced()]);
        assert!(table.difference(&listed(&[])).is_some());
    }

    #[test]
    fn a_held_lock_that_was_not_reported_is_a_difference() {
        let table = table(&[reported("a", &["1"]), synced(), reported("a", &[])]);
        assert!(table.difference(&listed(&[state("a", &["2"])])).is_some());
        assert_eq!(table.difference(&listed(&[])), None);
    }

    #[test]
    fn events_before_a_restart_are_forgotten() {
        let table = table(&[reported("a", &["1"]), synced(), restarted(), synced()]);
        assert_eq!(table.difference(&listed(&[])), None);
    }

    #[test]
    fn a_watch_without_all_states_is_a_difference() {
        assert!(table(&[]).difference(&listed(&[])).is_some());
    }
}

//! A copy of one resource's keys: whether it is held, who waits, and in which order.
//!
//! Filled by a list and updated by the events after it. New entries always come after the
//! existing ones, so once an entry is the first, it stays the first. Its waiter can take the
//! lock without comparing the whole queue, and a release costs the same however many wait.

use std::collections::{BTreeSet, HashMap};

use crate::backend::etcd::{
    keys::{EntryId, Part},
    revision::Revision,
};

/// The copy.
#[derive(Debug, Default)]
pub(crate) struct Mirror {
    order: BTreeSet<(Revision, EntryId)>,
    entries: HashMap<EntryId, Revision>,
    /// The revision at which the holder's key was last seen written.
    holder: Option<Revision>,
    /// Everything up to this revision is known.
    revision: Revision,
}

impl Mirror {
    /// Starts anew from a list at `revision`.
    pub(crate) fn list(
        &mut self,
        revision: Revision,
        holder: Option<Revision>,
        entries: impl IntoIterator<Item = (EntryId, Revision)>,
    ) {
        *self = Self { holder, revision, ..Self::default() };
        for (entry, created) in entries {
            self.order.insert((created, entry.clone()));
            self.entries.insert(entry, created);
        }
    }

    /// Notes that a key was put at `revision`.
    pub(crate) fn put(&mut self, part: Part, revision: Revision) {
        if revision <= self.revision {
            return;
        }
        match part {
            Part::Holder => self.holder = self.holder.max(Some(revision)),
            Part::Entry(entry) => {
                if !self.entries.contains_key(&entry) {
                    self.order.insert((revision, entry.clone()));
                    self.entries.insert(entry, revision);
                }
            }
            Part::Other => {}
        }
    }

    /// Notes that a key was deleted at `revision`.
    pub(crate) fn delete(&mut self, part: &Part, revision: Revision) {
        if revision <= self.revision {
            return;
        }
        match part {
            Part::Holder => self.holder = self.holder.filter(|put| *put > revision),
            Part::Entry(entry) => {
                if let Some(created) = self.entries.remove(entry) {
                    self.order.remove(&(created, entry.clone()));
                }
            }
            Part::Other => {}
        }
    }

    /// Notes that all events up to `revision` have been applied.
    pub(crate) fn advance(&mut self, revision: Revision) {
        self.revision = self.revision.max(revision);
    }

    /// Notes that the holder's key was seen, written at `revision`, perhaps before the event
    /// arrives.
    pub(crate) fn saw_holder(&mut self, revision: Revision) {
        if revision > self.revision {
            self.holder = self.holder.max(Some(revision));
        }
    }

    /// Whether the resource is held.
    pub(crate) fn is_held(&self) -> bool {
        self.holder.is_some()
    }

    /// The first entry.
    pub(crate) fn head(&self) -> Option<&EntryId> {
        self.order.first().map(|(_, entry)| entry)
    }

    /// The revision at which an entry was put.
    pub(crate) fn entered(&self, entry: &EntryId) -> Option<Revision> {
        self.entries.get(entry).copied()
    }

    /// The revision up to which everything is known.
    pub(crate) fn revision(&self) -> Revision {
        self.revision
    }

    /// The number of entries.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The entries.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &EntryId> {
        self.entries.keys()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(revision: u64) -> Revision {
        Revision(revision)
    }

    fn entry(session: &str, seq: u64) -> EntryId {
        EntryId { session: session.into(), seq }
    }

    #[test]
    fn the_head_is_the_oldest_and_within_a_batch_the_first_put() {
        let mut mirror = Mirror::default();
        let entries = [(entry("b", 0), at(9)), (entry("a", 5), at(7)), (entry("a", 4), at(7))];
        mirror.list(at(10), Some(at(3)), entries);
        assert_eq!(mirror.head(), Some(&entry("a", 4)));
        mirror.delete(&Part::Entry(entry("a", 4)), at(11));
        mirror.put(Part::Entry(entry("0", 0)), at(12));
        assert_eq!(mirror.head(), Some(&entry("a", 5)));
    }

    #[test]
    fn events_that_the_list_has_seen_change_nothing() {
        let mut mirror = Mirror::default();
        mirror.list(at(10), Some(at(9)), [(entry("a", 1), at(8))]);
        mirror.delete(&Part::Holder, at(7));
        mirror.delete(&Part::Entry(entry("a", 1)), at(10));
        assert!(mirror.is_held() && mirror.len() == 1);
        mirror.delete(&Part::Holder, at(11));
        assert!(!mirror.is_held());
    }

    #[test]
    fn a_holder_seen_ahead_of_the_events_is_cleared_by_its_own_deletion_only() {
        let mut mirror = Mirror::default();
        mirror.list(at(10), None, []);
        mirror.saw_holder(at(14));
        mirror.delete(&Part::Holder, at(12));
        assert!(mirror.is_held(), "that was the holder before");
        mirror.put(Part::Holder, at(14));
        mirror.delete(&Part::Holder, at(15));
        assert!(!mirror.is_held());
    }

    #[test]
    fn two_changes_of_one_revision_both_count() {
        let mut mirror = Mirror::default();
        mirror.list(at(10), None, [(entry("a", 1), at(9))]);
        mirror.put(Part::Holder, at(11));
        mirror.delete(&Part::Entry(entry("a", 1)), at(11));
        mirror.advance(at(11));
        assert!(mirror.is_held() && mirror.head().is_none());
    }

    proptest! {
        /// Whatever is listed when, the mirror ends as the events say.
        #[test]
        fn a_list_in_mid_stream_changes_nothing(
            events in prop::collection::vec((any::<bool>(), 0u64..5), 1..40),
            cut in 0usize..40,
        ) {
            let apply = |mirror: &mut Mirror, revision: Revision, (put, seq): (bool, u64)| {
                let part = if seq == 0 { Part::Holder } else { Part::Entry(entry("s", seq)) };
                if put { mirror.put(part, revision) } else { mirror.delete(&part, revision) }
                mirror.advance(revision);
            };
            let mut whole = Mirror::default();
            let mut relisted = Mirror::default();
            for (n, event) in events.iter().enumerate() {
                let revision = at(n as u64 + 1);
                apply(&mut whole, revision, *event);
                if n == cut.min(events.len() - 1) {
                    let entries: Vec<_> = whole.order.iter().map(|(r, e)| (e.clone(), *r)).collect();
                    relisted.list(revision, whole.holder, entries);
                    // Events from before the list may still come in.
                    for (m, event) in events.iter().take(n).enumerate() {
                        let revision = at(m as u64 + 1);
                        apply(&mut relisted, revision, *event);
                    }
                } else {
                    apply(&mut relisted, revision, *event);
                }
            }
            prop_assert_eq!(whole.order, relisted.order);
            prop_assert_eq!(whole.holder.is_some(), relisted.holder.is_some());
        }
    }
}

//! A copy of one resource's keys: who holds, who waits, in which order.
//!
//! Filled by a list and kept by the events after it. Entries only ever come
//! behind those that are there, so "nothing stands before this entry", once
//! true, stays true: the head needs no comparison of the whole queue to
//! promote itself, and a release costs the same however many wait.

use std::collections::{BTreeSet, HashMap};

use crate::backend::etcd::keys::{EntryId, Part};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Mirror {
    order: BTreeSet<(u64, EntryId)>,
    entries: HashMap<EntryId, u64>,
    /// The revision at which the holder's key was last seen written.
    holder: Option<u64>,
    /// Everything up to this revision is known.
    revision: u64,
}

impl Mirror {
    /// Starts anew from a list at `revision`.
    pub(crate) fn list(
        &mut self,
        revision: u64,
        holder: Option<u64>,
        entries: impl IntoIterator<Item = (EntryId, u64)>,
    ) {
        *self = Self { holder, revision, ..Self::default() };
        for (entry, created) in entries {
            self.order.insert((created, entry.clone()));
            self.entries.insert(entry, created);
        }
    }

    /// Notes that a key was put at `revision`.
    pub(crate) fn put(&mut self, part: Part, revision: u64) {
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
    pub(crate) fn delete(&mut self, part: &Part, revision: u64) {
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

    /// Notes that all events up to `revision` are in.
    pub(crate) fn advance(&mut self, revision: u64) {
        self.revision = self.revision.max(revision);
    }

    /// Notes that the holder's key was seen, written at `revision`, perhaps
    /// before the events say so.
    pub(crate) fn saw_holder(&mut self, revision: u64) {
        if revision > self.revision {
            self.holder = self.holder.max(Some(revision));
        }
    }

    /// Whether the resource is held.
    pub(crate) fn is_held(&self) -> bool {
        self.holder.is_some()
    }

    /// Who is next.
    pub(crate) fn head(&self) -> Option<&EntryId> {
        self.order.first().map(|(_, entry)| entry)
    }

    /// Since when an entry stands in the queue.
    pub(crate) fn entered(&self, entry: &EntryId) -> Option<u64> {
        self.entries.get(entry).copied()
    }

    /// Up to which revision everything is known.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Who waits.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &EntryId> {
        self.entries.keys()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(session: &str, seq: u64) -> EntryId {
        EntryId { session: session.into(), seq }
    }

    #[test]
    fn the_head_is_the_oldest_and_within_a_batch_the_first_put() {
        let mut mirror = Mirror::default();
        mirror.list(10, Some(3), [(entry("b", 0), 9), (entry("a", 5), 7), (entry("a", 4), 7)]);
        assert_eq!(mirror.head(), Some(&entry("a", 4)));
        mirror.delete(&Part::Entry(entry("a", 4)), 11);
        mirror.put(Part::Entry(entry("0", 0)), 12);
        assert_eq!(mirror.head(), Some(&entry("a", 5)));
    }

    #[test]
    fn events_that_the_list_has_seen_change_nothing() {
        let mut mirror = Mirror::default();
        mirror.list(10, Some(9), [(entry("a", 1), 8)]);
        mirror.delete(&Part::Holder, 7);
        mirror.delete(&Part::Entry(entry("a", 1)), 10);
        assert!(mirror.is_held() && mirror.len() == 1);
        mirror.delete(&Part::Holder, 11);
        assert!(!mirror.is_held());
    }

    #[test]
    fn a_holder_seen_ahead_of_the_events_is_cleared_by_its_own_deletion_only() {
        let mut mirror = Mirror::default();
        mirror.list(10, None, []);
        mirror.saw_holder(14);
        mirror.delete(&Part::Holder, 12);
        assert!(mirror.is_held(), "that was the holder before");
        mirror.put(Part::Holder, 14);
        mirror.delete(&Part::Holder, 15);
        assert!(!mirror.is_held());
    }

    #[test]
    fn two_changes_of_one_revision_both_count() {
        let mut mirror = Mirror::default();
        mirror.list(10, None, [(entry("a", 1), 9)]);
        mirror.put(Part::Holder, 11);
        mirror.delete(&Part::Entry(entry("a", 1)), 11);
        mirror.advance(11);
        assert!(mirror.is_held() && mirror.head().is_none());
    }

    proptest! {
        /// Whatever is listed when, the mirror ends as the events say.
        #[test]
        fn a_list_in_mid_stream_changes_nothing(
            events in prop::collection::vec((any::<bool>(), 0u64..5), 1..40),
            cut in 0usize..40,
        ) {
            let apply = |mirror: &mut Mirror, revision: u64, (put, seq): (bool, u64)| {
                let part = if seq == 0 { Part::Holder } else { Part::Entry(entry("s", seq)) };
                if put { mirror.put(part, revision) } else { mirror.delete(&part, revision) }
                mirror.advance(revision);
            };
            let mut whole = Mirror::default();
            let mut relisted = Mirror::default();
            for (n, event) in events.iter().enumerate() {
                let revision = n as u64 + 1;
                apply(&mut whole, revision, *event);
                if n == cut.min(events.len() - 1) {
                    let entries: Vec<_> = whole.order.iter().map(|(r, e)| (e.clone(), *r)).collect();
                    relisted.list(revision, whole.holder, entries);
                    // Events from before the list may still come in.
                    for (m, event) in events.iter().take(n).enumerate() {
                        let revision = m as u64 + 1;
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

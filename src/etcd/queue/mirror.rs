//! A copy of one resource's keys: whether it is held, who waits, and in which order.
//!
//! Filled by a list and updated by the events after it. New entries always come after the
//! existing ones, so once an entry is the first, it stays the first, and once no exclusive
//! entry is before one, none ever will be. A waiter can take the lock without comparing the
//! whole queue, and a release costs the same however many wait.

use std::collections::{BTreeSet, HashMap};

use leasehold_lock::Mode;

use crate::{
    keys::{EntryId, Part},
    revision::Revision,
};

/// The copy.
#[derive(Debug, Default)]
pub(crate) struct QueueMirror {
    order: BTreeSet<(Revision, EntryId)>,
    entries: HashMap<EntryId, Revision>,
    /// The revision at which the key of the exclusive grant was last seen written.
    holder: Option<Revision>,
    /// The keys of the shared grants, and the revision at which each was last seen written.
    readers: HashMap<Box<[u8]>, Revision>,
    /// How many shared grants there may be.
    readers_max: usize,
    /// The last entry whose turn it is; it is also the turn of those before it.
    last_turn: Option<(Revision, EntryId)>,
    /// Everything up to this revision is known.
    revision: Revision,
}

impl QueueMirror {
    /// An empty mirror.
    pub(crate) fn new(readers_max: usize) -> Self {
        Self { readers_max, ..Self::default() }
    }

    /// Starts anew from a list at `revision`: of the keys of grants with the revision at
    /// which each was written, and those of waiters with the revision at which it was put.
    pub(crate) fn list(
        &mut self,
        revision: Revision,
        keys: impl IntoIterator<Item = (Part, Revision)>,
    ) {
        *self = Self::new(self.readers_max);
        for (part, at) in keys {
            self.note(part, at);
        }
        self.advance(revision);
    }

    /// Notes that a key was put at `revision`.
    pub(crate) fn put(&mut self, part: Part, revision: Revision) {
        if revision > self.revision {
            self.note(part, revision);
        }
    }

    fn note(&mut self, part: Part, revision: Revision) {
        match part {
            Part::Holder => self.holder = self.holder.max(Some(revision)),
            Part::Reader(reader) => {
                let written = self.readers.entry(reader).or_default();
                *written = revision.max(*written);
            }
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
            Part::Reader(reader) => {
                if self.readers.get(reader).is_some_and(|put| *put <= revision) {
                    self.readers.remove(reader);
                }
            }
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
        self.last_turn = self.turns().last().cloned();
    }

    /// Notes that the key of a grant was seen, written at `revision`, perhaps before the event
    /// arrives.
    pub(crate) fn saw(&mut self, part: Part, revision: Revision) {
        self.put(part, revision);
        self.advance(self.revision);
    }

    /// Whether the resource is held so that an attempt of this mode cannot be granted.
    pub(crate) fn is_held(&self, mode: Mode) -> bool {
        self.holder.is_some() || (mode == Mode::Exclusive && !self.readers.is_empty())
    }

    /// The first entry.
    pub(crate) fn head(&self) -> Option<&EntryId> {
        self.order.first().map(|(_, entry)| entry)
    }

    /// The entries that can be granted now: an exclusive one that is first, or the shared ones
    /// before the first exclusive one, as many as there may be.
    fn turns(&self) -> impl Iterator<Item = &(Revision, EntryId)> {
        let is_head_shared = self.head().is_some_and(|head| head.shared);
        let mode = if is_head_shared { Mode::Shared } else { Mode::Exclusive };
        let room = match mode {
            _ if self.is_held(mode) => 0,
            Mode::Exclusive => 1,
            Mode::Shared => self.readers_max.saturating_sub(self.readers.len()),
        };
        self.order
            .iter()
            .take_while(move |(_, entry)| entry.shared == is_head_shared)
            .take(room)
    }

    /// The entries whose turn it was when the last event was applied.
    pub(crate) fn on_turn(&self) -> impl Iterator<Item = &EntryId> {
        let last = self.last_turn.as_ref();
        self.order
            .iter()
            .take_while(move |position| last.is_some_and(|last| *position <= last))
            .map(|(_, entry)| entry)
    }

    /// Whether an entry can be granted now.
    pub(crate) fn is_turn(&self, entry: &EntryId) -> bool {
        let Some(last) = &self.last_turn else { return false };
        self.entries.get(entry).is_some_and(|since| (since, entry) <= (&last.0, &last.1))
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

    const READERS_MAX: usize = 2;

    fn at(revision: u64) -> Revision {
        Revision(revision)
    }

    fn entry(session: &str, seq: u64) -> EntryId {
        EntryId { session: session.into(), seq, shared: false }
    }

    fn shared(seq: u64) -> EntryId {
        EntryId { shared: true, ..entry("s", seq) }
    }

    fn reader(name: u8) -> Part {
        Part::Reader([name].into())
    }

    /// A mirror listed at a revision of 10.
    fn listed(keys: impl IntoIterator<Item = (Part, u64)>) -> QueueMirror {
        let mut mirror = QueueMirror::new(READERS_MAX);
        mirror.list(at(10), keys.into_iter().map(|(part, revision)| (part, at(revision))));
        mirror
    }

    fn turns(mirror: &QueueMirror) -> Vec<u64> {
        let turns: Vec<_> = mirror.on_turn().map(|entry| entry.seq).collect();
        let all = mirror.entries().filter(|entry| mirror.is_turn(entry));
        assert_eq!(all.count(), turns.len());
        turns
    }

    #[test]
    fn the_head_is_the_oldest_and_within_a_batch_the_first_put() {
        let mut mirror = listed([
            (Part::Holder, 3),
            (Part::Entry(entry("b", 0)), 9),
            (Part::Entry(entry("a", 5)), 7),
            (Part::Entry(entry("a", 4)), 7),
        ]);
        assert_eq!(mirror.head(), Some(&entry("a", 4)));
        mirror.delete(&Part::Entry(entry("a", 4)), at(11));
        mirror.put(Part::Entry(entry("0", 0)), at(12));
        assert_eq!(mirror.head(), Some(&entry("a", 5)));
    }

    #[test]
    fn events_that_the_list_has_seen_change_nothing() {
        let mut mirror = listed([(Part::Holder, 9), (Part::Entry(entry("a", 1)), 8)]);
        mirror.delete(&Part::Holder, at(7));
        mirror.delete(&Part::Entry(entry("a", 1)), at(10));
        assert!(mirror.is_held(Mode::Exclusive) && mirror.len() == 1);
        mirror.delete(&Part::Holder, at(11));
        assert!(!mirror.is_held(Mode::Exclusive));
    }

    /// Trap: etcd 5
    #[test]
    fn a_holder_seen_ahead_of_the_events_is_cleared_by_its_own_deletion_only() {
        for part in [Part::Holder, reader(1)] {
            let mut mirror = listed([]);
            mirror.saw(part.clone(), at(14));
            mirror.delete(&part, at(12));
            assert!(mirror.is_held(Mode::Exclusive), "that was the holder before");
            mirror.put(part.clone(), at(14));
            mirror.delete(&part, at(15));
            assert!(!mirror.is_held(Mode::Exclusive));
        }
    }

    #[test]
    fn two_changes_of_one_revision_both_count() {
        let mut mirror = listed([(Part::Entry(entry("a", 1)), 9)]);
        mirror.put(Part::Holder, at(11));
        mirror.delete(&Part::Entry(entry("a", 1)), at(11));
        mirror.advance(at(11));
        assert!(mirror.is_held(Mode::Shared) && mirror.head().is_none());
    }

    #[test]
    fn readers_hold_against_exclusive_attempts_only() {
        let mirror = listed([(reader(1), 3)]);
        assert!(mirror.is_held(Mode::Exclusive) && !mirror.is_held(Mode::Shared));
    }

    #[test]
    fn all_shared_waiters_before_the_first_exclusive_one_have_their_turn() {
        let mut mirror = listed([
            (Part::Holder, 3),
            (Part::Entry(shared(1)), 4),
            (Part::Entry(shared(2)), 5),
            (Part::Entry(entry("s", 3)), 6),
            (Part::Entry(shared(4)), 7),
        ]);
        assert!(turns(&mirror).is_empty());
        mirror.delete(&Part::Holder, at(11));
        mirror.advance(at(11));
        assert_eq!(turns(&mirror), [1, 2]);
    }

    #[test]
    fn an_exclusive_waiter_that_leaves_gives_the_readers_behind_it_their_turn() {
        let mut mirror = listed([
            (reader(1), 3),
            (Part::Entry(entry("s", 1)), 4),
            (Part::Entry(shared(2)), 5),
        ]);
        assert!(turns(&mirror).is_empty());
        mirror.delete(&Part::Entry(entry("s", 1)), at(11));
        mirror.advance(at(11));
        assert_eq!(turns(&mirror), [2]);
    }

    #[test]
    fn an_exclusive_waiter_has_its_turn_when_the_last_reader_has_gone() {
        let mut mirror =
            listed([(reader(1), 3), (reader(2), 3), (Part::Entry(entry("s", 1)), 4)]);
        for (name, expected) in [(1, vec![]), (2, vec![1])] {
            mirror.delete(&reader(name), at(11));
            assert_eq!(mirror.is_held(Mode::Exclusive), expected.is_empty());
            mirror.advance(at(10));
            assert_eq!(turns(&mirror), expected);
        }
    }

    #[test]
    fn no_more_shared_waiters_have_their_turn_than_there_may_be_grants() {
        let mut mirror = listed([
            (reader(1), 3),
            (Part::Entry(shared(1)), 4),
            (Part::Entry(shared(2)), 5),
            (Part::Entry(shared(3)), 6),
        ]);
        assert_eq!(turns(&mirror), [1]);
        mirror.put(reader(2), at(11));
        mirror.delete(&Part::Entry(shared(1)), at(11));
        mirror.advance(at(11));
        assert!(turns(&mirror).is_empty());
        mirror.delete(&reader(1), at(12));
        mirror.advance(at(12));
        assert_eq!(turns(&mirror), [2]);
    }

    proptest! {
        /// The mirror ends in the state of the events, whenever it is listed.
        #[test]
        fn a_list_in_mid_stream_changes_nothing(
            events in prop::collection::vec((any::<bool>(), 0u64..8), 1..40),
            cut in 0usize..40,
        ) {
            let apply = |mirror: &mut QueueMirror, revision: Revision, (put, key): (bool, u64)| {
                let part = match key {
                    0 => Part::Holder,
                    1 | 2 => reader(key as u8),
                    _ => Part::Entry(EntryId { shared: key > 5, ..entry("s", key) }),
                };
                if put { mirror.put(part, revision) } else { mirror.delete(&part, revision) }
                mirror.advance(revision);
            };
            let mut whole = QueueMirror::new(READERS_MAX);
            let mut relisted = QueueMirror::new(READERS_MAX);
            for (n, event) in events.iter().enumerate() {
                let revision = at(n as u64 + 1);
                apply(&mut whole, revision, *event);
                if n == cut.min(events.len() - 1) {
                    let entries = whole.order.iter().map(|(r, e)| (Part::Entry(e.clone()), *r));
                    let readers = whole.readers.iter().map(|(k, r)| (Part::Reader(k.clone()), *r));
                    let holder = whole.holder.map(|r| (Part::Holder, r));
                    let keys: Vec<_> = entries.chain(readers).chain(holder).collect();
                    relisted.list(revision, keys);
                    // Events from before the list may still come in.
                    for (m, event) in events.iter().take(n).enumerate() {
                        let revision = at(m as u64 + 1);
                        apply(&mut relisted, revision, *event);
                    }
                } else {
                    apply(&mut relisted, revision, *event);
                }
            }
            prop_assert_eq!(&whole.order, &relisted.order);
            prop_assert_eq!(whole.holder.is_some(), relisted.holder.is_some());
            prop_assert_eq!(whole.readers.len(), relisted.readers.len());
            prop_assert_eq!(whole.last_turn, relisted.last_turn);
        }
    }
}

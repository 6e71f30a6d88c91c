//! The waiters of this process for one resource, and whose turn it is.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use leasehold_lock::{Mode, ResourceId};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{
    keys::{EntryId, Part},
    queue::mirror::QueueMirror,
    revision::Revision,
};

/// Events that are kept while a list is read; with more of them the list is read again.
const EVENTS_MAX: usize = 20_000;

/// A change of one of a resource's keys.
#[derive(Clone, Debug)]
pub(super) struct Event {
    /// Whether the key was put; otherwise it was deleted.
    pub(super) put: bool,
    pub(super) part: Part,
    /// The revision of the change.
    pub(super) at: Revision,
}

/// What a list found, and at which revision.
#[derive(Debug, Default)]
pub(super) struct List {
    pub(super) revision: Revision,
    /// The keys of grants, each with the revision at which it was written, and those of
    /// waiters, each with the revision at which it was put.
    pub(super) keys: Vec<(Part, Revision)>,
}

/// One resource's queue, followed by one watch however many wait.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) resource: ResourceId,
    /// What the names of this backend instance's sessions begin with.
    instance: Arc<str>,
    pub(super) state: Mutex<QueueView>,
    /// Wakes the task that follows the queue: waiters came or went, or there are suspects.
    pub(super) changed: Notify,
}

#[derive(Debug, Default)]
pub(super) struct QueueView {
    pub(super) mirror: QueueMirror,
    /// Whether the mirror is up to date.
    pub(super) live: bool,
    /// The ID of the watch whose events count; 0 if there is none.
    watch: i64,
    /// The events since a list was begun, which it may not contain.
    since_list: Option<Vec<Event>>,
    /// How many lists were begun, and the number of the one that last filled the mirror.
    pub(super) lists_begun: u64,
    pub(super) listed: u64,
    /// How many outages were too long, and the reason of the last one. Each ends the waits
    /// that had begun before.
    pub(super) outages: u64,
    pub(super) outage: Arc<str>,
    /// Whether nobody follows the queue any more; a new waiter needs a new queue.
    pub(super) closed: bool,
    /// The waiters by number, and how to wake each.
    pub(super) places: HashMap<u64, Arc<Notify>>,
    pub(super) next_place: u64,
    /// The waiters' entries.
    pub(super) entries: HashMap<EntryId, u64>,
    /// Entries that are being removed: by their waiters, or as orphans.
    pub(super) leaving: HashSet<EntryId>,
    /// Entries of this backend instance that may be orphans. Noted as they appear, so that
    /// no event costs a search of the whole queue.
    pub(super) suspects: Vec<EntryId>,
}

impl Queue {
    /// A queue that nobody follows yet, of a resource that may have `readers_max` shared
    /// grants.
    pub(super) fn new(resource: ResourceId, instance: Arc<str>, readers_max: usize) -> Self {
        let state = QueueView { mirror: QueueMirror::new(readers_max), ..QueueView::default() };
        let state = Mutex::new(state);
        Self { resource, instance, state, changed: Notify::new() }
    }

    /// Whether the resource is known to be held against an attempt of this mode, or waited
    /// for.
    pub(super) fn is_contended(&self, mode: Mode) -> bool {
        let state = self.state.lock();
        state.live && (state.mirror.is_held(mode) || state.mirror.len() > 0)
    }

    /// The entries of this process's waiters.
    pub(super) fn own_entries(&self) -> Vec<EntryId> {
        self.state.lock().entries.keys().cloned().collect()
    }

    /// Takes no more waiters; `false` if there are some.
    pub(super) fn close(&self) -> bool {
        let mut state = self.state.lock();
        state.closed = state.places.is_empty();
        state.closed
    }

    /// Takes events of this watch only from now on. A watch that was given up may still
    /// deliver events of an older data set.
    pub(super) fn followed_by(&self, watch: i64) {
        self.state.lock().watch = watch;
    }

    /// Begins a list and returns its number. It will contain all entries put before. Events
    /// that come meanwhile are kept for [`Queue::finish_list`].
    pub(super) fn begin_list(&self) -> u64 {
        let mut state = self.state.lock();
        state.since_list = Some(Vec::new());
        state.lists_begun += 1;
        state.lists_begun
    }

    /// Fills the mirror from a list, by its number. `false` if too much has happened since
    /// the list was begun.
    pub(super) fn finish_list(&self, number: u64, list: List) -> bool {
        let mut state = self.state.lock();
        let Some(events) = state.since_list.take() else { return false };
        state.mirror.list(list.revision, list.keys);
        state.listed = number;
        state.live = true;
        let QueueView { leaving, mirror, suspects, .. } = &mut *state;
        leaving.retain(|entry| mirror.entered(entry).is_some());
        *suspects = mirror.entries().filter(|entry| self.is_own(entry)).cloned().collect();
        self.take(&mut state, events);
        for place in state.places.values() {
            place.notify_one();
        }
        true
    }

    /// Applies the events of one answer of a watch, and wakes the waiters whose turn it is.
    pub(super) fn apply(&self, watch: i64, events: Vec<Event>) {
        let mut state = self.state.lock();
        if state.watch != watch {
            return;
        }
        if let Some(kept) = &mut state.since_list {
            if kept.len() + events.len() > EVENTS_MAX {
                state.since_list = None;
            } else {
                kept.extend_from_slice(&events);
            }
        }
        if state.live {
            self.take(&mut state, events);
        }
    }

    fn take(&self, state: &mut QueueView, events: Vec<Event>) {
        let revision = events.iter().map(|event| event.at).max().unwrap_or_default();
        for Event { put, part, at } in events {
            if put {
                if let Part::Entry(entry) = &part
                    && self.is_own(entry)
                    && !state.entries.contains_key(entry)
                {
                    state.suspects.push(entry.clone());
                    self.changed.notify_one();
                }
                state.mirror.put(part, at);
                continue;
            }
            state.mirror.delete(&part, at);
            if let Part::Entry(entry) = part {
                state.leaving.remove(&entry);
                state.wake(&entry);
            }
        }
        state.mirror.advance(revision);
        for entry in state.mirror.on_turn() {
            state.wake(entry);
        }
    }

    /// Notes that the mirror is not kept up to date any more.
    pub(super) fn down(&self) {
        let mut state = self.state.lock();
        state.live = false;
        state.watch = 0;
        state.since_list = None;
    }

    /// Ends all waits, because etcd has been unavailable for too long.
    pub(super) fn fail(&self, why: &Arc<str>) {
        let mut state = self.state.lock();
        state.outages += 1;
        state.outage = Arc::clone(why);
        for place in state.places.values() {
            place.notify_one();
        }
    }

    /// Whether nobody of this process waits.
    pub(super) fn is_deserted(&self) -> bool {
        self.state.lock().places.is_empty()
    }

    /// The entries of this process that belong to no waiter: the waiter has gone, or a write
    /// came late. The caller removes them.
    pub(super) fn take_orphans(&self) -> Vec<EntryId> {
        let mut state = self.state.lock();
        let mut orphans = std::mem::take(&mut state.suspects);
        orphans.retain(|entry| {
            state.mirror.entered(entry).is_some()
                && !state.entries.contains_key(entry)
                && !state.leaving.contains(entry)
        });
        state.leaving.extend(orphans.iter().cloned());
        orphans
    }

    /// Notes that an orphan could not be removed yet.
    pub(super) fn put_back_orphan(&self, orphan: &EntryId) {
        let mut state = self.state.lock();
        state.leaving.remove(orphan);
        state.suspects.push(orphan.clone());
        drop(state);
        self.changed.notify_one();
    }

    /// Whether an entry is of this backend instance.
    fn is_own(&self, entry: &EntryId) -> bool {
        entry.session.starts_with(&*self.instance)
    }
}

impl QueueView {
    fn wake(&self, entry: &EntryId) {
        let place = self.entries.get(entry).and_then(|number| self.places.get(number));
        if let Some(place) = place {
            place.notify_one();
        }
    }
}

#[cfg(test)]
mod tests;

//! The waiters of this process for one resource, and whose turn it is.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use crate::{
    backend::etcd::{
        core::Core,
        keys::{EntryId, Part},
        queue::{follow, mirror::Mirror, place::Place},
    },
    lock::{BackendError, ResourceId},
};

/// Which limit a full queue has reached.
pub(crate) const FULL: &str = "the resource's limit (maxWaiters) is reached";

/// Events that are kept while a list is read; with more of them it is read again.
const EVENTS_MAX: usize = 20_000;

/// A change of one of a resource's keys.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    /// Whether it was put, or else deleted.
    pub(crate) put: bool,
    pub(crate) part: Part,
    /// The revision of the change.
    pub(crate) at: u64,
}

/// What a list found, and at which revision.
#[derive(Debug, Default)]
pub(crate) struct List {
    pub(crate) revision: u64,
    /// The revision at which the holder's key was written, if it is there.
    pub(crate) holder: Option<u64>,
    /// The waiters, each with the revision at which it was put.
    pub(crate) entries: Vec<(EntryId, u64)>,
}

/// The queues that somebody of this process waits in, or lately did.
#[derive(Debug, Default)]
pub(crate) struct Queues(Mutex<HashMap<ResourceId, Arc<Queue>>>);

/// One resource's queue, kept by one watch however many wait.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) resource: ResourceId,
    /// What the sessions of this backend instance begin with.
    instance: Arc<str>,
    state: Mutex<State>,
    /// Tells the watch that waiters came or went.
    pub(crate) stirred: Notify,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) mirror: Mirror,
    /// Whether the mirror is kept up to date.
    pub(super) live: bool,
    /// The watch whose events count, by its ID; 0 if there is none.
    pub(super) watch: i64,
    /// The events since a list was begun, which that may not contain.
    pub(super) since_list: Option<Vec<Event>>,
    /// How many lists were begun, and the number of the one that the mirror was
    /// last filled from.
    pub(super) lists_begun: u64,
    pub(super) listed: u64,
    /// How often it has not been for too long, and why last: each outage ends
    /// the waits that it met.
    pub(super) outages: u64,
    pub(super) outage: Arc<str>,
    /// Whether the watch has ended; whoever comes needs a new queue.
    pub(super) closed: bool,
    pub(super) places: HashMap<u64, Arc<Notify>>,
    pub(super) next_place: u64,
    pub(super) entries: HashMap<EntryId, u64>,
    /// Entries whose waiter removes them itself.
    pub(super) leaving: HashSet<EntryId>,
    /// Entries of this backend instance that may be nobody's. Noted as they come up, so that no event
    /// costs a look at the whole queue.
    pub(super) suspects: Vec<EntryId>,
}

impl Queues {
    /// Takes a place in the resource's queue.
    pub(crate) fn join(
        &self,
        core: &Arc<Core>,
        resource: &ResourceId,
    ) -> Result<Place, BackendError> {
        let mut queues = self.queues();
        if let Some(queue) = queues.get(resource)
            && let Some(place) = queue.place(core.settings.waiters_per_resource_max)?
        {
            return Ok(place);
        }
        let queue = Arc::new(Queue {
            resource: resource.clone(),
            instance: core.sessions.instance(),
            state: Mutex::new(State::new()),
            stirred: Notify::new(),
        });
        queues.insert(resource.clone(), Arc::clone(&queue));
        drop(queues);
        let place = queue.place(core.settings.waiters_per_resource_max)?;
        core.background.spawn(follow::keep(Arc::clone(core), Arc::clone(&queue)));
        place.ok_or_else(|| BackendError::Unavailable("the store is closing".into()))
    }

    /// Whether the resource is known to be held or waited for.
    pub(crate) fn is_contended(&self, resource: &ResourceId) -> bool {
        let queue = self.queues().get(resource).cloned();
        queue.is_some_and(|queue| {
            let state = queue.state();
            state.live && (state.mirror.is_held() || state.mirror.len() > 0)
        })
    }

    /// The entries that somebody of this process waits with, or puts just now.
    pub(crate) fn entries(&self) -> Vec<(ResourceId, EntryId)> {
        let queues: Vec<_> = self.queues().values().cloned().collect();
        let of = |queue: &Arc<Queue>| -> Vec<_> {
            let state = queue.state();
            state.entries.keys().map(|entry| (queue.resource.clone(), entry.clone())).collect()
        };
        queues.iter().flat_map(of).collect()
    }

    /// Forgets a queue nobody waits in; `false` if somebody does.
    pub(crate) fn close(&self, queue: &Arc<Queue>) -> bool {
        let mut queues = self.queues();
        let mut state = queue.state();
        if !state.places.is_empty() {
            return false;
        }
        state.closed = true;
        drop(state);
        if queues.get(&queue.resource).is_some_and(|listed| Arc::ptr_eq(listed, queue)) {
            queues.remove(&queue.resource);
        }
        true
    }

    fn queues(&self) -> MutexGuard<'_, HashMap<ResourceId, Arc<Queue>>> {
        self.0.lock()
    }
}

impl Queue {
    /// A place, or `None` if the watch has ended.
    fn place(self: &Arc<Self>, waiters_max: usize) -> Result<Option<Place>, BackendError> {
        let mut state = self.state();
        if state.closed {
            return Ok(None);
        }
        if state.places.len().max(state.mirror.len()) >= waiters_max {
            return Err(BackendError::TooManyWaiters(
                "the resource's limit (maxWaiters) is reached",
            ));
        }
        let (number, woken) = (state.next_place, Arc::new(Notify::new()));
        let outages = state.outages;
        state.next_place += 1;
        state.places.insert(number, Arc::clone(&woken));
        drop(state);
        self.stirred.notify_one();
        Ok(Some(Place { queue: Arc::clone(self), number, woken, entry: None, outages }))
    }

    /// From now on the events of this watch count, and no others: one that was given
    /// up may still have some under way, of an older data set.
    pub(crate) fn followed_by(&self, watch: i64) {
        self.state().watch = watch;
    }

    /// A list is about to be asked for; what had been put by now is in it. Events that
    /// come meanwhile are kept for [`Queue::listed`].
    pub(crate) fn lists(&self) -> u64 {
        let mut state = self.state();
        state.since_list = Some(Vec::new());
        state.lists_begun += 1;
        state.lists_begun
    }

    /// Takes over a list, by its number; the mirror is live from now on. `false` if too
    /// much has happened since the list was begun.
    pub(crate) fn listed(&self, number: u64, list: List) -> bool {
        let mut state = self.state();
        let Some(events) = state.since_list.take() else { return false };
        state.mirror.list(list.revision, list.holder, list.entries);
        state.listed = number;
        state.live = true;
        let State { leaving, mirror, suspects, .. } = &mut *state;
        leaving.retain(|entry| mirror.entered(entry).is_some());
        *suspects = mirror.entries().filter(|entry| self.is_own(entry)).cloned().collect();
        self.take(&mut state, events);
        for place in state.places.values() {
            place.notify_one();
        }
        true
    }

    /// Applies the events of one answer of a watch, and wakes whose turn it is.
    pub(crate) fn apply(&self, watch: i64, events: Vec<Event>) {
        let mut state = self.state();
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

    fn take(&self, state: &mut State, events: Vec<Event>) {
        let revision = events.iter().map(|event| event.at).max().unwrap_or_default();
        for Event { put, part, at } in events {
            if put {
                if let Part::Entry(entry) = &part
                    && self.is_own(entry)
                    && !state.entries.contains_key(entry)
                {
                    state.suspects.push(entry.clone());
                    self.stirred.notify_one();
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
        state.wake_head();
    }

    /// The mirror is not kept up to date any more.
    pub(crate) fn down(&self) {
        let mut state = self.state();
        state.live = false;
        state.watch = 0;
        state.since_list = None;
    }

    /// etcd has been out of reach for too long: nobody waits on.
    pub(crate) fn fail(&self, why: &Arc<str>) {
        let mut state = self.state();
        state.outages += 1;
        state.outage = Arc::clone(why);
        for place in state.places.values() {
            place.notify_one();
        }
    }

    /// Whether nobody of this process waits.
    pub(crate) fn is_deserted(&self) -> bool {
        self.state().places.is_empty()
    }

    /// Entries of this process that nobody waits with: their waiter has gone,
    /// or a write came late.
    pub(crate) fn ghosts(&self) -> Vec<EntryId> {
        let mut state = self.state();
        let mut ghosts = std::mem::take(&mut state.suspects);
        ghosts.retain(|entry| {
            state.mirror.entered(entry).is_some()
                && !state.entries.contains_key(entry)
                && !state.leaving.contains(entry)
        });
        state.leaving.extend(ghosts.iter().cloned());
        ghosts
    }

    /// A ghost could not be removed yet.
    pub(crate) fn still_there(&self, ghost: &EntryId) {
        let mut state = self.state();
        state.leaving.remove(ghost);
        state.suspects.push(ghost.clone());
    }

    /// Whether an entry is of this backend instance.
    fn is_own(&self, entry: &EntryId) -> bool {
        entry.session.starts_with(&*self.instance)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    fn new() -> Self {
        Self {
            mirror: Mirror::default(),
            live: false,
            watch: 0,
            since_list: None,
            lists_begun: 0,
            listed: 0,
            outages: 0,
            outage: "etcd is out of reach".into(),
            closed: false,
            places: HashMap::new(),
            next_place: 0,
            entries: HashMap::new(),
            leaving: HashSet::new(),
            suspects: Vec::new(),
        }
    }

    fn wake(&self, entry: &EntryId) {
        let place = self.entries.get(entry).and_then(|number| self.places.get(number));
        if let Some(place) = place {
            place.notify_one();
        }
    }

    fn wake_head(&self) {
        if !self.mirror.is_held()
            && let Some(head) = self.mirror.head()
        {
            self.wake(head);
        }
    }
}

#[cfg(test)]
mod tests;

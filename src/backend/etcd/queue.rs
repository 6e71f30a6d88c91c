//! The waiters of this process for one resource, and whose turn it is.

mod place;

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

use super::{
    backend::Core,
    keys::{EntryId, Part},
    mirror::Mirror,
    watch,
};
use crate::lock::{BackendError, ResourceId};
pub(super) use place::{Place, Turn};

/// Which limit a full queue has reached.
pub(super) const FULL: &str = "the resource's limit (maxWaiters) is reached";

/// The queues that somebody of this process waits in, or lately did.
#[derive(Debug, Default)]
pub(super) struct Queues(Mutex<HashMap<ResourceId, Arc<Queue>>>);

/// One resource's queue, kept by one watch however many wait.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) resource: ResourceId,
    state: Mutex<State>,
    /// Tells the watch that waiters came or went.
    pub(super) stirred: Notify,
}

#[derive(Debug)]
struct State {
    mirror: Mirror,
    /// Whether the mirror is kept up to date.
    live: bool,
    /// How many lists were begun, and the number of the one that the mirror was
    /// last filled from.
    lists_begun: u64,
    listed: u64,
    /// How often it has not been for too long, and why last: each outage ends
    /// the waits that it met.
    outages: u64,
    outage: Arc<str>,
    /// Whether the watch has ended; whoever comes needs a new queue.
    closed: bool,
    places: HashMap<u64, Arc<Notify>>,
    next_place: u64,
    entries: HashMap<EntryId, u64>,
    /// Entries whose waiter removes them itself.
    leaving: HashSet<EntryId>,
    /// Entries that may be nobody's. Noted as they come up, so that no event
    /// costs a look at the whole queue.
    suspects: Vec<EntryId>,
}

impl Queues {
    /// Takes a place in the resource's queue.
    pub(super) fn join(
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
            state: Mutex::new(State::new()),
            stirred: Notify::new(),
        });
        queues.insert(resource.clone(), Arc::clone(&queue));
        drop(queues);
        let place = queue.place(core.settings.waiters_per_resource_max)?;
        core.background.spawn(watch::keep(Arc::clone(core), Arc::clone(&queue)));
        place.ok_or_else(|| BackendError::Unavailable("the store is closing".into()))
    }

    /// Whether the resource is known to be held or waited for.
    pub(super) fn is_contended(&self, resource: &ResourceId) -> bool {
        let queue = self.queues().get(resource).cloned();
        queue.is_some_and(|queue| {
            let state = queue.state();
            state.live && (state.mirror.is_held() || state.mirror.len() > 0)
        })
    }

    /// The entries that somebody of this process waits with, or puts just now.
    pub(super) fn entries(&self) -> Vec<(ResourceId, EntryId)> {
        let queues: Vec<_> = self.queues().values().cloned().collect();
        let of = |queue: &Arc<Queue>| -> Vec<_> {
            let state = queue.state();
            state.entries.keys().map(|entry| (queue.resource.clone(), entry.clone())).collect()
        };
        queues.iter().flat_map(of).collect()
    }

    /// Forgets a queue nobody waits in; `false` if somebody does.
    pub(super) fn close(&self, queue: &Arc<Queue>) -> bool {
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
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// A list is about to be asked for; what had been put by now is in it.
    pub(super) fn lists(&self) -> u64 {
        let mut state = self.state();
        state.lists_begun += 1;
        state.lists_begun
    }

    /// Takes over a list, by its number; the mirror is live from now on.
    pub(super) fn listed(
        &self,
        number: u64,
        revision: u64,
        holder: Option<u64>,
        entries: Vec<(EntryId, u64)>,
    ) {
        let mut state = self.state();
        state.mirror.list(revision, holder, entries);
        state.listed = number;
        state.live = true;
        let State { leaving, mirror, .. } = &mut *state;
        leaving.retain(|entry| mirror.entered(entry).is_some());
        state.suspects = state.mirror.entries().cloned().collect();
        for place in state.places.values() {
            place.notify_one();
        }
    }

    /// Applies the events of one answer, and wakes whose turn it is.
    pub(super) fn apply(&self, revision: u64, events: Vec<(bool, Part, u64)>) {
        let mut state = self.state();
        for (put, part, at) in events {
            if put {
                if let Part::Entry(entry) = &part
                    && !state.entries.contains_key(entry)
                {
                    state.suspects.push(entry.clone());
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
    pub(super) fn down(&self) {
        self.state().live = false;
    }

    /// etcd has been out of reach for too long: nobody waits on.
    pub(super) fn fail(&self, why: &Arc<str>) {
        let mut state = self.state();
        state.outages += 1;
        state.outage = Arc::clone(why);
        for place in state.places.values() {
            place.notify_one();
        }
    }

    /// Whether nobody of this process waits.
    pub(super) fn is_deserted(&self) -> bool {
        self.state().places.is_empty()
    }

    /// Entries of this process that nobody waits with: their waiter has gone,
    /// or a write came late.
    pub(super) fn ghosts(&self, is_own: impl Fn(&EntryId) -> bool) -> Vec<EntryId> {
        let mut state = self.state();
        let mut ghosts = std::mem::take(&mut state.suspects);
        ghosts.retain(|entry| {
            is_own(entry)
                && state.mirror.entered(entry).is_some()
                && !state.entries.contains_key(entry)
                && !state.leaving.contains(entry)
        });
        state.leaving.extend(ghosts.iter().cloned());
        ghosts
    }

    /// A ghost could not be removed yet.
    pub(super) fn still_there(&self, ghost: &EntryId) {
        let mut state = self.state();
        state.leaving.remove(ghost);
        state.suspects.push(ghost.clone());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn new() -> Self {
        Self {
            mirror: Mirror::default(),
            live: false,
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

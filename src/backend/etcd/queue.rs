//! The waiters of this process for one resource, and whose turn it is.

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

/// A waiter's place, given up when dropped. Its entry is then removed by the
/// watch, unless [`Place::leave`] says that the waiter does so.
#[derive(Debug)]
pub(super) struct Place {
    queue: Arc<Queue>,
    number: u64,
    woken: Arc<Notify>,
    entry: Option<EntryId>,
    /// How many outages there had been when it was taken.
    outages: u64,
}

/// Why a waiter was woken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It is the first, and nobody holds the resource.
    Mine,
    /// Its entry is gone: deleted by somebody, or with its session.
    Lost,
    /// etcd has been out of reach for too long.
    Outage(Arc<str>),
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

    /// Takes over a list; the mirror is live from now on.
    pub(super) fn listed(
        &self,
        revision: u64,
        holder: Option<u64>,
        entries: Vec<(EntryId, u64)>,
    ) {
        let mut state = self.state();
        state.mirror.list(revision, holder, entries);
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

impl Place {
    /// Waits until the mirror is live, so that an entry put from now on will be
    /// seen in it.
    pub(super) async fn ready(&self) -> Result<(), Arc<str>> {
        loop {
            {
                let state = self.queue.state();
                if state.outages > self.outages {
                    return Err(Arc::clone(&state.outage));
                }
                if state.live {
                    return Ok(());
                }
            }
            self.woken.notified().await;
        }
    }

    /// Whether as many wait already, in all processes, as may.
    pub(super) fn is_full(&self, waiters_max: usize) -> bool {
        self.queue.state().mirror.len() >= waiters_max
    }

    /// Names the entry that is about to be put.
    pub(super) fn enter(&mut self, entry: EntryId) {
        self.forget_entry(false);
        self.queue.state().entries.insert(entry.clone(), self.number);
        self.entry = Some(entry);
    }

    /// Waits for the turn of the entry, which was put at `entered`.
    pub(super) async fn turn(&self, entered: u64) -> Turn {
        loop {
            if let Some(turn) = self.turn_now(entered) {
                return turn;
            }
            self.woken.notified().await;
        }
    }

    /// The holder's key was seen, written at `revision`.
    pub(super) fn saw_holder(&self, revision: u64) {
        self.queue.state().mirror.saw_holder(revision);
    }

    /// Gives the place up; the waiter itself removes its entry, or has.
    pub(super) fn leave(mut self) {
        self.forget_entry(true);
    }

    fn turn_now(&self, entered: u64) -> Option<Turn> {
        let state = self.queue.state();
        if state.outages > self.outages {
            return Some(Turn::Outage(Arc::clone(&state.outage)));
        }
        let entry = self.entry.as_ref()?;
        if !state.live || state.mirror.revision() < entered {
            return None;
        }
        if state.mirror.entered(entry).is_none() {
            return Some(Turn::Lost);
        }
        (state.mirror.head() == Some(entry) && !state.mirror.is_held()).then_some(Turn::Mine)
    }

    fn forget_entry(&mut self, leaving: bool) {
        if let Some(entry) = self.entry.take() {
            let mut state = self.queue.state();
            state.entries.remove(&entry);
            // One that the mirror has not seen yet is suspected when it is.
            if state.mirror.entered(&entry).is_none() {
                return;
            }
            if leaving {
                state.leaving.insert(entry);
            } else {
                state.suspects.push(entry);
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.forget_entry(false);
        self.queue.state().places.remove(&self.number);
        self.queue.stirred.notify_one();
    }
}

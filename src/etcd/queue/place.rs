//! One waiter's place in a queue.

use std::sync::Arc;

use leasehold_lock::BackendError;
use tokio::sync::Notify;

use crate::{
    keys::{EntryId, Part},
    queue::waiters::Queue,
    revision::Revision,
};

/// The message for a waiter who finds the queue full.
pub(crate) const FULL: &str = "the resource's limit (maxWaiters) is reached";

/// A waiter's place, given up when dropped. Its entry is then removed in the background,
/// unless [`Place::leave`] says that the waiter does so.
#[derive(Debug)]
pub(crate) struct Place {
    queue: Arc<Queue>,
    number: u64,
    woken: Arc<Notify>,
    entry: Option<EntryId>,
    /// How many outages there had been when the place was taken.
    outages: u64,
}

/// Why a waiter was woken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It can be granted now, as far as is known.
    Mine,
    /// Its entry is gone: deleted by somebody, or with its session.
    Lost,
    /// etcd has been unavailable for too long.
    Outage(Arc<str>),
}

impl Place {
    /// Takes a place; `None` if nobody follows the queue any more.
    pub(super) fn take(
        queue: &Arc<Queue>,
        waiters_max: usize,
    ) -> Result<Option<Self>, BackendError> {
        let mut state = queue.state.lock();
        if state.closed {
            return Ok(None);
        }
        if state.places.len().max(state.mirror.len()) >= waiters_max {
            return Err(BackendError::TooManyWaiters(FULL));
        }
        let (number, woken) = (state.next_place, Arc::new(Notify::new()));
        let outages = state.outages;
        state.next_place += 1;
        state.places.insert(number, Arc::clone(&woken));
        drop(state);
        queue.changed.notify_one();
        Ok(Some(Self { queue: Arc::clone(queue), number, woken, entry: None, outages }))
    }

    /// Waits until the mirror is up to date, so that an entry put from now on will appear
    /// in it.
    pub(crate) async fn ready(&self) -> Result<(), Arc<str>> {
        loop {
            {
                let state = self.queue.state.lock();
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

    /// Whether the queue is full, with the waiters of all processes.
    pub(crate) fn is_full(&self, waiters_max: usize) -> bool {
        self.queue.state.lock().mirror.len() >= waiters_max
    }

    /// Names the entry that is about to be put.
    pub(crate) fn enter(&mut self, entry: EntryId) {
        self.forget_entry(false);
        self.queue.state.lock().entries.insert(entry.clone(), self.number);
        self.entry = Some(entry);
    }

    /// How many lists were begun. Note this once the put is acknowledged; any later list is
    /// authoritative.
    pub(crate) fn lists_begun(&self) -> u64 {
        self.queue.state.lock().lists_begun
    }

    /// Waits for the turn of the entry, which was put at `entered`, and known to be so when
    /// `lists_begun` lists had been begun.
    pub(crate) async fn turn(&self, entered: Revision, lists_begun: u64) -> Turn {
        loop {
            if let Some(turn) = self.turn_now(entered, lists_begun) {
                return turn;
            }
            self.woken.notified().await;
        }
    }

    /// Notes that the key of a grant was seen, written at `revision`.
    pub(crate) fn saw(&self, grant: Part, revision: Revision) {
        self.queue.state.lock().mirror.saw(grant, revision);
    }

    /// Gives the place up; the waiter removes its entry itself, or has done so.
    pub(crate) fn leave(mut self) {
        self.forget_entry(true);
    }

    fn turn_now(&self, entered: Revision, lists_begun: u64) -> Option<Turn> {
        let state = self.queue.state.lock();
        if state.outages > self.outages {
            return Some(Turn::Outage(Arc::clone(&state.outage)));
        }
        let entry = self.entry.as_ref()?;
        // The revisions of a restored data set may stay below `entered` for ever, so a later
        // list counts too.
        let is_known = state.mirror.revision() >= entered || state.listed > lists_begun;
        if !state.live || !is_known {
            return None;
        }
        if state.mirror.entered(entry).is_none() {
            return Some(Turn::Lost);
        }
        state.mirror.is_turn(entry).then_some(Turn::Mine)
    }

    fn forget_entry(&mut self, leaving: bool) {
        if let Some(entry) = self.entry.take() {
            let mut state = self.queue.state.lock();
            state.entries.remove(&entry);
            // An entry that the mirror does not have yet becomes a suspect when it appears.
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
        self.queue.state.lock().places.remove(&self.number);
        self.queue.changed.notify_one();
    }
}

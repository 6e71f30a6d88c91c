//! One waiter's place in a queue.

use std::sync::Arc;

use tokio::sync::Notify;

use crate::backend::etcd::{keys::EntryId, queue::waiters::Queue};

/// A waiter's place, given up when dropped. Its entry is then removed by the
/// watch, unless [`Place::leave`] says that the waiter does so.
#[derive(Debug)]
pub(crate) struct Place {
    pub(super) queue: Arc<Queue>,
    pub(super) number: u64,
    pub(super) woken: Arc<Notify>,
    pub(super) entry: Option<EntryId>,
    /// How many outages there had been when it was taken.
    pub(super) outages: u64,
}

/// Why a waiter was woken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It is the first, and nobody holds the resource.
    Mine,
    /// Its entry is gone: deleted by somebody, or with its session.
    Lost,
    /// etcd has been out of reach for too long.
    Outage(Arc<str>),
}

impl Place {
    /// Waits until the mirror is live, so that an entry put from now on will be
    /// seen in it.
    pub(crate) async fn ready(&self) -> Result<(), Arc<str>> {
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
    pub(crate) fn is_full(&self, waiters_max: usize) -> bool {
        self.queue.state().mirror.len() >= waiters_max
    }

    /// Names the entry that is about to be put.
    pub(crate) fn enter(&mut self, entry: EntryId) {
        self.forget_entry(false);
        self.queue.state().entries.insert(entry.clone(), self.number);
        self.entry = Some(entry);
    }

    /// How many lists were begun. Note this once the put is acknowledged; any later
    /// list is authoritative.
    pub(crate) fn lists_begun(&self) -> u64 {
        self.queue.state().lists_begun
    }

    /// Waits for the turn of the entry, which was put at `entered`, when
    /// `lists_begun` lists had been begun at most.
    pub(crate) async fn turn(&self, entered: u64, lists_begun: u64) -> Turn {
        loop {
            if let Some(turn) = self.turn_now(entered, lists_begun) {
                return turn;
            }
            self.woken.notified().await;
        }
    }

    /// The holder's key was seen, written at `revision`.
    pub(crate) fn saw_holder(&self, revision: u64) {
        self.queue.state().mirror.saw_holder(revision);
    }

    /// Gives the place up; the waiter itself removes its entry, or has.
    pub(crate) fn leave(mut self) {
        self.forget_entry(true);
    }

    fn turn_now(&self, entered: u64, lists_begun: u64) -> Option<Turn> {
        let state = self.queue.state();
        if state.outages > self.outages {
            return Some(Turn::Outage(Arc::clone(&state.outage)));
        }
        let entry = self.entry.as_ref()?;
        // A data set that was restored may have lower revisions, for ever.
        let is_known = state.mirror.revision() >= entered || state.listed > lists_begun;
        if !state.live || !is_known {
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

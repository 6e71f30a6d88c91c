//! One resource: its holders, its waiters, and who is granted it next.

use std::collections::BTreeMap;

use leasehold_lock::{
    Attempt, BackendError, FencingToken, Grant, Instant, LockId, Mode, WaiterSlot,
    inspect::EndCause,
};
use tokio::sync::oneshot;

use super::{
    holders::{Holders, Readers},
    ledger::Ledger,
};

/// A resource that is held.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) holders: Holders,
    /// Waiters of both modes in the order of their arrival. A tree, so that any of ten
    /// thousand can leave cheaply. Absent while nobody waits, so that a million held locks
    /// need little memory.
    #[allow(clippy::box_collection, reason = "a pointer's width for each of a million locks")]
    queue: Option<Box<BTreeMap<Ticket, Waiter>>>,
}

/// A waiting attempt, and the channel for its answer.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) attempt: Attempt,
    /// When it began to wait.
    pub(super) since_unix_ms: u64,
    turn: Turn,
    _slot: WaiterSlot,
}

/// The channel for a waiter's answer. Dropped without one when tokens have run out.
pub(super) type Turn = oneshot::Sender<Result<Grant, BackendError>>;

/// The place of a waiter in its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket(pub(super) u64);

impl Slot {
    pub(super) fn new(holders: Holders) -> Self {
        Self { holders, queue: None }
    }

    /// The waiters with their tickets, in the order of the queue.
    pub(super) fn waiters(&self) -> impl Iterator<Item = (Ticket, &Waiter)> {
        self.queue
            .iter()
            .flat_map(|queue| queue.iter())
            .map(|(ticket, waiter)| (*ticket, waiter))
    }

    /// The length of the queue.
    pub(super) fn waiting(&self) -> usize {
        self.queue.as_ref().map_or(0, |queue| queue.len())
    }

    /// Finds the attempt's own grant, or adds a shared grant if nobody waits.
    pub(super) fn try_lock(
        &mut self,
        attempt: &Attempt,
        ledger: &mut Ledger,
        now: Instant,
    ) -> Result<Grant, BackendError> {
        let mode = self.holders.mode();
        if let Some(held) = self.holders.replayed_by(attempt) {
            return ledger.replay(held, mode, attempt, now);
        }
        match &mut self.holders {
            Holders::Shared(readers)
                if attempt.mode == Mode::Shared && !readers.has(&attempt.lock_id) =>
            {
                if readers.len() >= ledger.holders_per_resource_max {
                    return Err(BackendError::TooManyHolders);
                }
                if self.queue.is_none() {
                    let held = ledger.make(attempt, now)?;
                    let grant = held.as_grant(attempt.ttl, now, true);
                    ledger.enter(&held, &attempt.resource);
                    readers.insert(held);
                    return Ok(grant);
                }
            }
            _ => {}
        }
        Err(BackendError::Locked { by: self.holders.shown() })
    }

    /// Refuses the lock ID of a live shared grant: lock IDs are unique.
    pub(super) fn must_be_new(&self, lock_id: &LockId) -> Result<(), BackendError> {
        match &self.holders {
            Holders::Shared(readers) => must_be_new(readers, lock_id),
            Holders::Exclusive(_) => Ok(()),
        }
    }

    /// Adds a waiter at the end of the queue.
    pub(super) fn wait(&mut self, ticket: Ticket, waiter: Waiter) {
        self.queue.get_or_insert_default().insert(ticket, waiter);
    }

    /// Removes a waiter, if it is still there. The shared waiters that were behind an
    /// exclusive one may then join the shared grants that are held.
    pub(super) fn leave(&mut self, ticket: Ticket, ledger: &mut Ledger, now: Instant) {
        let Some(queue) = self.queue.as_mut() else { return };
        if queue.remove(&ticket).is_some() {
            self.admit(ledger, now);
        }
    }

    /// Ends the grant with this token, or all grants, and then grants to the waiters whose
    /// turn has come. Returns whether the resource is still held.
    pub(super) fn end(
        &mut self,
        token: Option<FencingToken>,
        cause: EndCause,
        ledger: &mut Ledger,
        now: Instant,
    ) -> bool {
        let is_free = match (&mut self.holders, token) {
            (Holders::Exclusive(held), _) => {
                ledger.remove(held, Mode::Exclusive, cause);
                true
            }
            (Holders::Shared(readers), Some(token)) => {
                if let Some(ended) = readers.remove(token) {
                    ledger.remove(&ended, Mode::Shared, cause);
                }
                readers.is_empty()
            }
            (Holders::Shared(readers), None) => {
                readers.iter().for_each(|ended| ledger.remove(ended, Mode::Shared, cause));
                true
            }
        };
        if is_free {
            match self.next_holders(ledger, now) {
                Some(next) => self.holders = next,
                None => return false,
            }
        }
        self.admit(ledger, now);
        true
    }

    /// Grants to the first waiter that is still there, when nothing is held.
    fn next_holders(&mut self, ledger: &mut Ledger, now: Instant) -> Option<Holders> {
        let queue = self.queue.as_mut()?;
        while let Some((_, Waiter { attempt, turn, .. })) = queue.pop_first() {
            // There are no more tokens. Dropping the sender ends the wait.
            let Ok(held) = ledger.make(&attempt, now) else { continue };
            if turn.send(Ok(held.as_grant(attempt.ttl, now, true))).is_err() {
                continue;
            }
            ledger.enter(&held, &attempt.resource);
            return Some(Holders::new(held, attempt.mode));
        }
        None
    }

    /// While shared grants are held, grants to the shared waiters at the head of the queue.
    pub(super) fn admit(&mut self, ledger: &mut Ledger, now: Instant) {
        let Some(queue) = self.queue.as_mut() else { return };
        if let Holders::Shared(readers) = &mut self.holders {
            while readers.len() < ledger.holders_per_resource_max
                && let Some(first) = queue.first_entry()
                && first.get().attempt.mode == Mode::Shared
            {
                first.remove().join(readers, ledger, now);
            }
        }
        if queue.is_empty() {
            self.queue = None;
        }
    }
}

impl Waiter {
    pub(super) fn new(
        attempt: Attempt,
        since_unix_ms: u64,
        turn: Turn,
        slot: WaiterSlot,
    ) -> Self {
        Self { attempt, since_unix_ms, turn, _slot: slot }
    }

    /// Joins the held shared grants. Meanwhile one of them may have the same request ID,
    /// which is a replay, or the same lock ID, which is refused.
    fn join(self, readers: &mut Readers, ledger: &mut Ledger, now: Instant) {
        let Self { attempt, turn, .. } = self;
        if turn.is_closed() {
            return;
        }
        let request_id = attempt.request_id.as_ref();
        if let Some(held) = request_id.and_then(|id| readers.with_request_id(id)) {
            let _ = turn.send(ledger.replay(held, Mode::Shared, &attempt, now));
            return;
        }
        if let Err(refused) = must_be_new(readers, &attempt.lock_id) {
            let _ = turn.send(Err(refused));
            return;
        }
        // There are no more tokens. Dropping the sender ends the wait.
        let Ok(held) = ledger.make(&attempt, now) else { return };
        if turn.send(Ok(held.as_grant(attempt.ttl, now, true))).is_ok() {
            ledger.enter(&held, &attempt.resource);
            readers.insert(held);
        }
    }
}

fn must_be_new(readers: &Readers, lock_id: &LockId) -> Result<(), BackendError> {
    if readers.has(lock_id) {
        return Err(BackendError::lock_id_in_use());
    }
    Ok(())
}

//! The state of many resources, and how each operation changes it. The time is an argument,
//! and nothing is awaited.

use std::collections::{BTreeMap, HashMap};

use tokio::{sync::oneshot, time::Instant};

use crate::lock::{
    Attempt, AttemptId, BackendError, Clock, FencingToken, Grant, Holder, LockId, Release,
    ReleaseOf, Renewal, Renewed, RequestId, ResourceId, Ttl, WaiterBudget, WaiterSlot,
};

/// A table of a smaller capacity is not shrunk.
const CAPACITY_MIN: usize = 1024;

/// The resources that are held. A free resource has no record (trap 20) and no waiters,
/// because a release hands it over in the same step.
#[derive(Debug)]
pub(super) struct Table {
    slots: HashMap<ResourceId, Box<Slot>>,
    /// Every live grant by the end of its TTL. The token distinguishes grants that end at
    /// the same instant.
    expiries: BTreeMap<(Instant, FencingToken), ResourceId>,
    clock: Clock,
    last_token: Option<FencingToken>,
    last_ticket: u64,
    pub(super) waiters_per_resource_max: usize,
}

#[derive(Debug)]
struct Slot {
    held: Held,
    /// Waiters in the order of their arrival. A tree, so that any of ten thousand can leave
    /// cheaply. Absent while nobody waits, so that a million held locks need little memory.
    #[allow(clippy::box_collection, reason = "a pointer's width for each of a million locks")]
    queue: Option<Box<BTreeMap<Ticket, Waiter>>>,
}

#[derive(Debug)]
struct Held {
    lock_id: LockId,
    token: FencingToken,
    expires: Instant,
    /// The attempt whose clean-up may end the grant; `None` once a replay has claimed it.
    attempt: Option<AttemptId>,
    request_id: Option<RequestId>,
    holder: Option<Holder>,
}

#[derive(Debug)]
struct Waiter {
    lock_id: LockId,
    ttl: Ttl,
    attempt: AttemptId,
    request_id: Option<RequestId>,
    holder: Option<Holder>,
    turn: oneshot::Sender<Grant>,
    _slot: WaiterSlot,
}

/// The place of a waiter in its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket(u64);

/// The result of entering: a grant, or a place in the queue.
#[derive(Debug)]
pub(super) enum Entered {
    Granted(Grant),
    Waiting(Ticket, oneshot::Receiver<Grant>),
}

impl Table {
    pub(super) fn new(clock: Clock, waiters_per_resource_max: usize) -> Self {
        Self {
            slots: HashMap::new(),
            expiries: BTreeMap::new(),
            clock,
            last_token: None,
            last_ticket: 0,
            waiters_per_resource_max,
        }
    }

    pub(super) fn records(&self) -> usize {
        self.slots.len()
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.slots.capacity()
    }

    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.expiries.first_key_value().map(|((at, _), _)| *at)
    }

    pub(super) fn try_lock(
        &mut self,
        attempt: &Attempt,
        now: Instant,
    ) -> Result<Grant, BackendError> {
        self.expire(now);
        match self.slots.get(&attempt.resource) {
            None => self.grant(attempt, now),
            Some(slot) if slot.held.is_replayed_by(attempt) => self.replay(attempt, now),
            Some(slot) => Err(BackendError::Locked { holder: slot.held.holder.clone() }),
        }
    }

    pub(super) fn enter(
        &mut self,
        attempt: &Attempt,
        waiters: &WaiterBudget,
        now: Instant,
    ) -> Result<Entered, BackendError> {
        match self.try_lock(attempt, now) {
            Err(BackendError::Locked { .. }) => self.wait(attempt, waiters),
            granted => granted.map(Entered::Granted),
        }
    }

    pub(super) fn renew(
        &mut self,
        renewal: &Renewal,
        now: Instant,
    ) -> Result<Renewed, BackendError> {
        self.expire(now);
        let held =
            &mut self.held_by(&renewal.resource, |held| held.lock_id == renewal.lock_id)?;
        let (from, token) = (held.expires, held.token);
        held.expires = now + renewal.ttl.duration();
        let to = held.expires;
        self.reschedule(&renewal.resource, token, from, to);
        Ok(Renewed { ttl: renewal.ttl.duration(), since: now })
    }

    pub(super) fn unlock(
        &mut self,
        release: &Release,
        now: Instant,
    ) -> Result<(), BackendError> {
        self.expire(now);
        self.held_by(&release.resource, |held| match &release.of {
            ReleaseOf::Owner(lock_id) => held.lock_id == *lock_id,
            ReleaseOf::Anyone => true,
            ReleaseOf::Attempt(attempt) => held.attempt == Some(attempt.id),
        })?;
        if let Some(token) = release.aim.token() {
            self.held_by(&release.resource, |held| held.token == token)?;
        }
        self.hand_over(&release.resource, now);
        Ok(())
    }

    /// Removes a waiter from its queue, if it is still there.
    pub(super) fn leave(&mut self, resource: &ResourceId, ticket: Ticket) {
        let Some(slot) = self.slots.get_mut(resource) else { return };
        let Some(queue) = slot.queue.as_mut() else { return };
        queue.remove(&ticket);
        if queue.is_empty() {
            slot.queue = None;
        }
    }

    /// Ends every grant whose TTL is over, and hands its resource over.
    pub(super) fn expire(&mut self, now: Instant) {
        while let Some(first) = self.expiries.first_entry() {
            if first.key().0 > now {
                return;
            }
            let resource = first.get().clone();
            self.hand_over(&resource, now);
        }
    }

    fn grant(&mut self, attempt: &Attempt, now: Instant) -> Result<Grant, BackendError> {
        let token = self.next_token()?;
        let held = Held {
            lock_id: attempt.lock_id.clone(),
            token,
            expires: now + attempt.ttl.duration(),
            attempt: Some(attempt.id),
            request_id: attempt.request_id.clone(),
            holder: attempt.holder.clone(),
        };
        let grant = held.as_grant(attempt.ttl, now, true);
        self.expiries.insert((held.expires, token), attempt.resource.clone());
        self.slots.insert(attempt.resource.clone(), Box::new(Slot { held, queue: None }));
        Ok(grant)
    }

    /// Gives a repeated request its own grant again. From then on no attempt's clean-up may
    /// end it.
    fn replay(&mut self, attempt: &Attempt, now: Instant) -> Result<Grant, BackendError> {
        let held = self.held_by(&attempt.resource, |_| true)?;
        if attempt.lock_id_given && attempt.lock_id != held.lock_id {
            return Err(BackendError::ReplayMismatch { field: "lock_id" });
        }
        held.attempt = None;
        let (from, token) = (held.expires, held.token);
        held.expires = now + attempt.ttl.duration();
        let (grant, to) = (held.as_grant(attempt.ttl, now, false), held.expires);
        self.reschedule(&attempt.resource, token, from, to);
        Ok(grant)
    }

    fn wait(
        &mut self,
        attempt: &Attempt,
        waiters: &WaiterBudget,
    ) -> Result<Entered, BackendError> {
        let Some(slot) = self.slots.get_mut(&attempt.resource) else {
            return Err(BackendError::NotHeld { held: false });
        };
        let waiting = slot.queue.as_ref().map_or(0, |queue| queue.len());
        if waiting >= self.waiters_per_resource_max {
            return Err(BackendError::TooManyWaiters(
                "the resource's limit is reached (maxWaiters)",
            ));
        }
        let waiter_slot = waiters.enter()?;
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        let (turn, granted) = oneshot::channel();
        let waiter = Waiter {
            lock_id: attempt.lock_id.clone(),
            ttl: attempt.ttl,
            attempt: attempt.id,
            request_id: attempt.request_id.clone(),
            holder: attempt.holder.clone(),
            turn,
            _slot: waiter_slot,
        };
        slot.queue.get_or_insert_default().insert(ticket, waiter);
        Ok(Entered::Waiting(ticket, granted))
    }

    /// Ends the grant of a resource and grants the resource to the first waiter that is still
    /// there. Without waiters, removes its record.
    fn hand_over(&mut self, resource: &ResourceId, now: Instant) {
        let Some(mut slot) = self.slots.remove(resource) else { return };
        self.expiries.remove(&(slot.held.expires, slot.held.token));
        while let Some((_, waiter)) = slot.queue.as_mut().and_then(|queue| queue.pop_first()) {
            // There are no more tokens. Dropping the sender tells the waiter.
            let Ok(token) = self.next_token() else { continue };
            let held = Held {
                lock_id: waiter.lock_id,
                token,
                expires: now + waiter.ttl.duration(),
                attempt: Some(waiter.attempt),
                request_id: waiter.request_id,
                holder: waiter.holder,
            };
            if waiter.turn.send(held.as_grant(waiter.ttl, now, true)).is_err() {
                continue;
            }
            self.expiries.insert((held.expires, token), resource.clone());
            slot.held = held;
            slot.queue = slot.queue.filter(|queue| !queue.is_empty());
            self.slots.insert(resource.clone(), slot);
            return;
        }
        self.shrink();
    }

    fn held_by(
        &mut self,
        resource: &ResourceId,
        is_meant: impl FnOnce(&Held) -> bool,
    ) -> Result<&mut Held, BackendError> {
        match self.slots.get_mut(resource) {
            None => Err(BackendError::NotHeld { held: false }),
            Some(slot) if is_meant(&slot.held) => Ok(&mut slot.held),
            Some(_) => Err(BackendError::NotHeld { held: true }),
        }
    }

    fn reschedule(
        &mut self,
        resource: &ResourceId,
        token: FencingToken,
        from: Instant,
        to: Instant,
    ) {
        self.expiries.remove(&(from, token));
        self.expiries.insert((to, token), resource.clone());
    }

    /// Greater than the token before. Tokens start from the clock, so that they rise across a
    /// restart of the process.
    fn next_token(&mut self) -> Result<FencingToken, BackendError> {
        let from_clock = FencingToken::new(self.clock.unix_us());
        let after_last = match self.last_token {
            None => from_clock.or(FencingToken::new(1)),
            Some(last) => last.next().map(|next| from_clock.map_or(next, |now| now.max(next))),
        };
        let token = after_last
            .ok_or_else(|| BackendError::Unavailable("there are no greater tokens".into()))?;
        self.last_token = Some(token);
        Ok(token)
    }

    /// Frees memory once most of it is unused.
    fn shrink(&mut self) {
        let (used, capacity) = (self.slots.len(), self.slots.capacity());
        if capacity > CAPACITY_MIN && used < capacity / 8 {
            self.slots.shrink_to((used * 2).max(CAPACITY_MIN));
        }
    }
}

impl Held {
    fn is_replayed_by(&self, attempt: &Attempt) -> bool {
        attempt.request_id.is_some() && self.request_id == attempt.request_id
    }

    fn as_grant(&self, ttl: Ttl, since: Instant, created: bool) -> Grant {
        Grant {
            lock_id: self.lock_id.clone(),
            token: Some(self.token),
            ttl: ttl.duration(),
            since,
            created,
        }
    }
}

//! The state of many resources, and how each operation changes it. It is pure: the time is
//! an argument, and nothing is awaited.

use std::{
    collections::BTreeMap,
    ops::Bound::{Excluded, Included, Unbounded},
};

use leasehold_lock::{
    Attempt, BackendError, Clock, FencingToken, Grant, Instant, Mode, Release, ReleaseOf,
    Renewal, Renewed, ResourceId, Settings, WaiterBudget, inspect::EndCause,
};
use tokio::sync::oneshot;

use super::{
    holders::Holders,
    ledger::Ledger,
    slot::{Slot, Ticket, Waiter},
};

/// The resources that are held. A free resource has no record (trap 20) and no waiters,
/// because a release hands it over in the same step.
#[derive(Debug)]
pub(super) struct Table {
    /// In the order of their names, so that they can be listed in pages.
    slots: BTreeMap<ResourceId, Box<Slot>>,
    pub(super) ledger: Ledger,
    last_ticket: u64,
    waiters_per_resource_max: usize,
}

/// The result of entering: a grant, or a place in the queue.
#[derive(Debug)]
pub(super) enum Entered {
    Granted(Grant),
    Waiting(Ticket, oneshot::Receiver<Result<Grant, BackendError>>),
}

impl Table {
    pub(super) fn new(clock: Clock, settings: &Settings) -> Self {
        Self {
            slots: BTreeMap::new(),
            ledger: Ledger::new(clock, settings.holders_per_resource_max),
            last_ticket: 0,
            waiters_per_resource_max: settings.waiters_per_resource_max,
        }
    }

    /// Applies new limits. Waiters for shared grants that a lower limit kept waiting are
    /// granted.
    pub(super) fn set_limits(&mut self, settings: &Settings, now: Instant) {
        self.waiters_per_resource_max = settings.waiters_per_resource_max;
        let before = self.ledger.holders_per_resource_max;
        self.ledger.holders_per_resource_max = settings.holders_per_resource_max;
        if settings.holders_per_resource_max > before {
            self.slots.values_mut().for_each(|slot| slot.admit(&mut self.ledger, now));
        }
    }

    /// The record of a resource that is held.
    pub(super) fn slot(&self, resource: &ResourceId) -> Option<&Slot> {
        self.slots.get(resource).map(AsRef::as_ref)
    }

    /// The held resources whose name begins with `prefix`, in the order of their names, from
    /// the one after `after` on.
    pub(super) fn held<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&str>,
    ) -> impl Iterator<Item = (&'a ResourceId, &'a Slot)> {
        let after = after.filter(|after| *after >= prefix);
        let from = match after {
            Some(after) => Excluded(after),
            None if prefix.is_empty() => Unbounded,
            None => Included(prefix),
        };
        self.slots
            .range::<str, _>((from, Unbounded))
            .take_while(move |(resource, _)| resource.as_str().starts_with(prefix))
            .map(|(resource, slot)| (resource, slot.as_ref()))
    }

    pub(super) fn records(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.ledger.next_expiry()
    }

    pub(super) fn try_lock(
        &mut self,
        attempt: &Attempt,
        now: Instant,
    ) -> Result<Grant, BackendError> {
        self.expire(now);
        match self.slots.get_mut(&attempt.resource) {
            Some(slot) => slot.try_lock(attempt, &mut self.ledger, now),
            None => self.grant(attempt, now),
        }
    }

    pub(super) fn enter(
        &mut self,
        attempt: &Attempt,
        waiters: &WaiterBudget,
        now: Instant,
    ) -> Result<Entered, BackendError> {
        match self.try_lock(attempt, now) {
            Err(BackendError::Locked { .. } | BackendError::TooManyHolders) => {
                self.wait(attempt, waiters)
            }
            granted => granted.map(Entered::Granted),
        }
    }

    pub(super) fn renew(
        &mut self,
        renewal: &Renewal,
        now: Instant,
    ) -> Result<Renewed, BackendError> {
        self.expire(now);
        let slot = slot_of(&mut self.slots, &renewal.resource)?;
        let held = slot
            .holders
            .with_lock_id(&renewal.lock_id)
            .ok_or(BackendError::NotHeld { held: true })?;
        self.ledger.restart(held, &renewal.resource, renewal.ttl, now);
        let id = Some(held.attempt.into());
        Ok(Renewed { id, ttl: renewal.ttl.duration(), since: now })
    }

    pub(super) fn unlock(
        &mut self,
        release: &Release,
        now: Instant,
    ) -> Result<(), BackendError> {
        self.expire(now);
        let holders = &mut slot_of(&mut self.slots, &release.resource)?.holders;
        let held = match &release.of {
            ReleaseOf::Anyone => {
                self.end(&release.resource, None, EndCause::Forced, now);
                return Ok(());
            }
            ReleaseOf::Id(id) => holders.with_id(*id),
            ReleaseOf::Owner(lock_id) => holders.with_lock_id(lock_id),
            ReleaseOf::Token(lock_id, token) => {
                holders.with_lock_id(lock_id).filter(|held| held.token == *token)
            }
            ReleaseOf::Claim(lock_id, attempt) => holders
                .with_lock_id(lock_id)
                .filter(|held| held.claimed.unwrap_or(held.attempt) == *attempt),
            ReleaseOf::Attempt(attempt) => holders
                .with_lock_id(&attempt.lock_id)
                .filter(|held| held.attempt == attempt.id && held.claimed.is_none()),
        };
        let token = held.ok_or(BackendError::NotHeld { held: true })?.token;
        let cause = match release.of {
            ReleaseOf::Id(_) => EndCause::Forced,
            _ => EndCause::Released,
        };
        self.end(&release.resource, Some(token), cause, now);
        Ok(())
    }

    /// Removes a waiter from its queue, if it is still there.
    pub(super) fn leave(&mut self, resource: &ResourceId, ticket: Ticket, now: Instant) {
        if let Some(slot) = self.slots.get_mut(resource) {
            slot.leave(ticket, &mut self.ledger, now);
        }
    }

    /// Ends every grant whose TTL is over, and hands its resource over.
    pub(super) fn expire(&mut self, now: Instant) {
        while let Some((resource, token)) = self.ledger.expired(now) {
            self.end(&resource, Some(token), EndCause::Expired, now);
        }
    }

    fn grant(&mut self, attempt: &Attempt, now: Instant) -> Result<Grant, BackendError> {
        let held = self.ledger.make(attempt, now)?;
        let grant = held.as_grant(attempt.ttl, now, true);
        self.ledger.enter(&held, &attempt.resource);
        let slot = Slot::new(Holders::new(held, attempt.mode));
        self.slots.insert(attempt.resource.clone(), Box::new(slot));
        Ok(grant)
    }

    fn wait(
        &mut self,
        attempt: &Attempt,
        waiters: &WaiterBudget,
    ) -> Result<Entered, BackendError> {
        let slot = slot_of(&mut self.slots, &attempt.resource)?;
        if attempt.mode == Mode::Shared {
            slot.must_be_new(&attempt.lock_id)?;
        }
        if slot.waiting() >= self.waiters_per_resource_max {
            return Err(BackendError::TooManyWaiters(
                "the resource's limit is reached (maxWaiters)",
            ));
        }
        let waiter_slot = waiters.enter()?;
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        let (turn, granted) = oneshot::channel();
        let since = self.ledger.unix_ms();
        slot.wait(ticket, Waiter::new(attempt.clone(), since, turn, waiter_slot));
        Ok(Entered::Waiting(ticket, granted))
    }

    /// Ends the grant with this token, or all grants of the resource, and hands it over.
    /// Removes the record of a resource that is then free.
    fn end(
        &mut self,
        resource: &ResourceId,
        token: Option<FencingToken>,
        cause: EndCause,
        now: Instant,
    ) {
        let Some(slot) = self.slots.get_mut(resource) else { return };
        if !slot.end(token, cause, &mut self.ledger, now) {
            self.slots.remove(resource);
        }
    }
}

fn slot_of<'a>(
    slots: &'a mut BTreeMap<ResourceId, Box<Slot>>,
    resource: &ResourceId,
) -> Result<&'a mut Slot, BackendError> {
    match slots.get_mut(resource) {
        Some(slot) => Ok(slot),
        None => Err(BackendError::NotHeld { held: false }),
    }
}

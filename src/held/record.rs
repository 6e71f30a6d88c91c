//! One held lock.

use std::{sync::Arc, time::Duration};

use leasehold_lock::{
    Abandoned, AttemptId, FencingToken, GrantId, Instant, LockError, LockId, Mode, Renewed,
    RequestId, ResourceId,
};
use tokio::sync::{OwnedSemaphorePermit, oneshot, watch};

use super::{
    Cause, Change, HoldEnd, MaxHold, Resource,
    belief::{Belief, Sending},
    claims::Claims,
    keeper::Keeper,
    lost::Loss,
    renewal::{Renewal, changed_nothing},
    schedule::RenewalSchedule,
    store::{GrantName, LockStore, Request},
    tally::Tally,
    unlock::Unlock,
};

/// A grant with the parameters of holding it.
#[derive(Debug)]
pub struct Holding {
    /// What is locked.
    pub resource: Resource,
    /// What is locked, as the app names it.
    pub app_resource: ResourceId,
    /// The lock ID of the grant.
    pub lock_id: LockId,
    /// The attempt that got it.
    pub attempt: AttemptId,
    /// The public ID of the grant, if the store has them.
    pub grant_id: Option<GrantId>,
    /// Whether other grants may coexist with it.
    pub mode: Mode,
    /// Its token, if the store has them.
    pub token: Option<FencingToken>,
    /// The caller's secret for retries: a request that has it may find the grant.
    pub request_id: Option<RequestId>,
    /// The TTL granted.
    pub ttl: Duration,
    /// The TTL that was asked for, and that renewals ask for.
    pub asked: Duration,
    /// When the granted request was sent: the TTL counts from here.
    pub since: Instant,
    /// Whether the engine renews it. Otherwise only its app does.
    pub renewed: bool,
    /// For how long it is held at most.
    pub max_hold: MaxHold,
    /// Its permit to be one of the held locks; see [`Engine::place`](super::Engine::place).
    pub place: OwnedSemaphorePermit,
    /// Gets the safe deadline each time that it moves, if somebody wants it.
    pub deadlines: Option<watch::Sender<Instant>>,
}

/// A lost lock, as it is reported to its app.
#[derive(Clone, Debug)]
pub struct LostLock {
    /// The store.
    pub lock_store: Arc<LockStore>,
    /// What was locked, prefixed.
    pub resource: ResourceId,
    /// What was locked, as the app names it.
    pub app_resource: ResourceId,
    /// The lock ID of the grant.
    pub lock_id: LockId,
    /// Its token, if the store has them.
    pub token: Option<FencingToken>,
    /// The cause of the loss.
    pub cause: Cause,
}

/// Identifies a record; not reused.
pub(super) type RecordId = u64;

/// The record of a held lock. Its state is that of three machines, each drawn at its
/// type: [`Renewal`](super::renewal::Renewal) within the schedule, [`Unlock`] and
/// [`Keeper`].
pub(super) struct Record {
    /// Of the first request that got the grant, but for `since` and `request_id`, which are those
    /// of the latest. The schedule has the present TTL and what is known of renewals.
    pub(super) holding: Holding,
    pub(super) claims: Claims,
    pub(super) schedule: RenewalSchedule,
    pub(super) unlock: Unlock,
    pub(super) keeper: Keeper,
    /// How many requests found the lock held here. Dropping the guard of an earlier one
    /// does nothing.
    pub(super) replays: u32,
    /// Its entry in the table's order.
    pub(super) timer: Instant,
    pub(super) tally: Tally,
}

impl Record {
    /// The record of a grant that is held from now on.
    pub(super) fn new(holding: Holding, stream: Option<oneshot::Sender<HoldEnd>>) -> Self {
        let schedule = RenewalSchedule::new(
            holding.since,
            Belief::new(holding.since, holding.ttl, holding.asked),
            holding.renewed,
            holding.max_hold,
            fastrand::f64(),
        );
        Self {
            claims: Claims::of(holding.attempt),
            timer: schedule.next(),
            schedule,
            unlock: Unlock::None,
            keeper: stream.map_or(Keeper::Received, Keeper::Stream),
            replays: 0,
            tally: Tally::begin(&holding.resource.lock_store, holding.since),
            holding,
        }
    }

    /// A repeated request was granted the same lock. Returns false if an earlier one was, whose
    /// answer arrives later: then the lock stays with those who have it.
    pub(super) fn replayed(&mut self, mut replay: Self) -> bool {
        self.claims.extend(&replay.claims);
        let (held, again) = (&mut self.holding, replay.holding);
        if again.since < held.since && !self.keeper.is_nobody() {
            replay.keeper.notify(HoldEnd::Superseded);
            return false;
        }
        held.since = again.since;
        held.request_id = again.request_id.or(held.request_id.take());
        self.replays += 1;
        self.tally.replayed(&replay.tally);
        self.keeper.replayed(replay.keeper);
        if let Some(renewal) = self.schedule.replayed(replay.schedule) {
            renewal.abort();
        }
        self.unlock.renewed();
        true
    }

    /// The renewal under way has ended. Returns how the lock ended, or `None` if it is
    /// still held.
    pub(super) fn renewal_ended(
        &mut self,
        sending: &Sending,
        result: &Result<Renewed, LockError>,
        now: Instant,
    ) -> Option<HoldEnd> {
        match result {
            Ok(renewed) => {
                self.schedule.renewed(sending, *renewed, fastrand::f64());
                self.unlock.renewed();
            }
            Err(LockError::NotFound { .. }) => match self.unlock {
                Unlock::None | Unlock::Failed => {
                    return Some(HoldEnd::Lost(self.schedule.cause_at(now)));
                }
                Unlock::Unknown => return Some(HoldEnd::Unlocked),
                Unlock::UnderWay { .. } => self.schedule.found_nothing(),
            },
            Err(error) => {
                if changed_nothing(error) {
                    self.schedule.belief.did_not_happen(sending);
                }
                self.schedule.failed(now, fastrand::f64());
            }
        }
        None
    }

    /// A renewal by the app, sent at `since`, has succeeded.
    pub(super) fn change(&mut self, change: Change, since: Instant) {
        match change {
            Change::Nothing => {}
            Change::MaxHold(max_hold) => self.schedule.limit(since, max_hold),
            Change::Detach => {
                self.schedule.detach();
                self.keeper.detached();
            }
        }
    }

    /// Cancels the renewal of a lock that no longer needs one.
    pub(super) fn cancel_renewal(&mut self) {
        if let Some(renewal) = self.schedule.renewal.take_task() {
            renewal.abort();
        }
    }

    /// Nobody has the lock any more, but requests in flight may be answered with it. Until then it
    /// only runs out.
    pub(super) fn leave_to_requests(&mut self) {
        self.keeper = Keeper::Nobody;
        let renewal = self.schedule.renewal.take_task();
        self.schedule.detach();
        if let Some(renewal) = renewal {
            renewal.abort();
            // A release waits for its end.
            self.schedule.renewal = Renewal::UnderWay(renewal);
        }
    }

    pub(super) fn name(&self) -> GrantName {
        (self.holding.resource.clone(), self.holding.lock_id.clone())
    }

    /// The request that made the grant, if it has a `request_id`.
    pub(super) fn request(&self) -> Option<Request> {
        Some((self.holding.resource.clone(), self.holding.request_id.clone()?))
    }

    /// What is remembered of its loss.
    pub(super) fn loss(&self, cause: Cause) -> Loss {
        Loss { cause, grant: self.abandoned(), request: self.request() }
    }

    /// The grant, to be released.
    pub(super) fn abandoned(&self) -> Abandoned {
        Abandoned {
            resource: self.holding.resource.id.clone(),
            lock_id: self.holding.lock_id.clone(),
            id: self.holding.grant_id,
            claims: self.claims.iter().collect(),
        }
    }

    pub(super) fn lost(&self, cause: Cause) -> LostLock {
        let Holding { resource, app_resource, lock_id, token, .. } = &self.holding;
        LostLock {
            lock_store: Arc::clone(&resource.lock_store),
            resource: resource.id.clone(),
            app_resource: app_resource.clone(),
            lock_id: lock_id.clone(),
            token: *token,
            cause,
        }
    }
}

//! One held lock.

use std::{sync::Arc, time::Duration};

use leasehold_lock::{
    Abandoned, AttemptId, FencingToken, GrantId, Instant, LockError, LockId, Mode, Renewed,
    RequestId, ResourceId,
};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::{
    Cause, Change, HeldKey, HoldEnd, LockStore, MaxHold, Target,
    belief::{Belief, Sending},
    claims::Claims,
    holder::Holder,
    lost::Loss,
    renewal::changed_nothing,
    schedule::RenewalSchedule,
    store::Request,
    unlock::Unlock,
};

/// A grant with the parameters of holding it.
#[derive(Debug)]
pub struct Holding {
    /// The store that granted it.
    pub store: Arc<dyn LockStore>,
    /// What is locked, prefixed.
    pub resource: ResourceId,
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
}

/// A lost lock, as it is reported to its app.
#[derive(Clone, Debug)]
pub struct LostLock {
    /// The store's name.
    pub store: Arc<str>,
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
/// [`Holder`].
pub(super) struct Record {
    pub(super) store: Arc<dyn LockStore>,
    pub(super) resource: ResourceId,
    pub(super) app_resource: ResourceId,
    pub(super) lock_id: LockId,
    pub(super) claims: Claims,
    pub(super) grant_id: Option<GrantId>,
    pub(super) mode: Mode,
    pub(super) token: Option<FencingToken>,
    pub(super) request_id: Option<RequestId>,
    /// When the latest request that got the grant was sent.
    granted: Instant,
    pub(super) schedule: RenewalSchedule,
    pub(super) unlock: Unlock,
    pub(super) holder: Holder,
    /// How many requests found the lock held here. Dropping the guard of an earlier one
    /// does nothing.
    pub(super) replays: u32,
    /// Its entry in the table's order.
    pub(super) timer: Instant,
    _place: OwnedSemaphorePermit,
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
            store: holding.store,
            resource: holding.resource,
            app_resource: holding.app_resource,
            lock_id: holding.lock_id,
            claims: Claims::of(holding.attempt),
            grant_id: holding.grant_id,
            mode: holding.mode,
            token: holding.token,
            request_id: holding.request_id,
            granted: holding.since,
            timer: schedule.next(),
            schedule,
            unlock: Unlock::None,
            holder: stream.map_or(Holder::Received, Holder::Stream),
            replays: 0,
            _place: holding.place,
        }
    }

    /// A repeated request was granted the same lock. Returns false if an earlier one was, whose
    /// answer arrives later: then the lock stays with those who have it.
    pub(super) fn replayed(&mut self, mut replay: Self) -> bool {
        self.claims.extend(&replay.claims);
        if replay.granted < self.granted && !self.holder.is_nobody() {
            replay.holder.notify(HoldEnd::Superseded);
            return false;
        }
        self.granted = replay.granted;
        self.replays += 1;
        self.holder.replayed(replay.holder);
        if let Some(renewal) = self.schedule.replayed(replay.schedule) {
            renewal.abort();
        }
        self.unlock.renewed();
        self.request_id = replay.request_id.or(self.request_id.take());
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
                    self.schedule.did_not_happen(sending);
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
                self.holder.detached();
            }
        }
    }

    /// Cancels the renewal of a lock that no longer needs one.
    pub(super) fn cancel_renewal(&mut self) {
        if let Some(renewal) = self.schedule.take_task() {
            renewal.abort();
        }
    }

    /// Nobody has the lock any more, but requests in flight may be answered with it. Until then it
    /// only runs out.
    pub(super) fn leave_to_requests(&mut self) {
        self.holder = Holder::Nobody;
        let renewal = self.schedule.take_task();
        self.schedule.detach();
        if let Some(renewal) = renewal {
            renewal.abort();
            // A release waits for its end.
            self.schedule.start(renewal);
        }
    }

    pub(super) fn key(&self) -> HeldKey {
        HeldKey { store: Arc::clone(self.store.name()), resource: self.resource.clone() }
    }

    /// The store, and the name there, with which it was acquired.
    pub(super) fn target(&self) -> Target {
        Target { store: Arc::clone(&self.store), resource: self.resource.clone() }
    }

    /// The request that made the grant, if it has a `request_id`.
    pub(super) fn request(&self) -> Option<Request> {
        Some((self.key(), self.request_id.clone()?))
    }

    /// What is remembered of its loss.
    pub(super) fn loss(&self, cause: Cause) -> Loss {
        Loss { cause, grant: self.abandoned(), request: self.request() }
    }

    /// The grant, to be released.
    pub(super) fn abandoned(&self) -> Abandoned {
        Abandoned {
            resource: self.resource.clone(),
            lock_id: self.lock_id.clone(),
            id: self.grant_id,
            claims: self.claims.iter().collect(),
            ttl: self.schedule.belief().ttl(),
        }
    }

    pub(super) fn lost(&self, cause: Cause) -> LostLock {
        LostLock {
            store: Arc::clone(self.store.name()),
            resource: self.resource.clone(),
            app_resource: self.app_resource.clone(),
            lock_id: self.lock_id.clone(),
            token: self.token,
            cause,
        }
    }
}

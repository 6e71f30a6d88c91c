//! One held lock.

use std::{sync::Arc, time::Duration};

use futures_util::{
    FutureExt as _,
    future::{BoxFuture, Shared, ready},
};
use tokio::{
    sync::{OwnedSemaphorePermit, oneshot},
    task::JoinHandle,
    time::Instant,
};

use super::{
    Cause, Engine, HeldKey, LockStore, MaxHold, Target, release::join,
    schedule::RenewalSchedule,
};
use crate::lock::{FencingToken, LockId, RequestId, ResourceId};

/// A grant, as it is handed to the engine.
#[derive(Debug)]
pub struct Holding {
    /// Through which store it was acquired.
    pub store: Arc<dyn LockStore>,
    /// What is locked, prefixed.
    pub resource: ResourceId,
    /// What is locked, as the app names it.
    pub app_resource: ResourceId,
    /// The grant.
    pub lock_id: LockId,
    /// Its token, if the store has them.
    pub token: Option<FencingToken>,
    /// The caller's secret for retries: a request that has it may find the grant.
    pub request_id: Option<RequestId>,
    /// The TTL granted.
    pub ttl: Duration,
    /// The TTL that was asked for, and that renewals ask for.
    pub asked: Duration,
    /// When the operation was sent from which the TTL counts.
    pub since: Instant,
    /// Whether it is renewed here.
    pub renewed: bool,
    /// After how long it is released whatever the app does.
    pub max_hold: MaxHold,
    /// Its place among the held locks.
    pub place: OwnedSemaphorePermit,
}

/// How a lock that was held ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The holder unlocked it.
    Unlocked,
    /// It was lost.
    Lost(Cause),
    /// A repeated request took it over.
    Superseded,
}

/// A lock that its holder must no longer believe in, as the app is told.
#[derive(Clone, Debug)]
pub struct LostLock {
    /// The store's name.
    pub store: Arc<str>,
    /// What was locked, prefixed.
    pub resource: ResourceId,
    /// What was locked, as the app names it.
    pub app_resource: ResourceId,
    /// The grant.
    pub lock_id: LockId,
    /// Its token, if the store has them.
    pub token: Option<FencingToken>,
    /// Why.
    pub cause: Cause,
}

/// Ends when a cancelled renewal has.
pub(super) type RenewalEnd = Shared<BoxFuture<'static, ()>>;

/// Names a record for as long as it lives; never used again.
pub(super) type RecordId = u64;

/// Everything that is kept of a held lock.
pub(super) struct Record {
    pub(super) store: Arc<dyn LockStore>,
    pub(super) resource: ResourceId,
    pub(super) app_resource: ResourceId,
    pub(super) lock_id: LockId,
    pub(super) token: Option<FencingToken>,
    pub(super) request_id: Option<RequestId>,
    pub(super) schedule: RenewalSchedule,
    /// Whether renewals are ours to do.
    pub(super) renewed: bool,
    /// The renewal under way: at most one (trap 11).
    pub(super) renewal: Option<JoinHandle<()>>,
    /// The end of a renewal that was cancelled: every unlock waits for it.
    ending: Option<RenewalEnd>,
    /// Counts renewals, so that the end of one that was given up is ignored.
    pub(super) run: u32,
    /// Its entry in the table's order.
    pub(super) timer: Instant,
    /// Its entry in its lane's queue.
    pub(super) queued: Option<Instant>,
    /// Unlocks under way.
    pub(super) unlocks: u32,
    /// Whether an earlier unlock may have happened, so that finding nothing
    /// means that it did.
    pub(super) unlock_unsure: bool,
    /// Tells the stream whose life it is.
    pub(super) stream: Option<oneshot::Sender<Ended>>,
    /// Counts the streams that it has been the life of.
    pub(super) epoch: u32,
    /// Whether a caller without a stream received it: no later answer that is
    /// not written ends it.
    pub(super) received: bool,
    /// Whether it was found, not made, by the request that brought it here: then
    /// it is not for this process to release.
    pub(super) found: bool,
    pub(super) _place: OwnedSemaphorePermit,
}

impl Record {
    /// The record of a grant that is held from now on.
    pub(super) fn new(holding: Holding, stream: Option<oneshot::Sender<Ended>>) -> Self {
        let schedule = RenewalSchedule::new(
            holding.since,
            holding.ttl,
            holding.asked,
            holding.renewed,
            holding.max_hold,
            fastrand::f64(),
        );
        Self {
            store: holding.store,
            resource: holding.resource,
            app_resource: holding.app_resource,
            lock_id: holding.lock_id,
            token: holding.token,
            request_id: holding.request_id,
            schedule,
            renewed: holding.renewed,
            renewal: None,
            ending: None,
            run: 0,
            timer: holding.since,
            queued: None,
            unlocks: 0,
            unlock_unsure: false,
            stream,
            epoch: 0,
            received: false,
            found: false,
            _place: holding.place,
        }
    }

    /// Cancels the renewal under way; what is returned ends when nothing of it
    /// is left, also for those that ask later.
    pub(super) fn end_renewal(&mut self) -> RenewalEnd {
        if let Some(renewal) = self.renewal.take() {
            self.ending = Some(join(Some(renewal)).boxed().shared());
        }
        self.ending.clone().unwrap_or_else(|| ready(()).boxed().shared())
    }

    /// An unlock has its answer; whether others are under way.
    pub(super) fn unlock_has_ended(&mut self) -> bool {
        self.unlocks = self.unlocks.saturating_sub(1);
        self.unlocks > 0
    }

    /// Cancels the renewal of a lock that needs none any more.
    pub(super) fn give_up(&mut self) {
        self.run += 1;
        if let Some(renewal) = self.renewal.take() {
            renewal.abort();
        }
    }

    pub(super) fn key(&self) -> HeldKey {
        HeldKey { store: Arc::clone(self.store.name()), resource: self.app_resource.clone() }
    }

    /// Where it is locked: through the store, and under the name, with which it
    /// was taken.
    pub(super) fn target(&self) -> Target {
        Target { store: Arc::clone(&self.store), resource: self.resource.clone() }
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

    pub(super) fn tell_stream(&mut self, ended: Ended) -> bool {
        self.stream.take().is_some_and(|stream| stream.send(ended).is_ok())
    }
}

/// Releases a lock when dropped: the life of a stream, or of an answer that is
/// not written yet.
#[derive(Debug)]
pub struct HeldGuard {
    pub(super) engine: Engine,
    /// Its share in the record: a later stream's is another.
    pub(super) share: Option<(RecordId, u32)>,
}

impl HeldGuard {
    /// The same, of a grant that an earlier request made. If it is dropped, the
    /// lock stays with who received it, and is left to its TTL if that is not
    /// known here.
    #[must_use]
    pub fn found(self) -> Self {
        if let Some((id, 0)) = self.share
            && let Some(record) = self.engine.table().get_mut(id)
        {
            record.found = true;
        }
        self
    }

    /// Leaves the lock held.
    pub fn keep(mut self) {
        if let Some((id, _)) = self.share.take() {
            self.engine.received(id);
        }
    }
}

impl Drop for HeldGuard {
    fn drop(&mut self) {
        if let Some((id, epoch)) = self.share {
            self.engine.abandon(id, epoch);
        }
    }
}

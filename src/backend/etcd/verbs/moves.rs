//! Moves live grants to other leases.
//!
//! After an election the leases of the term before are not to be trusted
//! ([`crate::backend::etcd::client::terms`]). What they hold lives on, and renewals keep them alive, but each
//! grant is moved to a new lease in the background. A grant is sure to live until the
//! end that it had when the former leader last heard of it, so those whose end is
//! nearest come first, and a renewal that comes later than that moves it itself.

use std::{sync::Arc, time::Duration};

use etcd_client::KeyValue;
use futures_util::{StreamExt as _, stream::FuturesUnordered};
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep, timeout_at},
};

use crate::{
    backend::etcd::{
        commit::op::OpError,
        core::Core,
        lease::grants::{LocalGrant, ToMove},
        record::Record,
    },
    lock::{LockId, Renewed, ResourceId},
};

/// Moves at the same time. Each needs a lease, of which few are granted at once, and
/// acquisitions are to get theirs too.
pub(crate) const MOVING_MAX: usize = 16;
/// How many grants are chosen at a time.
const CHOSEN_MAX: usize = 4_096;
/// Before another try when all grants were in use.
const IN_USE_DELAY: Duration = Duration::from_millis(50);
/// Before another try when nothing could be moved.
const FAILED_DELAY: Duration = Duration::from_secs(1);

/// A grant's key, as it was read.
pub(crate) struct Held<'a> {
    pub(crate) resource: &'a ResourceId,
    pub(crate) lock_id: &'a LockId,
    pub(crate) pair: &'a KeyValue,
    pub(crate) record: Record,
    pub(crate) token: u64,
}

impl Held<'_> {
    pub(crate) fn lease(&self) -> i64 {
        self.pair.lease()
    }
}

/// What a move came to.
pub(crate) enum Moved {
    /// The grant lives under a lease of this process's, with its whole TTL.
    To(Renewed),
    /// The key was not any more as it was read.
    Changed,
}

/// Why a grant was not moved, as far as known.
pub(crate) enum NotMoved {
    /// It certainly was not.
    Not(Arc<str>),
    /// The answer was lost.
    Unknown(Box<Unsettled>),
}

/// A move whose outcome is unknown.
pub(crate) struct Unsettled {
    pub(crate) why: Arc<str>,
    /// The lease that the key leaves.
    left: i64,
    /// Before it was sent.
    asked: Instant,
    /// The grant, if it was moved.
    grant: LocalGrant,
}

/// What became of a move in the background.
enum Tried {
    /// The grant was moved, or has ended, or is not this process's any more.
    Done,
    /// Somebody else has its turn, and perhaps moves it.
    InUse,
    /// It is still to be moved.
    Failed,
}

/// Moves grants whenever the term has changed.
pub(crate) async fn keep(core: Arc<Core>) {
    loop {
        core.connection.terms().changed().await;
        core.move_all().await;
    }
}

impl Core {
    /// Moves all grants of earlier terms.
    async fn move_all(&self) {
        loop {
            let chosen = self.grants.to_move(self.connection.era().term, CHOSEN_MAX);
            if chosen.is_empty() {
                return;
            }
            let mut chosen = chosen.into_iter();
            let mut moving: FuturesUnordered<_> =
                chosen.by_ref().take(MOVING_MAX).map(|grant| self.move_one(grant)).collect();
            let (mut done, mut failed) = (0, 0);
            while let Some(tried) = moving.next().await {
                match tried {
                    Tried::Done => done += 1,
                    Tried::Failed => failed += 1,
                    Tried::InUse => {}
                }
                // If nothing can be moved (the quota is exceeded, say), the rest waits.
                if done > 0 || failed < MOVING_MAX {
                    moving.extend(chosen.next().map(|grant| self.move_one(grant)));
                }
            }
            if done == 0 {
                sleep(if failed > 0 { FAILED_DELAY } else { IN_USE_DELAY }).await;
            }
        }
    }

    /// Moves one, unless it is in use.
    async fn move_one(&self, grant: ToMove) -> Tried {
        let Some(_turn) = self.turns.try_take(&grant.resource) else { return Tried::InUse };
        let until = self.step_until();
        let mut unsettled: Option<Box<Unsettled>> = None;
        loop {
            let Some(known) = self.grants.named(&grant.resource, &grant.lock_id) else {
                return Tried::Done;
            };
            let Ok(pair) = self.holder(&grant.resource, until).await else {
                if unsettled.is_some() {
                    self.lose_track(&grant.resource, known.token);
                }
                return Tried::Failed;
            };
            let Some(held) = Held::of(&grant.resource, pair.as_ref(), &grant.lock_id) else {
                self.ended_elsewhere(&grant.resource, known.token);
                return Tried::Done;
            };
            if unsettled.as_deref().is_some_and(|lost| self.settled(&held, lost).is_some()) {
                return Tried::Done;
            }
            if self.known(&held).is_none() {
                // What is there is another grant of the same lock ID, perhaps one that a
                // snapshot brought back.
                self.ended_elsewhere(&grant.resource, known.token);
                return Tried::Done;
            }
            match self.move_soon(&held, until).await {
                Ok(Moved::To(_)) => return Tried::Done,
                Ok(Moved::Changed) => unsettled = None,
                Err(NotMoved::Unknown(lost)) => unsettled = Some(lost),
                Err(NotMoved::Not(_)) => {
                    if unsettled.is_some() {
                        self.lose_track(&grant.resource, known.token);
                    }
                    return Tried::Failed;
                }
            }
        }
    }

    /// It is not known under which of two leases a grant is, or will be: the next
    /// renewal finds out.
    pub(crate) fn lose_track(&self, resource: &ResourceId, token: u64) {
        self.grants.remove(resource, token);
    }

    /// Moves a grant to a lease of the same TTL, when it is its turn among those that
    /// are moved.
    pub(crate) async fn move_soon(
        &self,
        held: &Held<'_>,
        until: Instant,
    ) -> Result<Moved, NotMoved> {
        let Ok(_place) = timeout_at(until, self.moving.acquire()).await else {
            return Err(NotMoved::Not("too many grants are to be moved".into()));
        };
        self.move_key(held, held.record.lease_ttl_s, until).await
    }

    /// Writes the holder's key under another lease, of `asked_s` seconds.
    pub(crate) async fn move_key(
        &self,
        held: &Held<'_>,
        asked_s: u64,
        until: Instant,
    ) -> Result<Moved, NotMoved> {
        loop {
            let lease = self.leases.take_another(asked_s, until).await;
            let lease = lease.map_err(|failure| NotMoved::Not(Arc::clone(failure.why())))?;
            let asked = Instant::now();
            let value = held.record.with_ttl(asked_s);
            let op = self.holder_rewrite(held.resource, held.pair, &value, &lease, until);
            let result = self.commit(op).await;
            let term = self.connection.era().term;
            let mut grant = LocalGrant::new(held.lock_id.clone(), held.token, lease, term);
            match result {
                Ok(reply) if reply.succeeded => {
                    grant.written = Some(reply.revision);
                    self.move_to_lease(held.resource, held.lease(), grant);
                    let renewed = Renewed { ttl: lease.grant_ttl(), since: reply.sent };
                    return Ok(Moved::To(renewed));
                }
                Ok(_) => {
                    self.leases.give(lease);
                    return Ok(Moved::Changed);
                }
                Err(OpError::Unknown(why) | OpError::OutOfSpace(why)) => {
                    let unsettled = Unsettled { why, left: held.lease(), asked, grant };
                    return Err(NotMoved::Unknown(Box::new(unsettled)));
                }
                Err(error) => self
                    .not_written(lease, &error, until)
                    .map_err(|_| NotMoved::Not(error.why()))?,
            }
        }
    }

    /// If the key is under the lease that it was to be moved to, the move was carried
    /// out.
    pub(crate) fn settled(&self, held: &Held<'_>, unsettled: &Unsettled) -> Option<Renewed> {
        let lease = unsettled.grant.lease;
        if lease.id != held.lease() {
            return None;
        }
        let written =
            Some(crate::backend::etcd::verbs::acquire::revision(held.pair.mod_revision()));
        let grant = LocalGrant { written, ..unsettled.grant.clone() };
        self.move_to_lease(held.resource, unsettled.left, grant);
        Some(Renewed { ttl: lease.grant_ttl(), since: unsettled.asked })
    }

    /// What this process knows of a grant that it has just read. If the key is under
    /// another lease than the one that this process knows of, that one is of no use.
    pub(crate) fn known(&self, held: &Held<'_>) -> Option<LocalGrant> {
        let (known, ended) = self.grants.found(held.resource, held.token, held.lease());
        if let Some(ended) = ended {
            self.leases.revoke_later(ended.lease.id);
        }
        known
    }
}

/// Places for moves.
pub(crate) fn places() -> Semaphore {
    Semaphore::new(MOVING_MAX)
}

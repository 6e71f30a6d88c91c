//! Moves live grants to other leases.
//!
//! After an election, leases of earlier terms cannot be trusted (see `client::terms`). Their
//! grants live on, and renewals keep them alive, but each grant is moved to a new lease in
//! the background. A grant is safe until the end that it had when the former leader last
//! heard of it. So those whose end is nearest are moved first, and a renewal shortly before
//! that end, or after it, moves the grant itself.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use tokio::time::{Instant, sleep, timeout_at};

use crate::{
    backend::etcd::{
        commit::op::OpError,
        core::{Core, MOVING_MAX},
        keys::GrantName,
        lease::{grants::ToMove, local_grant::LocalGrant},
        revision::Revision,
        verbs::held::Held,
    },
    lock::{Renewed, ResourceId},
};

/// How many grants are chosen at a time.
const CHOSEN_MAX: usize = 4_096;
/// The delay before a retry when all grants were locked by others.
const IN_USE_DELAY: Duration = Duration::from_millis(50);
/// The delay before a retry when no grant could be moved.
const FAILED_DELAY: Duration = Duration::from_secs(1);

/// What a move came to.
pub(super) enum Moved {
    /// The grant lies under a lease of this process, and its TTL has started again.
    To(Renewed),
    /// The key had changed since it was read.
    Changed,
}

/// Why a grant was not moved, as far as known.
pub(super) enum NotMoved {
    /// It certainly was not moved.
    Not(Arc<str>),
    /// The answer was lost.
    Unknown(Box<Unsettled>),
}

/// A move whose outcome is unknown. It may still be applied for as long as the key is
/// unchanged.
pub(super) struct Unsettled {
    pub(super) why: Arc<str>,
    /// The revision of the key that it compares.
    compared: Revision,
    /// The lease that the key was under before.
    left: i64,
    /// A time before it was sent.
    asked: Instant,
    /// The grant as it is if it was moved.
    grant: LocalGrant,
}

/// What became of a move in the background.
enum Tried {
    /// The grant was moved, has ended, or was moved by another process.
    Done,
    /// Another task has locked the grant, and perhaps moves it.
    InUse,
    /// It still has to be moved.
    Failed,
}

/// Moves grants whenever the term has changed.
pub(crate) async fn run(core: Arc<Core>) {
    loop {
        core.connection.terms().changed().await;
        core.move_all().await;
    }
}

impl Core {
    /// Moves all grants of earlier terms.
    async fn move_all(&self) {
        loop {
            let chosen = self.grants.to_move(self.connection.term(), CHOSEN_MAX);
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
                // If nothing can be moved (because of the quota, for example), the rest waits.
                if done > 0 || failed < MOVING_MAX {
                    moving.extend(chosen.next().map(|grant| self.move_one(grant)));
                }
            }
            if done == 0 {
                sleep(if failed > 0 { FAILED_DELAY } else { IN_USE_DELAY }).await;
            }
        }
    }

    /// Moves one grant, unless it is locked.
    async fn move_one(&self, grant: ToMove) -> Tried {
        let ToMove { resource, lock_id, .. } = grant;
        let Some(_locked) = self.moved.try_lock((resource.clone(), lock_id.clone())) else {
            return Tried::InUse;
        };
        let until = self.step_until();
        let mut unsettled: Vec<Unsettled> = Vec::new();
        loop {
            let Some(known) = self.grants.named(&resource, &lock_id) else {
                return Tried::Done;
            };
            let Ok(found) = self.find(&resource, &lock_id, Some(&known.name), until).await
            else {
                if !unsettled.is_empty() {
                    self.lose_track(&resource, &known.name, known.token);
                }
                return Tried::Failed;
            };
            if self.settle(&resource, found.grant.as_ref(), &mut unsettled).is_some() {
                return Tried::Done;
            }
            let Some(held) = found.grant else {
                self.ended_elsewhere(&resource, &known.name, known.token);
                return Tried::Done;
            };
            if self.known(&held).is_none() {
                // This is another grant of the same lock ID, perhaps one that a restored
                // snapshot brought back.
                self.ended_elsewhere(&resource, &known.name, known.token);
                return Tried::Done;
            }
            match self.move_soon(&held, until).await {
                Ok(Moved::To(_)) => {
                    self.overtaken(&mut unsettled);
                    return Tried::Done;
                }
                Ok(Moved::Changed) => {}
                Err(NotMoved::Unknown(lost)) => unsettled.push(*lost),
                Err(NotMoved::Not(_)) => {
                    if !unsettled.is_empty() {
                        self.lose_track(&resource, &known.name, known.token);
                    }
                    return Tried::Failed;
                }
            }
        }
    }

    /// Forgets a grant of which it is not known under which of two leases it lies, or will
    /// lie. The next renewal finds out.
    pub(super) fn lose_track(&self, resource: &ResourceId, name: &GrantName, token: Revision) {
        self.grants.remove(resource, name, token);
    }

    /// Moves a grant to a lease of the same TTL, once fewer than the limit are being moved.
    pub(super) async fn move_soon(
        &self,
        held: &Held<'_>,
        until: Instant,
    ) -> Result<Moved, NotMoved> {
        let Ok(_permit) = timeout_at(until, self.moving.acquire()).await else {
            return Err(NotMoved::Not("too many grants are to be moved".into()));
        };
        self.move_key(held, held.record.lease_ttl_s, until).await
    }

    /// Writes a grant's keys under another lease, of `asked_s` seconds.
    pub(super) async fn move_key(
        &self,
        held: &Held<'_>,
        asked_s: u64,
        until: Instant,
    ) -> Result<Moved, NotMoved> {
        loop {
            let lease = self.leases.take_another(asked_s, until).await;
            let lease = lease.map_err(|failure| NotMoved::Not(Arc::clone(failure.why())))?;
            let asked = Instant::now();
            let record = held.record.with_ttl(asked_s);
            let op = held.rewrite_op(&record, &lease, until);
            let result = self.committer.commit(op).await;
            let term = self.connection.term();
            let mut grant = LocalGrant::new(held.name.clone(), held.token, lease, term);
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
                    let compared = Revision::from_etcd(held.pair.mod_revision());
                    let left = held.lease();
                    let unsettled = Unsettled { why, compared, left, asked, grant };
                    return Err(NotMoved::Unknown(Box::new(unsettled)));
                }
                Err(error) => {
                    if !self.may_write_again(lease, &error) || Instant::now() >= until {
                        return Err(NotMoved::Not(error.why()));
                    }
                }
            }
        }
    }

    /// Settles the moves of unknown outcome that the key decides, which was read since. Once
    /// its revision is not the one compared, a move was carried out, and the key lies under
    /// its lease, or it never will be, and that lease is revoked.
    pub(super) fn settle(
        &self,
        resource: &ResourceId,
        found: Option<&Held<'_>>,
        unsettled: &mut Vec<Unsettled>,
    ) -> Option<Renewed> {
        let at = found.map(|held| Revision::from_etcd(held.pair.mod_revision()));
        let lease = found.map_or(0, Held::lease);
        let mut renewed = None;
        for lost in unsettled.extract_if(.., |lost| Some(lost.compared) != at) {
            if lost.grant.lease.id != lease {
                self.leases.revoke_later(lost.grant.lease.id);
                continue;
            }
            renewed = Some(Renewed { ttl: lost.grant.lease.grant_ttl(), since: lost.asked });
            let grant = LocalGrant { written: at, ..lost.grant };
            self.move_to_lease(resource, lost.left, grant);
        }
        renewed
    }

    /// Revokes the leases of moves of unknown outcome, after another move has changed the key:
    /// they will not be carried out any more.
    pub(super) fn overtaken(&self, unsettled: &mut Vec<Unsettled>) {
        for lost in unsettled.drain(..) {
            self.leases.revoke_later(lost.grant.lease.id);
        }
    }

    /// What this process knows of a grant that it has just read. If it knows the grant under
    /// another lease, that lease is revoked.
    pub(super) fn known(&self, held: &Held<'_>) -> Option<LocalGrant> {
        let (known, ended) =
            self.grants.found(held.resource, &held.name, held.token, held.lease());
        if let Some(ended) = ended {
            self.leases.revoke_later(ended.lease.id);
        }
        known
    }
}

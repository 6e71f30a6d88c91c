//! Moves live grants to other leases.
//!
//! After an election, leases of earlier terms cannot be trusted (see `client::terms`). A
//! grant is safe until the end that it had when the former leader last heard of it. Nothing
//! reports a later end before the grant lies under a lease of the new term: a renewal moves
//! it, and a grant that was written after its lease's term is renewed at once.

use std::sync::Arc;

use tokio::time::Instant;

use crate::{
    backend::etcd::{
        commit::op::OpError,
        core::{Core, Failed},
        keys::GrantName,
        lease::{local_grant::LocalGrant, pool::Lease},
        revision::Revision,
        verbs::held::Held,
    },
    lock::{Attempt, BackendError, Grant, Renewal, Renewed, ResourceId},
};

/// What a move came to.
pub(super) enum Moved {
    /// The grant lies under a lease of this process, and its TTL has started again.
    To(Renewed),
    /// The key is to be read again: it had changed since it was read, or it was moved to a
    /// lease of an earlier term.
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

impl Core {
    /// Whether a lease was granted in the current term.
    pub(super) fn is_of_this_term(&self, lease: &Lease) -> bool {
        lease.origin.term == self.connection.term()
    }

    /// Renews a new grant if it was written after the term of its lease, which may have been
    /// kept alive by the new leader only.
    pub(super) async fn secure(
        &self,
        attempt: &Attempt,
        grant: Grant,
        lease: &Lease,
        until: Instant,
    ) -> Result<Grant, Failed> {
        if self.is_of_this_term(lease) {
            return Ok(grant);
        }
        let renewal = Renewal {
            resource: attempt.resource.clone(),
            lock_id: grant.lock_id.clone(),
            ttl: attempt.ttl,
        };
        match Box::pin(self.renew(&renewal, until)).await {
            Ok(Renewed { ttl, since, .. }) => Ok(Grant { ttl, since, ..grant }),
            Err(_) => {
                let why = "etcd has elected a leader, and the grant could not be moved";
                Err(BackendError::Unknown(why.into()).into())
            }
        }
    }

    /// Forgets a grant of which it is not known under which of two leases it lies, or will
    /// lie. The next renewal finds out.
    pub(super) fn lose_track(&self, resource: &ResourceId, name: &GrantName, token: Revision) {
        self.grants.remove(resource, name, token);
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
            let mut grant = LocalGrant::new(held.name.clone(), held.token, lease);
            match result {
                Ok(reply) if reply.succeeded => {
                    grant.written = Some(reply.revision);
                    self.move_to_lease(held.resource, held.lease(), grant);
                    if !self.is_of_this_term(&lease) {
                        return Ok(Moved::Changed);
                    }
                    let id = held.record.id();
                    let renewed = Renewed { id, ttl: lease.grant_ttl(), since: reply.sent };
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
            if self.is_of_this_term(&lost.grant.lease) {
                let id = found.and_then(|held| held.record.id());
                let ttl = lost.grant.lease.grant_ttl();
                renewed = Some(Renewed { id, ttl, since: lost.asked });
            }
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

//! Moves live grants to other leases.
//!
//! After an election, leases of earlier terms cannot be trusted (see `client::terms`). A
//! grant is safe until the end that it had when the former leader last heard of it. Nothing
//! reports a later end before the grant lies under a lease of the new term: a renewal moves
//! it, and a grant that was written after its lease's term is renewed at once.

use std::sync::Arc;

use leasehold_lock::{self as lock, Attempt, BackendError, Grant, Renewal, Renewed};
use tokio::time::Instant;

use crate::{
    commit::op::OpError,
    core::{Core, Failed},
    lease::{
        local_grant::LocalGrant,
        pool::Lease,
        taken::{Move, Taken},
    },
    record::Record,
    revision::Revision,
    verbs::held::Held,
};

/// What a move came to.
pub(super) enum Moved {
    /// The grant lies under this lease of this process, and its TTL has started again then.
    To(Lease, lock::Instant),
    /// The key is to be read again: it had changed since it was read, or it was moved to a
    /// lease of an earlier term.
    Changed,
}

/// Why a grant was not moved, as far as known.
pub(super) enum NotMoved {
    /// It certainly was not moved.
    Not(Arc<str>),
    /// An answer was lost. What becomes of the leases is settled in the background.
    Unknown(Arc<str>),
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

    /// Writes a grant's keys under another lease, with this record, which has its TTL. If the
    /// answer is lost, the key says what became of the write; while it is unchanged, another
    /// write takes the place of the lost one. The grant must be locked.
    pub(super) async fn move_key(
        &self,
        held: &Held<'_>,
        record: &Record,
        until: Instant,
    ) -> Result<Moved, NotMoved> {
        let compared = Revision::from_etcd(held.pair.mod_revision());
        let begun = Move { key: held.keys.record().into(), compared, from: held.lease() };
        // The leases of the writes whose answers were lost, and when each was asked for.
        let mut lost: Vec<(Taken, lock::Instant)> = Vec::new();
        loop {
            let lease = self.leases.take_another(record.lease_ttl_s, until).await;
            let mut lease = match lease {
                Ok(lease) => lease,
                Err(failure) => return Err(self.not_moved(held, failure.why(), &lost)),
            };
            let asked = lock::Instant::now();
            let op = held.rewrite_op(record, &lease, until);
            lease.begin_move(begun.clone());
            let error = match self.committer.commit(op).await {
                Ok(reply) if reply.succeeded => {
                    lost.into_iter().for_each(|(lease, _)| lease.revoke());
                    return Ok(self.moved_to(held, lease, reply.revision, reply.sent));
                }
                Ok(_) if lost.is_empty() => {
                    lease.unused();
                    return Ok(Moved::Changed);
                }
                Ok(_) => {
                    lease.unused();
                    OpError::Unknown("the key has changed".into())
                }
                Err(error @ (OpError::Unknown(_) | OpError::OutOfSpace(_))) => {
                    lost.push((lease, asked));
                    error
                }
                Err(error) => {
                    if self.may_write_again(lease, &error) && Instant::now() < until {
                        continue;
                    }
                    return Err(self.not_moved(held, &error.why(), &lost));
                }
            };
            let Ok(found) = self.reads.key(held.keys.record().to_owned(), until).await else {
                return Err(self.not_moved(held, &error.why(), &lost));
            };
            let at = found.as_ref().map(|pair| Revision::from_etcd(pair.mod_revision()));
            if at == Some(compared) {
                // That write was not applied, and is not on its way any more.
                if matches!(error, OpError::OutOfSpace(_)) {
                    lost.pop().into_iter().for_each(|(lease, _)| lease.unused());
                } else if Instant::now() < until {
                    continue;
                }
                return Err(self.not_moved(held, &error.why(), &lost));
            }
            // Another one will not be applied any more. It may have been before the key was
            // written by somebody else, who then revokes its lease.
            let mut moved = Moved::Changed;
            for (lease, asked) in lost {
                match (&found, at) {
                    (Some(pair), Some(at)) if pair.lease() == lease.id => {
                        moved = self.moved_to(held, lease, at, asked);
                    }
                    _ => lease.revoke(),
                }
            }
            return Ok(moved);
        }
    }

    /// The outcome of a move that could not be completed, after which those of these leases
    /// are settled in the background.
    fn not_moved(
        &self,
        held: &Held<'_>,
        why: &Arc<str>,
        lost: &[(Taken, lock::Instant)],
    ) -> NotMoved {
        if lost.is_empty() {
            return NotMoved::Not(Arc::clone(why));
        }
        self.grants.doubt(held.resource, &held.name, held.token);
        NotMoved::Unknown(Arc::clone(why))
    }

    /// Remembers that a grant was moved to a lease, at this revision.
    fn moved_to(
        &self,
        held: &Held<'_>,
        lease: Taken,
        written: Revision,
        since: lock::Instant,
    ) -> Moved {
        let grant = LocalGrant {
            written: Some(written),
            ..LocalGrant::new(held.name.clone(), held.token, *lease)
        };
        let forgotten = self.grants.moved(held.resource, grant);
        if forgotten.as_ref().is_some_and(|forgotten| forgotten.lease.id == lease.id) {
            // It has ended meanwhile, so the lease is not marked as used.
            self.freed(held.lease(), None);
            return Moved::Changed;
        }
        let lease = lease.used();
        self.freed(held.lease(), forgotten);
        if self.is_of_this_term(&lease) { Moved::To(lease, since) } else { Moved::Changed }
    }

    /// Handles the lease that the key of a grant lay under until this process deleted the key
    /// or moved it. `known` is the grant as this process knew it. Its own lease is kept for
    /// reuse. Any other is revoked: the process that made the grant does not reuse it, because
    /// it would have to delete or move the key first.
    pub(super) fn freed(&self, lease: i64, known: Option<LocalGrant>) {
        match known {
            Some(grant) if grant.lease.id == lease => self.leases.give(grant.lease),
            known => {
                self.leases.revoke_later(lease);
                if let Some(grant) = known {
                    self.leases.revoke_later(grant.lease.id);
                }
            }
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

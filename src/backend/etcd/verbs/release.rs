//! UNLOCK: by owner, by force, or of an attempt.

use std::sync::Arc;

use etcd_client::KeyValue;
use tokio::time::{Instant, sleep_until};

use crate::{
    backend::etcd::{
        client::failure::Failure,
        commit::op::{Op, OpError},
        core::Core,
        lease::grants::LocalGrant,
        record::Record,
        revision::Revision,
    },
    lock::{Attempt, BackendError, LockId, Release, ReleaseOf, ResourceId},
};

/// The delete of a holder's key.
#[derive(Debug)]
struct Deletion {
    /// The token of the grant that it ends.
    token: Revision,
    /// The lease of the key; 0 for none.
    lease: i64,
    op: Op,
}

impl Deletion {
    /// Of the key as this process wrote it, if it knows the revision. Nothing needs to be
    /// read first. The lease is compared too, because a restored data set counts its
    /// revisions anew.
    fn of_written(op: Op, key: &str, grant: &LocalGrant) -> Option<Self> {
        let lease = grant.lease.id;
        let op = op.when_written_at(key, grant.written?).when_under(key, lease).delete(key);
        Some(Self { token: grant.token, lease, op })
    }

    /// Of the key as it was read.
    fn of_read(op: Op, key: &str, pair: &KeyValue) -> Self {
        let token = Revision::from_etcd(pair.create_revision());
        let op = op.when_unchanged(key, pair).delete(key);
        Self { token, lease: pair.lease(), op }
    }
}

impl Core {
    /// Ends a grant.
    pub(crate) async fn release(
        &self,
        release: &Release,
        until: Instant,
    ) -> Result<(), BackendError> {
        match &release.of {
            ReleaseOf::Owner(lock_id) => {
                self.release_grant(release, Some(lock_id), until).await
            }
            ReleaseOf::Id(_) => Err(BackendError::Unsupported("it has no INSPECTION".into())),
            ReleaseOf::Anyone => self.release_grant(release, None, until).await,
            ReleaseOf::Attempt(attempt) => self.release_attempt(attempt, until).await,
        }
    }

    /// Ends the grant of this lock ID, or whoever's it is.
    async fn release_grant(
        &self,
        release: &Release,
        lock_id: Option<&LockId>,
        until: Instant,
    ) -> Result<(), BackendError> {
        let resource = &release.resource;
        let key = self.keys.holder(resource);
        // Whether an earlier call, or this one, may have ended the grant already.
        let mut may_have_happened = release.aim.bound().is_some();
        let mut lost: Option<Arc<str>> = None;
        let first_call = !may_have_happened;
        let op = || Op::of_holder(resource, until);
        let mut known = lock_id
            .and_then(|id| self.grants.named(resource, id))
            .and_then(|grant| Deletion::of_written(op(), &key, &grant));
        // The token of the grant that was to be deleted last.
        let mut tried = None;
        loop {
            let deletion = match known.take() {
                Some(known) => known,
                None => {
                    let pair = match Box::pin(self.holder(resource, until)).await {
                        Ok(pair) => pair,
                        Err(failure) => {
                            return Err(self.unread(failure, may_have_happened, lost));
                        }
                    };
                    self.ended_if_replaced(resource, tried.take(), pair.as_ref());
                    match target(pair.as_ref(), lock_id) {
                        Ok(pair) => Deletion::of_read(op(), &key, pair),
                        // The delete whose answer was lost was aimed at an existing grant,
                        // which has ended, as was asked for.
                        Err(_) if lost.is_some() => return Ok(()),
                        Err(not_held) => return Err(not_held),
                    }
                }
            };
            let bound = release.aim.bound_or(deletion.token.0);
            if deletion.token.0 > bound && (lost.is_some() || !first_call) {
                return match lost {
                    Some(_) => Ok(()),
                    None => Err(BackendError::NotHeld { held: true }),
                };
            }
            tried = Some(deletion.token);
            match self.committer.commit(deletion.op).await {
                Ok(reply) if reply.succeeded => {
                    self.deleted(resource, deletion.token, deletion.lease);
                    return Ok(());
                }
                // The key was written or deleted meanwhile; the next read tells.
                Ok(_) => {}
                Err(OpError::Unknown(why) | OpError::OutOfSpace(why)) => {
                    may_have_happened = true;
                    if Instant::now() >= until {
                        return Err(BackendError::Unknown(why));
                    }
                    lost = Some(why);
                }
                Err(error) if may_have_happened => {
                    return Err(BackendError::Unknown(error.why()));
                }
                Err(error) => return Err(BackendError::Unavailable(error.why())),
            }
        }
    }

    fn unread(
        &self,
        failure: Failure,
        may_have_happened: bool,
        lost: Option<Arc<str>>,
    ) -> BackendError {
        match lost {
            Some(why) => BackendError::Unknown(why),
            None if may_have_happened => BackendError::Unknown(failure.why().clone()),
            None => failure.unavailable(),
        }
    }

    /// Ends the grant that an attempt made, once the attempt itself has ended.
    async fn release_attempt(
        &self,
        attempt: &Attempt,
        until: Instant,
    ) -> Result<(), BackendError> {
        if let Some(flight) = self.flights.get(attempt.id) {
            flight.unwanted.cancel();
            tokio::select! {
                biased;
                () = flight.ended.cancelled() => {}
                () = sleep_until(until) => {
                    return Err(BackendError::Unknown("the attempt has not ended yet".into()));
                }
            }
            if flight.left_nothing.is_cancelled() {
                return Ok(());
            }
        }
        let resource = &attempt.resource;
        let key = self.keys.holder(resource);
        let op = || Op::of_holder(resource, until);
        // If nobody has renewed or claimed the grant, its key is as the attempt wrote it.
        let mut known = self
            .grants
            .made_by(resource, attempt.id)
            .and_then(|grant| Deletion::of_written(op(), &key, &grant));
        let mut tried = None;
        loop {
            let deletion = match known.take() {
                Some(known) => known,
                None => {
                    let pair = self.holder(resource, until).await;
                    let pair =
                        pair.map_err(|failure| BackendError::Unknown(failure.why().clone()))?;
                    self.ended_if_replaced(resource, tried.take(), pair.as_ref());
                    match pair.filter(|pair| {
                        Record::decode(pair.value())
                            .is_some_and(|record| record.made_by(attempt.id))
                    }) {
                        None => return Ok(()),
                        Some(pair) => Deletion::of_read(op(), &key, &pair),
                    }
                }
            };
            tried = Some(deletion.token);
            match self.committer.commit(deletion.op).await {
                Ok(reply) if reply.succeeded => {
                    self.deleted(resource, deletion.token, deletion.lease);
                    return Ok(());
                }
                Err(error)
                    if !matches!(error, OpError::Unknown(_) | OpError::OutOfSpace(_)) =>
                {
                    return Err(BackendError::Unknown(error.why()));
                }
                // The key has changed, or the outcome is unknown: read again.
                Ok(_) | Err(_) if Instant::now() < until => {}
                Ok(_) | Err(_) => {
                    return Err(BackendError::Unknown("etcd was too slow to confirm".into()));
                }
            }
        }
    }

    /// Handles a delete that is known to have happened. If the key's lease belongs to this
    /// process, it becomes free; any other lease is revoked.
    fn deleted(&self, resource: &ResourceId, token: Revision, lease_of_key: i64) {
        self.contention.saw(resource, false);
        if let Some(older) = self.grants.remove_older(resource, token) {
            self.leases.revoke_later(older.lease.id);
        }
        match self.grants.remove(resource, token) {
            Some(grant) if grant.lease.id == lease_of_key => self.leases.give(grant.lease),
            known => {
                self.leases.revoke_later(lease_of_key);
                // Another process had moved the key away from this lease.
                if let Some(grant) = known {
                    self.leases.revoke_later(grant.lease.id);
                }
            }
        }
    }

    /// Forgets a grant of this process that was to be deleted, if a later read shows that it
    /// has ended: by the delete, whose answer was lost, or by somebody else. Otherwise its
    /// lease might live for a day. The lease of another process's grant is not touched,
    /// because that process may have reused it by now.
    fn ended_if_replaced(
        &self,
        resource: &ResourceId,
        tried: Option<Revision>,
        found: Option<&KeyValue>,
    ) {
        if let Some(token) = tried
            && found.is_none_or(|pair| Revision::from_etcd(pair.create_revision()) != token)
        {
            self.ended_elsewhere(resource, token);
        }
    }

    /// Forgets a grant of this process that somebody else ended. Its lease is not reused,
    /// because they may be about to revoke it.
    pub(super) fn ended_elsewhere(&self, resource: &ResourceId, token: Revision) {
        if let Some(grant) = self.grants.remove(resource, token) {
            self.leases.revoke_later(grant.lease.id);
        }
    }
}

/// The key to delete, if it is the grant of this lock ID, or if there is no lock ID.
fn target<'a>(
    pair: Option<&'a KeyValue>,
    lock_id: Option<&LockId>,
) -> Result<&'a KeyValue, BackendError> {
    let Some(pair) = pair else { return Err(BackendError::NotHeld { held: false }) };
    let may_end = lock_id.is_none_or(|lock_id| {
        Record::decode(pair.value()).is_some_and(|record| record.is(lock_id))
    });
    if may_end { Ok(pair) } else { Err(BackendError::NotHeld { held: true }) }
}

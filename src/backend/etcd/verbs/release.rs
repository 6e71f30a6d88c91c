//! UNLOCK: by owner, by force, or of an attempt.

use std::sync::Arc;

use etcd_client::{Compare, CompareOp, KeyValue, TxnOp};
use tokio::time::{Instant, sleep_until};

use crate::{
    backend::etcd::{
        client::failure::Failure,
        commit::op::{Op, OpError},
        core::Core,
        lease::grants::LocalGrant,
        record::Record,
        verbs::acquire::{as_etcd, revision},
    },
    lock::{Attempt, BackendError, LockId, Release, ReleaseOf, ResourceId},
};

/// The holder's key as it must still be when it is deleted.
///
/// The revision alone does not tell a key from that of another grant: a data set that
/// was restored from a snapshot counts its revisions anew.
#[derive(Debug)]
struct Expected {
    /// The grant's token.
    token: u64,
    /// The lease of the key; 0 for none.
    lease: i64,
    when: Vec<Compare>,
}

impl Expected {
    /// As this process wrote it, so that nothing need be read first.
    fn written(key: &str, grant: &LocalGrant) -> Option<Self> {
        let (at, lease) = (as_etcd(grant.written?), grant.lease.id);
        let when = vec![
            Compare::mod_revision(key, CompareOp::Equal, at),
            Compare::lease(key, CompareOp::Equal, lease),
        ];
        Some(Self { token: grant.token, lease, when })
    }

    /// As it was read.
    fn read(key: &str, pair: &KeyValue) -> Self {
        let token = revision(pair.create_revision());
        Self { token, lease: pair.lease(), when: unchanged(key, pair) }
    }
}

/// That a key is as it was read. Leases have numbers that come only once, also over a
/// restore; a key without one is somebody else's, and is told by its value.
pub(crate) fn unchanged(key: &str, pair: &KeyValue) -> Vec<Compare> {
    let same = match pair.lease() {
        0 => Compare::value(key, CompareOp::Equal, pair.value()),
        lease => Compare::lease(key, CompareOp::Equal, lease),
    };
    vec![Compare::mod_revision(key, CompareOp::Equal, pair.mod_revision()), same]
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
        // What a try before this call, or in it, may have done.
        let mut may_have_happened = release.aim.bound().is_some();
        let mut lost: Option<Arc<str>> = None;
        let first_call = !may_have_happened;
        let mut known = lock_id
            .and_then(|id| self.grants.named(resource, id))
            .and_then(|grant| Expected::written(&key, &grant));
        // The token of what was to be deleted last.
        let mut tried = None;
        loop {
            let expected = match known.take() {
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
                        Ok(pair) => Expected::read(&key, pair),
                        // The delete whose answer was lost was for a grant that
                        // was there: it is over, as was asked for.
                        Err(_) if lost.is_some() => return Ok(()),
                        Err(not_held) => return Err(not_held),
                    }
                }
            };
            let bound = release.aim.bound_or(expected.token);
            if expected.token > bound && (lost.is_some() || !first_call) {
                return match lost {
                    Some(_) => Ok(()),
                    None => Err(BackendError::NotHeld { held: true }),
                };
            }
            tried = Some(expected.token);
            match self.commit(delete_op(resource, &key, &expected, until)).await {
                Ok(reply) if reply.succeeded => {
                    self.deleted(resource, expected.token, expected.lease);
                    return Ok(());
                }
                // Written or ended meanwhile; reading tells.
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

    /// Ends what an attempt made, after everything that was sent for it.
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
        // Never renewed or claimed: its key is as the attempt wrote it.
        let mut known = self
            .grants
            .made_by(resource, attempt.id)
            .and_then(|grant| Expected::written(&key, &grant));
        let mut tried = None;
        loop {
            let expected = match known.take() {
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
                        Some(pair) => Expected::read(&key, &pair),
                    }
                }
            };
            tried = Some(expected.token);
            match self.commit(delete_op(resource, &key, &expected, until)).await {
                Ok(reply) if reply.succeeded => {
                    self.deleted(resource, expected.token, expected.lease);
                    return Ok(());
                }
                Err(error)
                    if !matches!(error, OpError::Unknown(_) | OpError::OutOfSpace(_)) =>
                {
                    return Err(BackendError::Unknown(error.why()));
                }
                // Changed, or unknown: look again.
                Ok(_) | Err(_) if Instant::now() < until => {}
                Ok(_) | Err(_) => {
                    return Err(BackendError::Unknown("etcd was too slow to confirm".into()));
                }
            }
        }
    }

    /// A delete by this process is known to have happened: the key's lease is free
    /// again if it was this process's own, and any other lease ends.
    fn deleted(&self, resource: &ResourceId, token: u64, lease_of_key: i64) {
        self.grants.saw(resource, false);
        if let Some(older) = self.grants.remove_older(resource, token) {
            self.leases.revoke_later(older.lease.id);
        }
        match self.grants.remove(resource, token) {
            Some(grant) if grant.lease.id == lease_of_key => self.leases.give(grant.lease),
            known => {
                self.leases.revoke_later(lease_of_key);
                // The key was moved from it by another process, so that nobody kept it
                // alive.
                if let Some(grant) = known {
                    self.leases.revoke_later(grant.lease.id);
                }
            }
        }
    }

    /// Forgets a grant of this process's that was to be deleted, if another read shows
    /// that it is over: by the delete, whose answer was lost, or by somebody else. Its
    /// lease may live for a day otherwise. The lease of another process's grant is left
    /// alone, because that process may use it for its next grant by now.
    fn ended_if_replaced(
        &self,
        resource: &ResourceId,
        tried: Option<u64>,
        there: Option<&KeyValue>,
    ) {
        if let Some(token) = tried
            && there.is_none_or(|pair| revision(pair.create_revision()) != token)
        {
            self.ended_elsewhere(resource, token);
        }
    }

    /// A grant of this process's was ended by somebody else, who may be about
    /// to revoke its lease: it is not for reuse.
    pub(crate) fn ended_elsewhere(&self, resource: &ResourceId, token: u64) {
        if let Some(grant) = self.grants.remove(resource, token) {
            self.leases.revoke_later(grant.lease.id);
        }
    }
}

fn delete_op(resource: &ResourceId, key: &str, expected: &Expected, until: Instant) -> Op {
    Op {
        claims: Some(resource.clone()),
        enters: false,
        bytes: 3 * key.len(),
        when: expected.when.clone(),
        then: vec![TxnOp::delete(key, None)],
        otherwise: Vec::new(),
        until,
        lease: None,
    }
}

/// The key of the grant to end, if there is one that may be ended so.
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

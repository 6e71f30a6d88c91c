//! UNLOCK: by owner, by force, or of an attempt.

use etcd_client::{Compare, CompareOp, DeleteOptions, KeyValue, TxnOp};
use tokio::time::{Instant, sleep_until};

use super::{
    acquire::{as_etcd, revision},
    backend::Core,
    failure::Failure,
    grants::LocalGrant,
    op::{Op, OpError, Reply},
    record::Record,
};
use crate::lock::{Attempt, BackendError, LockId, Release, ReleaseOf, ResourceId};

/// What must be so for the holder's key to be deleted.
#[derive(Clone, Copy, Debug)]
enum Expected {
    /// It is this grant's, renewed or not.
    Grant(u64),
    /// It was not written since this revision.
    Unchanged(u64),
    /// It was not written since this process did, under this lease: nothing
    /// need be read to know what is deleted.
    Written { at: u64, lease: i64 },
}

impl Expected {
    fn of(grant: &LocalGrant) -> Self {
        match grant.written {
            Some(at) => Self::Written { at, lease: grant.lease.id },
            None => Self::Grant(grant.token),
        }
    }

    /// The lease of the key that was deleted as expected; 0 for none.
    fn lease(self, reply: &Reply) -> i64 {
        match self {
            Self::Written { lease, .. } => lease,
            Self::Grant(_) | Self::Unchanged(_) => reply.pair(0).map_or(0, KeyValue::lease),
        }
    }
}

impl Core {
    /// Ends a grant.
    pub(super) async fn release(
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
        // What a try before this call, or in it, may have done.
        let mut may_have_happened = release.aim.bound().is_some();
        let mut lost: Option<std::sync::Arc<str>> = None;
        let first_call = !may_have_happened;
        let mut known = lock_id
            .and_then(|id| self.grants.named(resource, id))
            .map(|grant| (grant.token, Expected::of(&grant)));
        let mut changed = None;
        loop {
            let (target, expected) = match known.take() {
                Some(known) => known,
                None => {
                    let pair = match Box::pin(self.holder(resource, until)).await {
                        Ok(pair) => pair,
                        Err(failure) => {
                            return Err(self.unread(failure, may_have_happened, lost));
                        }
                    };
                    self.ended_if_replaced(resource, changed.take(), pair.as_ref());
                    match target(pair.as_ref(), lock_id) {
                        Ok(token) => (token, Expected::Grant(token)),
                        // The delete whose answer was lost was for a grant that
                        // was there: it is over, as was asked for.
                        Err(_) if lost.is_some() => return Ok(()),
                        Err(not_held) => return Err(not_held),
                    }
                }
            };
            let bound = release.aim.bound_or(target);
            if target > bound && (lost.is_some() || !first_call) {
                return match lost {
                    Some(_) => Ok(()),
                    None => Err(BackendError::NotHeld { held: true }),
                };
            }
            match self.commit(self.delete_op(resource, expected, until)).await {
                Ok(reply) if reply.succeeded => {
                    self.deleted(resource, target, expected.lease(&reply));
                    return Ok(());
                }
                // Written or ended by another process; reading tells.
                Ok(_) if matches!(expected, Expected::Written { .. }) => {
                    changed = Some(target);
                }
                Ok(reply) => {
                    self.ended_elsewhere(resource, target);
                    let there = reply.pair(0);
                    match self::target(there, lock_id) {
                        // Another grant has taken its place; without anything
                        // unknown it is the one to end now.
                        Ok(_) if lost.is_none() && first_call && Instant::now() < until => {}
                        _ if lost.is_some() => return Ok(()),
                        _ => return Err(BackendError::NotHeld { held: there.is_some() }),
                    }
                }
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
        lost: Option<std::sync::Arc<str>>,
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
        // Never renewed or claimed: its key is as the attempt wrote it.
        let mut known = self.grants.made_by(resource, attempt.id).map(|grant| grant.token);
        loop {
            let (token, expected) = match known.take() {
                Some(token) => (token, Expected::Unchanged(token)),
                None => {
                    let pair = self.holder(resource, until).await;
                    let pair =
                        pair.map_err(|failure| BackendError::Unknown(failure.why().clone()))?;
                    match pair.filter(|pair| {
                        Record::decode(pair.value())
                            .is_some_and(|record| record.made_by(attempt.id))
                    }) {
                        None => return Ok(()),
                        Some(pair) => (
                            revision(pair.create_revision()),
                            Expected::Unchanged(revision(pair.mod_revision())),
                        ),
                    }
                }
            };
            match self.commit(self.delete_op(resource, expected, until)).await {
                Ok(reply) if reply.succeeded => {
                    self.deleted(resource, token, expected.lease(&reply));
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

    /// A delete by this process is known to have happened: the leases that were
    /// its own are free again, and others end with it.
    fn deleted(&self, resource: &ResourceId, token: u64, lease_of_key: i64) {
        self.grants.saw(resource, false);
        if let Some(older) = self.grants.remove_older(resource, token) {
            self.leases.revoke_later(older.lease.id);
        }
        match self.grants.remove(resource, token) {
            Some(LocalGrant { lease, .. }) => {
                if lease.id != lease_of_key {
                    self.leases.revoke_later(lease_of_key);
                }
                self.leases.give(lease);
            }
            None => self.leases.revoke_later(lease_of_key),
        }
    }

    /// A grant of this process's that was changed: forgotten if it is not the
    /// one that is there now.
    fn ended_if_replaced(
        &self,
        resource: &ResourceId,
        changed: Option<u64>,
        there: Option<&KeyValue>,
    ) {
        if let Some(token) = changed
            && there.is_none_or(|pair| revision(pair.create_revision()) != token)
        {
            self.ended_elsewhere(resource, token);
        }
    }

    /// A grant of this process's was ended by somebody else, who may be about
    /// to revoke its lease: it is not for reuse.
    fn ended_elsewhere(&self, resource: &ResourceId, token: u64) {
        if let Some(grant) = self.grants.remove(resource, token) {
            self.leases.revoke_later(grant.lease.id);
        }
    }

    fn delete_op(&self, resource: &ResourceId, expected: Expected, until: Instant) -> Op {
        let key = self.keys.holder(resource);
        let compare = match expected {
            Expected::Grant(token) => {
                Compare::create_revision(key.clone(), CompareOp::Equal, as_etcd(token))
            }
            Expected::Unchanged(at) | Expected::Written { at, .. } => {
                Compare::mod_revision(key.clone(), CompareOp::Equal, as_etcd(at))
            }
        };
        let (delete, otherwise) = match expected {
            Expected::Written { .. } => (TxnOp::delete(key.clone(), None), Vec::new()),
            Expected::Grant(_) | Expected::Unchanged(_) => (
                TxnOp::delete(key.clone(), Some(DeleteOptions::new().with_prev_key())),
                vec![TxnOp::get(key.clone(), None)],
            ),
        };
        Op {
            claims: Some(resource.clone()),
            bytes: 3 * key.len(),
            when: vec![compare],
            then: vec![delete],
            otherwise,
            until,
            lease: None,
        }
    }
}

/// The token of the grant to end, if there is one that may be ended so.
fn target(pair: Option<&KeyValue>, lock_id: Option<&LockId>) -> Result<u64, BackendError> {
    let Some(pair) = pair else { return Err(BackendError::NotHeld { held: false }) };
    let may_end = lock_id.is_none_or(|lock_id| {
        Record::decode(pair.value()).is_some_and(|record| record.is(lock_id))
    });
    if may_end {
        Ok(revision(pair.create_revision()))
    } else {
        Err(BackendError::NotHeld { held: true })
    }
}

//! UNLOCK: by owner, of one grant by its public ID, or of an attempt. By force: see `force`.

use std::sync::Arc;

use etcd_client::KeyValue;
use leasehold_lock::{
    Attempt, AttemptId, BackendError, GrantId, LockId, Mode, Release, ReleaseOf, ResourceId,
};
use tokio::time::{Instant, sleep_until};

use crate::{
    client::failure::Failure,
    commit::op::{Op, OpError},
    core::Core,
    keys::{GrantKeys, GrantName},
    lease::local_grant::LocalGrant,
    revision::Revision,
    verbs::held::Held,
};

/// What a grant is looked for by.
#[derive(Clone, Copy, Debug)]
enum By<'a> {
    LockId(&'a LockId),
    /// Its lock ID, and the attempt that was the last to get it.
    Claim(&'a LockId, AttemptId),
    /// Its public ID.
    Id(GrantId),
}

/// The delete of a grant's keys.
#[derive(Debug)]
pub(super) struct Deletion {
    /// The grant, if its record could be read.
    pub(super) name: Option<GrantName>,
    /// Its token.
    pub(super) token: Revision,
    /// The lease of its record; 0 for none.
    lease: i64,
    pub(super) op: Op,
}

impl Deletion {
    /// Of the keys as this process wrote them, if it knows the revision. Nothing needs to be
    /// read first. The lease is compared too, because a restored data set counts its
    /// revisions anew.
    pub(super) fn of_written(
        keys: &GrantKeys,
        grant: &LocalGrant,
        until: Instant,
    ) -> Option<Self> {
        let (key, lease) = (keys.record(), grant.lease.id);
        let op = Op::of_grant(keys, until);
        let op = op.when_written_at(key, grant.written?).when_under(key, lease);
        let op = op.delete_grant(keys);
        Some(Self { name: Some(grant.name.clone()), token: grant.token, lease, op })
    }

    /// Of the keys as they were read. `name` is `None` for a record that is not ours.
    pub(super) fn of_read(
        keys: &GrantKeys,
        name: Option<GrantName>,
        pair: &KeyValue,
        until: Instant,
    ) -> Self {
        let token = Revision::from_etcd(pair.create_revision());
        let op = Op::of_grant(keys, until);
        let op = op.when_unchanged(keys.record(), pair).delete_grant(keys);
        Self { name, token, lease: pair.lease(), op }
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
                self.release_grant(release, By::LockId(lock_id), until).await
            }
            ReleaseOf::Claim(lock_id, attempt) => {
                self.release_grant(release, By::Claim(lock_id, *attempt), until).await
            }
            ReleaseOf::Id(id) => self.release_grant(release, By::Id(*id), until).await,
            ReleaseOf::Anyone => self.release_all(release, until).await,
            ReleaseOf::Attempt(attempt) => self.release_attempt(attempt, until).await,
        }
    }

    /// Ends the grant of this lock ID, or of this public ID.
    async fn release_grant(
        &self,
        release: &Release,
        by: By<'_>,
        until: Instant,
    ) -> Result<(), BackendError> {
        let resource = &release.resource;
        // Whether an earlier call, or this one, may have ended the grant already.
        let mut may_have_happened = release.aim.bound().is_some();
        let mut lost: Option<Arc<str>> = None;
        let first_call = !may_have_happened;
        let grant = match by {
            By::LockId(lock_id) => self.grants.named(resource, lock_id),
            By::Claim(lock_id, attempt) => self
                .grants
                .named(resource, lock_id)
                .filter(|grant| grant.attempt == Some(attempt)),
            By::Id(_) => None,
        };
        let name = grant.as_ref().map(|grant| grant.name.clone());
        let meant = release.aim.token();
        let is_meant = |token: Revision| meant.is_none_or(|meant| meant.get() == token.0);
        let mut known = grant.filter(|grant| is_meant(grant.token)).and_then(|grant| {
            Deletion::of_written(&self.keys.grant(resource, &grant.name), &grant, until)
        });
        // The grant that was to be deleted last.
        let mut tried = None;
        loop {
            let deletion = match known.take() {
                Some(known) => known,
                None => {
                    let found = match by {
                        By::LockId(lock_id) | By::Claim(lock_id, _) => {
                            Box::pin(self.find(resource, lock_id, name.as_ref(), until)).await
                        }
                        By::Id(id) => Box::pin(self.find_by_id(resource, id, until)).await,
                    };
                    let mut found = match found {
                        Ok(found) => found,
                        Err(failure) => {
                            return Err(unread(failure, may_have_happened, lost));
                        }
                    };
                    if let By::Claim(_, attempt) = by {
                        found.grant =
                            found.grant.filter(|held| held.record.last_got_by(attempt));
                    }
                    self.ended_if_replaced(resource, tried.take(), found.grant.as_ref());
                    match found.grant {
                        Some(held) => {
                            let name = Some(held.name);
                            Deletion::of_read(&held.keys, name, &held.pair, until)
                        }
                        // The delete whose answer was lost was aimed at an existing grant,
                        // which has ended, as was asked for.
                        None if lost.is_some() => return Ok(()),
                        None => return Err(BackendError::NotHeld { held: found.is_held }),
                    }
                }
            };
            let bound = release.aim.bound_or(deletion.token.0);
            let is_later = deletion.token.0 > bound && (lost.is_some() || !first_call);
            if is_later || !is_meant(deletion.token) {
                return match lost {
                    Some(_) => Ok(()),
                    None => Err(BackendError::NotHeld { held: true }),
                };
            }
            tried = deletion.name.clone().map(|name| (name, deletion.token));
            match self.committer.commit(deletion.op.clone()).await {
                Ok(reply) if reply.succeeded => {
                    self.deleted(resource, &deletion);
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
        let keys = self.keys.grant(resource, &GrantName::of(attempt));
        // If nobody has renewed or claimed the grant, its key is as the attempt wrote it.
        let mut known = self
            .grants
            .made_by(attempt)
            .and_then(|grant| Deletion::of_written(&keys, &grant, until));
        let mut tried = None;
        loop {
            let deletion = match known.take() {
                Some(known) => known,
                None => {
                    let pair = self.reads.key(keys.record().to_owned(), until).await;
                    let pair =
                        pair.map_err(|failure| BackendError::Unknown(failure.why().clone()))?;
                    let held = pair.and_then(|pair| Held::of(&self.keys, resource, &pair));
                    self.ended_if_replaced(resource, tried.take(), held.as_ref());
                    match held.filter(|held| held.record.made_by(attempt.id)) {
                        None => return Ok(()),
                        Some(held) => {
                            let name = Some(held.name);
                            Deletion::of_read(&held.keys, name, &held.pair, until)
                        }
                    }
                }
            };
            tried = deletion.name.clone().map(|name| (name, deletion.token));
            match self.committer.commit(deletion.op.clone()).await {
                Ok(reply) if reply.succeeded => {
                    self.deleted(resource, &deletion);
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

    /// Handles a delete that is known to have happened. If the lease of the grant belongs to
    /// this process, it becomes free; any other lease is revoked.
    pub(super) fn deleted(&self, resource: &ResourceId, deletion: &Deletion) {
        let Some(name) = &deletion.name else {
            self.contention.saw(resource, None);
            self.leases.revoke_later(deletion.lease);
            return;
        };
        if let Some(older) = self.grants.remove_older(resource, name, deletion.token) {
            self.leases.revoke_later(older.lease.id);
        }
        let known = self.grants.remove(resource, name, deletion.token);
        if name.mode == Mode::Exclusive || !self.grants.has_readers(resource) {
            self.contention.saw(resource, None);
        }
        self.freed(deletion.lease, known);
    }

    /// Forgets a grant of this process that was to be deleted, if a later read shows that it
    /// has ended: by the delete, whose answer was lost, or by somebody else. Otherwise its
    /// lease might live for a day. The lease of another process's grant is not touched,
    /// because that process may have reused it by now.
    pub(super) fn ended_if_replaced(
        &self,
        resource: &ResourceId,
        tried: Option<(GrantName, Revision)>,
        found: Option<&Held<'_>>,
    ) {
        if let Some((name, token)) = tried
            && found.is_none_or(|held| held.token != token)
        {
            self.ended_elsewhere(resource, &name, token);
        }
    }

    /// Forgets a grant of this process that somebody else ended. Its lease is not reused,
    /// because they may be about to revoke it.
    pub(super) fn ended_elsewhere(
        &self,
        resource: &ResourceId,
        name: &GrantName,
        token: Revision,
    ) {
        if let Some(grant) = self.grants.remove(resource, name, token) {
            self.leases.revoke_later(grant.lease.id);
        }
    }
}

/// The error of a release that could not read what is held.
pub(super) fn unread(
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

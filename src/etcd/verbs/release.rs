//! UNLOCK: by owner, of one grant by its public ID, or of an attempt. By force: see `force`.

use std::sync::Arc;

use etcd_client::KeyValue;
use leasehold_lock::{BackendError, Release, ReleaseOf, ResourceId};
use tokio::time::Instant;

use crate::{
    client::failure::Failure,
    commit::op::Op,
    etcd::Etcd,
    grants::{find::By, local::Grants, local_grant::LocalGrant},
    keys::{GrantKeys, GrantName},
    revision::Revision,
    verbs::attempts::Attempts,
};

/// The delete of a grant's keys.
#[derive(Debug)]
pub(super) struct Deletion {
    /// The grant, if its record could be read.
    pub(super) name: Option<GrantName>,
    /// Its token.
    pub(super) token: Revision,
    /// The revision at which its record was written.
    pub(super) written: Revision,
    /// The lease of its record; 0 for none.
    lease: i64,
    pub(super) op: Op,
}

impl Deletion {
    /// Of the keys as this process wrote them. Nothing needs to be read first. The lease is
    /// compared too, because a restored data set counts its revisions anew.
    pub(super) fn of_written(keys: &GrantKeys, grant: &LocalGrant, until: Instant) -> Self {
        let (key, written, lease) = (keys.record(), grant.written, grant.lease.id);
        let op = Op::of_grant(keys, until);
        let op = op.when_written_at(key, written).when_under(key, lease);
        let op = op.delete_grant(keys);
        Self { name: Some(grant.name.clone()), token: grant.token, written, lease, op }
    }

    /// Of the keys as they were read. `name` is `None` for a record that is not ours.
    pub(super) fn of_read(
        keys: &GrantKeys,
        name: Option<GrantName>,
        pair: &KeyValue,
        until: Instant,
    ) -> Self {
        let token = Revision::from_etcd(pair.create_revision());
        let written = Revision::from_etcd(pair.mod_revision());
        let op = Op::of_grant(keys, until);
        let op = op.when_unchanged(keys.record(), pair).delete_grant(keys);
        Self { name, token, written, lease: pair.lease(), op }
    }
}

/// Ends grants.
pub(crate) struct Releases {
    pub(crate) etcd: Arc<Etcd>,
    pub(crate) grants: Arc<Grants>,
    pub(crate) attempts: Arc<Attempts>,
}

impl Releases {
    /// Ends a grant, or all of a resource.
    pub(crate) async fn release(
        &self,
        release: &Release,
        until: Instant,
    ) -> Result<(), BackendError> {
        let by = match &release.of {
            ReleaseOf::Owner(lock_id) => match Revision::fixed(&release.target) {
                Some(token) => By::Token(lock_id, token),
                None => By::LockId(lock_id),
            },
            ReleaseOf::Token(lock_id, token) => By::Token(lock_id, Revision(token.get())),
            ReleaseOf::Claim(lock_id, attempt) => By::Claim(lock_id, *attempt),
            ReleaseOf::Id(id) => By::Id(*id),
            ReleaseOf::Anyone => return self.release_all(release, until).await,
            ReleaseOf::Attempt(attempt) => {
                if !self.attempts.end(attempt.id, until).await? {
                    return Ok(());
                }
                let name = GrantName::of(attempt);
                let by = By::Attempt(attempt.id, &name);
                return match self.release_one(release, by, until).await {
                    Err(BackendError::NotHeld { .. }) => Ok(()),
                    released => released,
                };
            }
        };
        self.release_one(release, by, until).await
    }

    async fn release_one(
        &self,
        release: &Release,
        by: By<'_>,
        until: Instant,
    ) -> Result<(), BackendError> {
        let resource = &release.resource;
        let grant = self.grants.known(resource, by);
        let mode = grant.as_ref().map(|grant| grant.name.mode);
        let mut known = grant.map(|grant| {
            let keys = self.etcd.keys.grant(resource, &grant.name);
            Deletion::of_written(&keys, &grant, until)
        });
        // Why it is not known whether the last delete took place.
        let mut lost: Option<Arc<str>> = None;
        // The grant that was to be deleted last.
        let mut tried = None;
        loop {
            let deletion = match known.take() {
                Some(known) => known,
                None => {
                    let found = Box::pin(self.etcd.find(resource, by, mode, until)).await;
                    let found = found.map_err(|failure| match &lost {
                        Some(why) => BackendError::Unknown(Arc::clone(why)),
                        None => failure.unavailable(),
                    })?;
                    // If a later read shows that a grant of this process has ended, by the
                    // delete, whose answer was lost, or by somebody else, or that a replay has
                    // claimed it, it is forgotten as it was. Otherwise its lease might live for
                    // a day. The lease of another process's grant is not touched, because that
                    // process may have reused it by now.
                    if let Some((name, token, written)) = tried.take()
                        && found.grant.as_ref().is_none_or(|held| held.token != token)
                    {
                        self.grants.forget(resource, &name, (token, written));
                        // What the delete was sent for has ended.
                        if lost.is_some() {
                            return Ok(());
                        }
                    }
                    let held =
                        found.grant.ok_or(BackendError::NotHeld { held: found.is_held })?;
                    Deletion::of_read(&held.keys, Some(held.name), &held.pair, until)
                }
            };
            // A later call ends no other grant.
            deletion.token.fix(&release.target);
            let Deletion { ref name, token, written, .. } = deletion;
            tried = name.clone().map(|name| (name, token, written));
            match self.etcd.committer.commit(deletion.op.clone()).await {
                Ok(reply) if reply.succeeded => {
                    self.deleted(resource, &deletion);
                    return Ok(());
                }
                // The key was written or deleted meanwhile, which the next read shows.
                Ok(_) => {}
                Err(Failure::Unknown(why) | Failure::OutOfSpace(why)) => {
                    if Instant::now() >= until {
                        return Err(BackendError::Unknown(why));
                    }
                    lost = Some(why);
                }
                Err(failure) if lost.is_some() => {
                    return Err(BackendError::Unknown(Arc::clone(failure.why())));
                }
                Err(failure) => return Err(failure.unavailable()),
            }
        }
    }

    /// Handles a delete that is known to have happened.
    pub(super) fn deleted(&self, resource: &ResourceId, deletion: &Deletion) {
        match &deletion.name {
            Some(name) => {
                self.grants.deleted(resource, name, deletion.token, deletion.lease);
            }
            // Its lease is another program's, which may have other keys.
            None => self.grants.contention.saw(resource, None),
        }
    }
}

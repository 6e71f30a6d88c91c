//! Ends grants that nobody holds any more.

use std::sync::Arc;

use tokio::time::Instant;

use super::{
    AttemptId, GrantId, LockId, Release, ReleaseOf, ResourceId, Store, registry::Ending,
    settle::Settler,
};

/// A grant that nobody holds any more.
#[derive(Clone, Debug)]
pub struct Abandoned {
    /// What is locked.
    pub resource: ResourceId,
    /// The lock ID of the grant.
    pub lock_id: LockId,
    /// The public ID of the grant, if it is known.
    pub id: Option<GrantId>,
    /// The attempts of this process that may have got the grant last. If another attempt has
    /// claimed it since, it is left alone.
    pub claims: Vec<AttemptId>,
}

/// An abandoned grant. While it exists, renewals and repeated requests that find the grant wait.
pub struct Abandonment {
    settler: Settler,
    grant: Abandoned,
    ending: Ending,
}

impl Store {
    /// Notes that a grant is abandoned, which [`Abandonment::end`] then ends.
    #[must_use]
    pub fn abandon(&self, grant: Abandoned) -> Abandonment {
        let settler = self.0.settler.clone();
        let lock = (grant.resource.clone(), grant.lock_id.clone());
        let ending = settler.registry().end(lock, grant.id);
        Abandonment { settler, grant, ending }
    }

    /// Whether a grant with this lock ID is abandoned, undone or unlocked, and has not ended yet.
    #[must_use]
    pub fn is_ending(&self, resource: &ResourceId, lock_id: &LockId) -> bool {
        self.0.settler.registry().is_ending(&(resource.clone(), lock_id.clone()), None)
    }
}

impl Abandonment {
    /// Releases the grant until the backend has confirmed it, or until any TTL has ended it
    /// (trap 24). That goes on if the future is dropped.
    pub async fn end(self) {
        let Self { settler, grant, ending } = self;
        let Abandoned { resource, lock_id, id, claims } = grant;
        let give_up = Instant::now() + settler.horizon;
        let lock = (resource.clone(), lock_id.clone());
        for claim in claims {
            let of = ReleaseOf::Claim(lock_id.clone(), claim);
            let release = Release::new(resource.clone(), of);
            let ending = settler.registry().end(lock.clone(), id);
            settler.add(Arc::new(release), Some(ending), give_up);
        }
        drop(ending);
        settler.registry().ended(&lock, id).await;
    }
}

//! What the engine needs of a store.

use std::{fmt, sync::Arc, time::Duration};

use leasehold_lock::{
    GrantId, LockError, LockId, ReleaseOf, RenewRequest, Renewed, RequestId, ResourceId, Store,
    UnlockRequest,
};
use tokio::time::Instant;

/// A store through which locks are held.
pub trait LockStore: Send + Sync + 'static {
    /// The store's name, as the app gives it. No other store of the engine has it.
    fn name(&self) -> &Arc<str>;

    /// Keeps the locks.
    fn store(&self) -> &Store;

    /// The store answered a renewal that it does not support renewing.
    fn refused_to_renew(&self) {}
}

impl fmt::Debug for dyn LockStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LockStore").field(self.name()).finish()
    }
}

/// What is held: the names of the store and of the resource there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct HeldKey {
    pub(super) store: Arc<str>,
    pub(super) resource: ResourceId,
}

/// A `request_id`, with what it asks for.
pub(super) type Request = (HeldKey, RequestId);

/// Where a resource is locked.
#[derive(Clone, Debug)]
pub struct Target {
    /// The store.
    pub store: Arc<dyn LockStore>,
    /// The store's name of the resource, prefixed.
    pub resource: ResourceId,
}

impl Target {
    pub(super) fn key(&self) -> HeldKey {
        HeldKey { store: Arc::clone(self.store.name()), resource: self.resource.clone() }
    }

    /// Ends the grant with this lock ID.
    pub(super) async fn unlock(&self, lock_id: &LockId) -> Result<(), LockError> {
        let request = UnlockRequest::owner(self.resource.clone(), lock_id.clone());
        self.store.store().unlock(request).await
    }

    /// Ends the grants of all who hold the resource, or the one with this public ID.
    pub(super) async fn force(
        &self,
        grant_id: Option<GrantId>,
        until: Instant,
    ) -> Result<(), LockError> {
        let of = grant_id.map_or(ReleaseOf::Anyone, ReleaseOf::Id);
        let request = UnlockRequest { resource: self.resource.clone(), of };
        self.store.store().unlock_by(request, until).await
    }

    /// Starts the TTL of the grant with this lock ID again.
    pub(super) async fn renew(
        &self,
        lock_id: &LockId,
        ttl: Option<Duration>,
    ) -> Result<Renewed, LockError> {
        let request =
            RenewRequest { resource: self.resource.clone(), lock_id: lock_id.clone(), ttl };
        self.store.store().renew(request).await
    }
}

//! What the engine needs of a store.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::lock::{
    GrantId, LockError, LockId, RenewRequest, Renewed, ResourceId, Store, UnlockOf,
    UnlockRequest,
};

/// Tells stores apart, also those of one name. An ID is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StoreId(u64);

impl StoreId {
    /// An ID that no other store has.
    #[must_use]
    pub fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A store through which locks are held. Each held lock keeps a reference to its
/// store, so an implementation may close the store when it is dropped.
pub trait LockStore: Send + Sync + 'static {
    /// Tells this store from others of the same name.
    fn id(&self) -> StoreId;

    /// The store's name, as the app gives it.
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

/// What is held, as the app names it. It means the same after a reload that
/// gave the component another backend or key prefix.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HeldKey {
    /// The store's name.
    pub store: Arc<str>,
    /// The resource, without a prefix.
    pub resource: ResourceId,
}

/// Where a resource is locked.
#[derive(Clone, Debug)]
pub struct Target {
    /// The store.
    pub store: Arc<dyn LockStore>,
    /// The store's name of the resource, prefixed.
    pub resource: ResourceId,
}

impl Target {
    pub(super) fn is(&self, other: &Self) -> bool {
        self.store.id() == other.store.id() && self.resource == other.resource
    }

    /// Ends the grant with this lock ID.
    pub(super) async fn unlock(&self, lock_id: &LockId) -> Result<(), LockError> {
        let request = UnlockRequest::owner(self.resource.clone(), lock_id.clone());
        self.store.store().unlock(request).await
    }

    /// Ends the grants of all who hold the resource, or the one with this public ID.
    pub(super) async fn force(&self, grant_id: Option<GrantId>) -> Result<(), LockError> {
        let of = grant_id.map_or(UnlockOf::Anyone, UnlockOf::Id);
        let request = UnlockRequest { resource: self.resource.clone(), of };
        self.store.store().unlock(request).await
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

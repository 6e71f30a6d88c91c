//! Stores through which locks are held, and the resources there.

use std::{
    fmt,
    hash::{Hash, Hasher},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use leasehold_lock::{
    GrantId, LockError, LockId, ReleaseOf, RenewRequest, Renewed, RequestId, ResourceId, Store,
    UnlockRequest,
};
use tokio::time::Instant;
use tracing::warn;

/// A store through which locks are held.
pub struct LockStore {
    name: Arc<str>,
    store: Store,
    /// Whether the store is known to renew. A third-party store may not.
    renews: AtomicBool,
}

impl LockStore {
    /// A store that can renew. No other store of the engine has its name.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>, store: Store) -> Self {
        Self { name: name.into(), store, renews: AtomicBool::new(true) }
    }

    /// A third-party store, which may be unable to renew.
    #[must_use]
    pub fn third_party(name: impl Into<Arc<str>>, store: Store) -> Self {
        Self { renews: AtomicBool::new(false), ..Self::new(name, store) }
    }

    /// The store's name, as the app gives it.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Keeps the locks.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Checks that the store can renew, before a grant that must be renewed. Asks it to
    /// renew a grant of `resource` that does not exist, unless the answer is known.
    pub async fn must_renew(&self, resource: &ResourceId) -> Result<(), LockError> {
        if self.renews.load(Ordering::Relaxed) {
            return Ok(());
        }
        let probe =
            RenewRequest { resource: resource.clone(), lock_id: LockId::random(), ttl: None };
        match self.store.renew(probe).await {
            Err(LockError::Unsupported(answer)) => {
                warn!(store = %self.name, answer = &*answer,
                    "the lock store cannot renew; locks are granted with no_renewal only");
                Err(LockError::Unsupported(
                    "this store cannot renew; ask for no_renewal, and for a TTL that is long enough"
                        .into(),
                ))
            }
            // An unknown outcome changed nothing: the grant does not exist.
            Err(LockError::StoreUnavailable(why) | LockError::OutcomeUnknown(why)) => {
                Err(LockError::StoreUnavailable(why))
            }
            _ => {
                self.renews.store(true, Ordering::Relaxed);
                Ok(())
            }
        }
    }

    /// The store answered a renewal that it cannot renew. It is asked again before the next
    /// grant.
    pub(super) fn refused_to_renew(&self) {
        self.renews.store(false, Ordering::Relaxed);
    }
}

impl fmt::Debug for LockStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LockStore").field(&self.name).finish()
    }
}

/// A resource of a store. Two are the same if the names of store and resource are.
#[derive(Clone, Debug)]
pub struct Resource {
    /// The store, under its name.
    pub lock_store: Arc<LockStore>,
    /// The store's name of the resource, prefixed.
    pub id: ResourceId,
}

impl PartialEq for Resource {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id && self.lock_store.name == other.lock_store.name
    }
}

impl Eq for Resource {}

impl Hash for Resource {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.lock_store.name.hash(state);
        self.id.hash(state);
    }
}

/// A grant's full name.
pub(super) type GrantName = (Resource, LockId);

/// A `request_id`, with what it asks for.
pub(super) type Request = (Resource, RequestId);

impl Resource {
    /// The store that has the resource.
    #[must_use]
    pub fn store(&self) -> &Store {
        self.lock_store.store()
    }

    /// Ends the grant with this lock ID.
    pub(super) async fn unlock(&self, lock_id: &LockId) -> Result<(), LockError> {
        let request = UnlockRequest::owner(self.id.clone(), lock_id.clone());
        self.store().unlock(request).await
    }

    /// Ends the grants of all who hold the resource, or the one with this public ID.
    pub(super) async fn force(
        &self,
        grant_id: Option<GrantId>,
        until: Instant,
    ) -> Result<(), LockError> {
        let of = grant_id.map_or(ReleaseOf::Anyone, ReleaseOf::Id);
        let request = UnlockRequest { resource: self.id.clone(), of };
        self.store().unlock_by(request, until).await
    }

    /// Starts the TTL of the grant with this lock ID again.
    pub(super) async fn renew(
        &self,
        lock_id: &LockId,
        ttl: Option<Duration>,
    ) -> Result<Renewed, LockError> {
        let request = RenewRequest { resource: self.id.clone(), lock_id: lock_id.clone(), ttl };
        self.store().renew(request).await
    }
}

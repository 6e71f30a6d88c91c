//! The part of alpha1 that gRPC and HTTP share: the order of validation, and the
//! mapping of the domain's errors.

use std::{
    sync::{Arc, Once},
    time::Duration,
};

use leasehold_held::{Engine, HeldError, Target};
use leasehold_lock::{
    AcquireRequest, Granted, LockError, LockId, ResourceId, UnlockRequest, Violation,
};
use tracing::warn;

use super::Alpha1Error;
use crate::{
    identity::Identity,
    stores::{NamedStore, Stores},
};

/// The alpha1 API over the sidecar's stores.
#[derive(Clone, Debug)]
pub struct Alpha1 {
    stores: Stores,
    engine: Engine,
    identity: Identity,
    deprecation: Arc<Deprecation>,
}

/// A request for a lock.
#[derive(Clone, Default)]
pub struct TryLock {
    /// The component's name.
    pub store_name: String,
    /// What to lock, as the app names it.
    pub resource_id: String,
    /// The caller's name for the grant, its lock ID.
    pub owner: String,
    /// The TTL in seconds; must be positive.
    pub expiry_s: i32,
}

/// A request to end a lock.
#[derive(Clone, Default)]
pub struct Unlock {
    /// The component's name.
    pub store_name: String,
    /// What is locked, as the app names it.
    pub resource_id: String,
    /// The grant's name.
    pub owner: String,
}

/// The outcome of an unlock. The numbers are those of the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnlockStatus {
    /// The grant has ended.
    Success = 0,
    /// The resource is not held.
    DoesNotExist = 1,
    /// Another owner holds it.
    BelongsToOthers = 2,
}

impl Alpha1 {
    /// The API over these stores, for this app.
    #[must_use]
    pub fn new(stores: Stores, engine: Engine, identity: Identity) -> Self {
        Self { stores, engine, identity, deprecation: Arc::default() }
    }

    /// Acquires a free resource; `None` if it is held.
    pub async fn try_lock(&self, request: TryLock) -> Result<Option<Granted>, Alpha1Error> {
        self.deprecation.warn();
        let expiry_s = u64::try_from(request.expiry_s).unwrap_or(0);
        if expiry_s == 0 {
            return Err(Alpha1Error::NoExpiry(request.store_name));
        }
        let store = self.store(&request.store_name, &request.resource_id, &request.owner)?;
        let failed =
            |problem: &dyn std::fmt::Display| Alpha1Error::TryLock(problem.to_string());
        let refused = |why: Violation| failed(&why);
        let name = store
            .key(&request.resource_id, self.identity.app_id())
            .map_err(|why| failed(&why.problem))?;
        let resource = ResourceId::new(&name).map_err(refused)?;
        let acquire = AcquireRequest {
            ttl: Some(Duration::from_secs(expiry_s)),
            lock_id: Some(LockId::new(&request.owner).map_err(refused)?),
            holder: self.identity.holder(None).map_err(refused)?,
            ..AcquireRequest::new(resource)
        };
        match store.store().try_lock(acquire).await {
            Ok(granted) => Ok(Some(granted)),
            Err(LockError::Locked { .. }) => Ok(None),
            Err(error) => Err(failed(&error)),
        }
    }

    /// Ends the grant of this owner.
    pub async fn unlock(&self, request: Unlock) -> Result<UnlockStatus, Alpha1Error> {
        self.deprecation.warn();
        let failed = |problem: &dyn std::fmt::Display| Alpha1Error::Unlock(problem.to_string());
        let store = self.store(&request.store_name, &request.resource_id, &request.owner)?;
        let refused = |why: Violation| failed(&why);
        let name = store
            .key(&request.resource_id, self.identity.app_id())
            .map_err(|why| failed(&why.problem))?;
        let resource = ResourceId::new(&name).map_err(refused)?;
        let lock_id = LockId::new(&request.owner).map_err(refused)?;
        let target = Target { store, resource };
        // The renewal of a grant of alpha2 must end first.
        let unlocked = match self.engine.unlock_if_held(&target, lock_id.clone()).await {
            Some(Ok(())) => Ok(()),
            Some(Err(HeldError::Lock(error))) => Err(error),
            // Only the store knows who holds a lost lock now.
            None | Some(Err(HeldError::Lost(_) | HeldError::NotHeldHere)) => {
                let unlock = UnlockRequest::owner(target.resource, lock_id);
                target.store.store().unlock(unlock).await
            }
        };
        match unlocked {
            Ok(()) => Ok(UnlockStatus::Success),
            Err(LockError::NotFound { held: true }) => Ok(UnlockStatus::BelongsToOthers),
            Err(LockError::NotFound { held: false }) => Ok(UnlockStatus::DoesNotExist),
            Err(error) => Err(failed(&error)),
        }
    }

    fn store(
        &self,
        store_name: &str,
        resource_id: &str,
        owner: &str,
    ) -> Result<Arc<NamedStore>, Alpha1Error> {
        if self.stores.is_empty() {
            return Err(Alpha1Error::NoStores);
        }
        if resource_id.is_empty() {
            return Err(Alpha1Error::NoResource(store_name.to_owned()));
        }
        if owner.is_empty() {
            return Err(Alpha1Error::NoOwner(store_name.to_owned()));
        }
        self.stores
            .get(store_name)
            .ok_or_else(|| Alpha1Error::StoreNotFound(store_name.to_owned()))
    }
}

/// Logs once that alpha1 is deprecated.
#[derive(Debug)]
struct Deprecation(Once);

impl Default for Deprecation {
    fn default() -> Self {
        Self(Once::new())
    }
}

impl Deprecation {
    fn warn(&self) {
        self.0.call_once(|| {
            warn!(
                "TryLockAlpha1 and UnlockAlpha1 are deprecated: they neither wait nor renew; \
                 use the alpha2 lock API (leasehold.v1.Locks, /v1.0-alpha2/lock)"
            );
        });
    }
}

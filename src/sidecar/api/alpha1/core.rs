//! The part of alpha1 that gRPC and HTTP share: the order of validation, and the
//! mapping of the domain's errors.

use std::{
    sync::{Arc, Once},
    time::Duration,
};

use leasehold_held::{Engine, HeldError, Resource};
use leasehold_lock::{
    AcquireRequest, Granted, LockError, LockId, ResourceId, UnlockRequest as StoreUnlock,
    Violation,
};
use leasehold_proto::dapr::{TryLockRequest, UnlockRequest, unlock_response::Status};
use tracing::warn;

use super::Alpha1Error;
use crate::{identity::Identity, stores::Stores};

/// The alpha1 API over the sidecar's stores.
#[derive(Clone, Debug)]
pub struct Alpha1 {
    stores: Stores,
    engine: Engine,
    identity: Identity,
}

impl Alpha1 {
    /// The API over these stores, for this app.
    #[must_use]
    pub fn new(stores: Stores, engine: Engine, identity: Identity) -> Self {
        Self { stores, engine, identity }
    }

    /// Acquires a free resource; `None` if it is held.
    pub async fn try_lock(
        &self,
        request: TryLockRequest,
    ) -> Result<Option<Granted>, Alpha1Error> {
        warn_of_deprecation();
        let expiry_s = u64::try_from(request.expiry_in_seconds).unwrap_or(0);
        if expiry_s == 0 {
            return Err(Alpha1Error::NoExpiry(request.store_name));
        }
        let TryLockRequest { store_name, resource_id, lock_owner, .. } = request;
        let failed = Alpha1Error::TryLock;
        let (resource, lock_id) = self.named(&store_name, &resource_id, &lock_owner, failed)?;
        let holder = self.identity.holder("").map_err(|why| failed(why.to_string()))?;
        let acquire = AcquireRequest {
            ttl: Some(Duration::from_secs(expiry_s)),
            lock_id: Some(lock_id),
            holder,
            ..AcquireRequest::new(resource.id.clone())
        };
        match resource.store().try_lock(acquire).await {
            Ok(granted) => Ok(Some(granted)),
            Err(LockError::Locked { .. }) => Ok(None),
            Err(error) => Err(failed(error.to_string())),
        }
    }

    /// Ends the grant of this owner.
    pub async fn unlock(&self, request: UnlockRequest) -> Result<Status, Alpha1Error> {
        warn_of_deprecation();
        let UnlockRequest { store_name, resource_id, lock_owner } = request;
        let failed = Alpha1Error::Unlock;
        let (resource, lock_id) = self.named(&store_name, &resource_id, &lock_owner, failed)?;
        // The renewal of a grant of alpha2 must end first.
        let unlocked = match self.engine.unlock_if_held(&resource, lock_id.clone()).await {
            Some(Ok(())) => Ok(()),
            Some(Err(HeldError::Lock(error))) => Err(error),
            // Only the store knows who holds a lost lock now.
            None | Some(Err(HeldError::Lost(_) | HeldError::NotHeldHere)) => {
                let unlock = StoreUnlock::owner(resource.id.clone(), lock_id);
                resource.store().unlock(unlock).await
            }
        };
        match unlocked {
            Ok(()) => Ok(Status::Success),
            Err(LockError::NotFound { held: true }) => Ok(Status::LockBelongsToOthers),
            Err(LockError::NotFound { held: false }) => Ok(Status::LockDoesNotExist),
            Err(error) => Err(failed(error.to_string())),
        }
    }

    /// Where the resource is locked, and the owner as a lock ID. `failed` is the error for what
    /// only leasehold refuses.
    fn named(
        &self,
        store_name: &str,
        resource_id: &str,
        owner: &str,
        failed: fn(String) -> Alpha1Error,
    ) -> Result<(Resource, LockId), Alpha1Error> {
        if self.stores.is_empty() {
            return Err(Alpha1Error::NoStores);
        }
        if resource_id.is_empty() {
            return Err(Alpha1Error::NoResource(store_name.to_owned()));
        }
        if owner.is_empty() {
            return Err(Alpha1Error::NoOwner(store_name.to_owned()));
        }
        let store = self
            .stores
            .get(store_name)
            .ok_or_else(|| Alpha1Error::StoreNotFound(store_name.to_owned()))?;
        let refused = |why: Violation| failed(why.to_string());
        let name = store.names.of_key(resource_id).map_err(|why| failed(why.problem))?;
        let resource = Resource {
            lock_store: Arc::clone(&store.lock_store),
            id: ResourceId::new(&name).map_err(refused)?,
        };
        Ok((resource, LockId::new(owner).map_err(refused)?))
    }
}

/// Logs once that alpha1 is deprecated.
fn warn_of_deprecation() {
    static WARNED: Once = Once::new();
    WARNED.call_once(|| {
        warn!(
            "TryLockAlpha1 and UnlockAlpha1 are deprecated: they neither wait nor renew; use the \
             alpha2 lock API (leasehold.v1.Locks, /v1.0-alpha2/lock)"
        );
    });
}

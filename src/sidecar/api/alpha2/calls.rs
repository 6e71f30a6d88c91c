//! The calls that end or renew a grant, by the messages that gRPC and HTTP share.

use std::time::Duration;

use leasehold_lock::LockId;
use leasehold_net::{
    inspection::{self, force_unlock},
    peer::Peer,
    wire::positive,
};
use leasehold_proto::locks as pb;

use super::{Locks, wire};
use crate::api::error::ApiError;

impl Locks {
    /// Restarts a grant's TTL and applies the requested change. Returns the TTL.
    pub(super) async fn renew_lock(
        &self,
        asked: pb::RenewLockRequest,
    ) -> Result<Duration, ApiError> {
        let resource = wire::resource(&asked.resource_id, asked.namespace)?;
        let lock_id = LockId::new(&asked.lock_id)?;
        let ttl = positive("ttl", asked.ttl)?;
        let change = wire::change(asked.detach, wire::max_hold(asked.max_hold)?)?;
        let resource = self.resource(&asked.store_name, &resource)?;
        Ok(self.engine.renew(&resource, lock_id, ttl, change).await?.ttl)
    }

    /// Ends the grant of a lock ID.
    pub(super) async fn unlock_lock(&self, asked: pb::UnlockRequest) -> Result<(), ApiError> {
        let resource = wire::resource(&asked.resource_id, asked.namespace)?;
        let lock_id = LockId::new(&asked.lock_id)?;
        self.unlock(&asked.store_name, &resource, lock_id).await
    }

    /// Ends all grants of a resource, or the one that is named. Runs to its end even if the caller
    /// goes away.
    pub(crate) async fn force(
        &self,
        asked: pb::ForceUnlockRequest,
        peer: Option<Peer>,
    ) -> Result<(), ApiError> {
        let name = wire::resource(&asked.resource_id, asked.namespace)?;
        let grant_id = inspection::grant_id(&asked.grant_id)?;
        let by = self.forced_by(&asked.store_name, peer, inspection::reason(asked.reason)?);
        let resource = self.resource(&asked.store_name, &name)?;
        let (store, id) = (resource.store().clone(), resource.id.clone());
        let engine = self.engine.clone();
        let unlock =
            move |until| async move { engine.force_unlock(resource, grant_id, until).await };
        Ok(force_unlock(store, id, grant_id, by, unlock).await?)
    }
}

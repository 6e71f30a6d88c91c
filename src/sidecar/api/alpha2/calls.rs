//! The calls that end or renew a grant, by the messages that gRPC and HTTP share.

use std::time::Duration;

use leasehold_lock::LockId;
use leasehold_net::{inspection, peer::Peer, wire::positive};
use leasehold_proto::locks as pb;

use super::{Locks, inspection::Force, wire};
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
        let target = self.target(&asked.store_name, &resource)?;
        Ok(self.engine.renew(&target, lock_id, ttl, change).await?.ttl)
    }

    /// Ends the grant of a lock ID.
    pub(super) async fn unlock_lock(&self, asked: pb::UnlockRequest) -> Result<(), ApiError> {
        let resource = wire::resource(&asked.resource_id, asked.namespace)?;
        let lock_id = LockId::new(&asked.lock_id)?;
        self.unlock(&asked.store_name, &resource, lock_id).await
    }

    /// Ends all grants of a resource, or the one that is named.
    pub(super) async fn force(
        &self,
        asked: pb::ForceUnlockRequest,
        peer: Option<Peer>,
    ) -> Result<(), ApiError> {
        let resource = wire::resource(&asked.resource_id, asked.namespace)?;
        let grant_id = inspection::grant_id(&asked.grant_id)?;
        let reason = inspection::reason(&asked.reason)?.to_owned();
        let force = Force { grant_id, reason, peer };
        self.force_unlock(&asked.store_name, &resource, force).await
    }
}

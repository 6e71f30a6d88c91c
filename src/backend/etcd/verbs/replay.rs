//! REPLAY: a repeated request finds its grant again.

use etcd_client::{KeyValue, TxnOp, TxnOpResponse};
use tokio::time::Instant;

use crate::{
    backend::etcd::{
        client::failure::Failure,
        commit::op::OpError,
        core::{BUSY, Core, Failed},
        lease::{leases::lease_ttl_s, local_grant::LocalGrant, pool::Lease},
        record::Record,
        verbs::held::Held,
    },
    lock::{Attempt, BackendError, FencingToken, Grant, ResourceId},
};

impl Core {
    /// Claims the live grant for a repeated request: no attempt may undo it any more, and
    /// its TTL starts again, under a lease of this process, so that whoever still cleans up
    /// after the first attempt cannot end it. `None` if the grant has changed meanwhile.
    pub(super) async fn replay(
        &self,
        attempt: &Attempt,
        pair: &KeyValue,
        record: &Record,
        until: Instant,
    ) -> Result<Option<Grant>, Failed> {
        if let Some(field) = record.mismatch(attempt) {
            return Err(BackendError::ReplayMismatch { field }.into());
        }
        let Some(held) = Held::of(&self.keys, &attempt.resource, pair) else {
            return Err(BackendError::Locked { by: Some(record.view()) }.into());
        };
        match self.claim(attempt, &held, until).await? {
            Some((grant, lease)) => self.secure(attempt, grant, &lease, until).await.map(Some),
            None => Ok(None),
        }
    }

    async fn claim(
        &self,
        attempt: &Attempt,
        held: &Held<'_>,
        until: Instant,
    ) -> Result<Option<(Grant, Lease)>, Failed> {
        let (resource, record) = (held.resource, &held.record);
        let (name, token) = (&held.name, held.token);
        let grant = (resource.clone(), name.lock_id.clone());
        let Some(_locked) = self.moved.lock(grant, until).await else {
            return Err(BackendError::Unavailable(BUSY.into()).into());
        };
        loop {
            let lease = self.leases.take_another(lease_ttl_s(attempt.ttl), until).await;
            let lease = lease.map_err(Failure::unavailable)?;
            let asked = Instant::now();
            let claimed = record.claimed(lease.asked_s);
            let op = held.rewrite_op(&claimed, &lease, until);
            let (since, written) = match self.committer.commit(op).await {
                Ok(reply) if reply.succeeded => (reply.sent, Some(reply.revision)),
                Ok(_) => {
                    self.leases.give(lease);
                    return Ok(None);
                }
                // The key may come to lie under the lease, so it is neither given back nor
                // revoked.
                Err(OpError::Unknown(why) | OpError::OutOfSpace(why)) => {
                    if !self.is_under(held.keys.record(), lease.id, until).await {
                        self.lose_track(resource, name, token);
                        return Err(BackendError::Unknown(why).into());
                    }
                    (asked, None)
                }
                Err(error) => {
                    if !self.may_write_again(lease, &error) || Instant::now() >= until {
                        return Err(BackendError::Unavailable(error.why()).into());
                    }
                    continue;
                }
            };
            let grant = LocalGrant::new(name.clone(), token, lease);
            self.move_to_lease(resource, held.lease(), LocalGrant { written, ..grant });
            let token = FencingToken::new(token.0)
                .ok_or(BackendError::Unknown("etcd's revision is no token".into()))?;
            let grant = Grant {
                id: record.id(),
                lock_id: name.lock_id.clone(),
                token: Some(token),
                ttl: lease.grant_ttl(),
                since,
                created: false,
            };
            return Ok(Some((grant, lease)));
        }
    }

    /// Remembers that a grant lies under a lease of this process now, and gives the lease
    /// that it has left back, if that was this process's too. The grant must be locked.
    pub(super) fn move_to_lease(&self, resource: &ResourceId, left: i64, grant: LocalGrant) {
        let token = grant.token;
        match self.grants.moved(resource, grant) {
            Some(before) if before.token == token && before.lease.id == left => {
                self.leases.give(before.lease);
            }
            // The key was no longer under that lease.
            Some(before) => self.leases.revoke_later(before.lease.id),
            None => {}
        }
    }

    async fn is_under(&self, key: &str, lease: i64, until: Instant) -> bool {
        let get = TxnOp::get(key, None);
        let Ok(read) = self.connection.read(vec![get], until).await else { return false };
        matches!(read.op_responses().first(), Some(TxnOpResponse::Get(get))
            if get.kvs().first().is_some_and(|pair| pair.lease() == lease))
    }
}

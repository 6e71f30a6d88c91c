//! REPLAY: a repeated request finds its grant again.

use etcd_client::{KeyValue, PutOptions, TxnOp, TxnOpResponse};
use tokio::time::Instant;

use crate::{
    backend::etcd::{
        commit::op::{Op, OpError},
        core::{Core, Ended},
        lease::{grants::LocalGrant, leases::lease_ttl_s, pool::Lease},
        record::Record,
        verbs::{acquire::revision, release::unchanged},
    },
    lock::{Attempt, BackendError, FencingToken, Grant, ResourceId},
};

/// Another call changes what this process knows of the grant.
pub(crate) const BUSY: &str = "an earlier call for this grant has not been answered yet";

impl Core {
    /// Claims the live grant for a repeated request: no attempt may undo it any
    /// more, and its TTL starts again, under a lease of this process's, so that
    /// whoever still tidies up after the first attempt cannot end it. `None` if
    /// the grant has changed meanwhile.
    pub(crate) async fn replay(
        &self,
        attempt: &Attempt,
        pair: &KeyValue,
        record: &Record,
        until: Instant,
    ) -> Result<Option<Grant>, Ended> {
        if let Some(field) = record.mismatch(attempt) {
            return Err(BackendError::ReplayMismatch { field }.into());
        }
        let Some(lock_id) = record.lock_id() else {
            return Err(BackendError::Locked { holder: record.holder() }.into());
        };
        let token = revision(pair.create_revision());
        let Some(_turn) = self.turns.take(&attempt.resource, until).await else {
            return Err(BackendError::Unavailable(BUSY.into()).into());
        };
        loop {
            let lease = self.leases.take_another(lease_ttl_s(attempt.ttl), until).await;
            let lease =
                lease.map_err(crate::backend::etcd::client::failure::Failure::unavailable)?;
            let asked = Instant::now();
            let value = record.claimed(lease.asked_s);
            let (since, written) = match self
                .commit(self.rewrite_op(attempt, pair, &value, &lease, until))
                .await
            {
                Ok(reply) if reply.succeeded => (reply.sent, Some(reply.revision)),
                Ok(_) => {
                    self.leases.give(lease);
                    return Ok(None);
                }
                // The lease may come to hold the grant, so it is neither given
                // back nor revoked.
                Err(OpError::Unknown(why) | OpError::OutOfSpace(why)) => {
                    if !self.is_under(attempt, lease.id, until).await {
                        self.lose_track(&attempt.resource, token);
                        return Err(BackendError::Unknown(why).into());
                    }
                    (asked, None)
                }
                Err(error) => {
                    self.not_written(lease, &error, until)?;
                    continue;
                }
            };
            let term = self.connection.era().term;
            let grant = LocalGrant::new(lock_id.clone(), token, lease, term);
            let grant = LocalGrant { written, ..grant };
            self.move_to_lease(&attempt.resource, pair.lease(), grant);
            let token = FencingToken::new(token)
                .ok_or(BackendError::Unknown("etcd's revision is no token".into()))?;
            let ttl = lease.grant_ttl();
            return Ok(Some(Grant { lock_id, token: Some(token), ttl, since, created: false }));
        }
    }

    /// Remembers that a grant lives under a lease of this process's now, and takes back
    /// the one that it has left, if that was this process's too. Only whoever has the
    /// resource's turn may do so.
    pub(crate) fn move_to_lease(&self, resource: &ResourceId, left: i64, grant: LocalGrant) {
        let (token, era) = (grant.token, grant.lease.era);
        match self.grants.moved(resource, grant) {
            Some(before) if before.token == token && before.lease.id == left => {
                self.leases.give(before.lease);
            }
            // The key was no longer under that one.
            Some(before) => self.leases.revoke_later(before.lease.id),
            None => {}
        }
        self.see_to_term(era);
    }

    async fn is_under(&self, attempt: &Attempt, lease: i64, until: Instant) -> bool {
        let get = TxnOp::get(self.keys.holder(&attempt.resource), None);
        let Ok(read) = self.connection.read(vec![get], until).await else { return false };
        matches!(read.op_responses().first(), Some(TxnOpResponse::Get(get))
            if get.kvs().first().is_some_and(|pair| pair.lease() == lease))
    }

    fn rewrite_op(
        &self,
        attempt: &Attempt,
        pair: &KeyValue,
        record: &Record,
        lease: &Lease,
        until: Instant,
    ) -> Op {
        self.holder_rewrite(&attempt.resource, pair, record, lease, until)
    }

    /// A write of the holder's key that needs it unchanged since `pair` was
    /// read; its creation revision, and so the token, survives it.
    pub(crate) fn holder_rewrite(
        &self,
        resource: &ResourceId,
        pair: &KeyValue,
        record: &Record,
        lease: &Lease,
        until: Instant,
    ) -> Op {
        let key = self.keys.holder(resource);
        let value = record.encode();
        Op {
            claims: Some(resource.clone()),
            enters: false,
            bytes: 3 * key.len() + value.len(),
            when: unchanged(&key, pair),
            then: vec![TxnOp::put(key, value, Some(PutOptions::new().with_lease(lease.id)))],
            otherwise: Vec::new(),
            until,
            lease: Some(*lease),
        }
    }
}

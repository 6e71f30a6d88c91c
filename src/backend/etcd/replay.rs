//! REPLAY: a repeated request finds its grant again.

use etcd_client::{Compare, CompareOp, KeyValue, PutOptions, TxnOp, TxnOpResponse};
use tokio::time::Instant;

use super::{
    acquire::revision,
    backend::{Core, Ended},
    grants::LocalGrant,
    leases::lease_ttl_s,
    op::{Op, OpError},
    pool::Lease,
    record::Record,
};
use crate::lock::{Attempt, BackendError, FencingToken, Grant};

impl Core {
    /// Claims the live grant for a repeated request: no attempt may undo it any
    /// more, and its TTL starts again, under a lease of this process's, so that
    /// whoever still tidies up after the first attempt cannot end it. `None` if
    /// the grant has changed meanwhile.
    pub(super) async fn replay(
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
        loop {
            let lease = self.leases.take(lease_ttl_s(attempt.ttl), until).await;
            let lease = lease.map_err(super::failure::Failure::unavailable)?;
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
                        return Err(BackendError::Unknown(why).into());
                    }
                    (asked, None)
                }
                Err(error) => {
                    self.not_written(lease, &error, until)?;
                    continue;
                }
            };
            self.rehouse(
                &attempt.resource,
                pair.lease(),
                LocalGrant { lock_id: lock_id.clone(), token, written, lease, attempt: None },
            );
            let token = FencingToken::new(token)
                .ok_or(BackendError::Unknown("etcd's revision is no token".into()))?;
            let ttl = lease.grant_ttl();
            return Ok(Some(Grant { lock_id, token: Some(token), ttl, since, created: false }));
        }
    }

    /// Remembers that a grant lives under a lease of this process's now, and
    /// takes back the one before, if that was this process's too. Of two writes
    /// that are told in the other order the later one counts.
    pub(super) fn rehouse(
        &self,
        resource: &crate::lock::ResourceId,
        lease_before: i64,
        grant: LocalGrant,
    ) {
        match self.grants.remove(resource, grant.token) {
            Some(before) if before.lease.id == lease_before => self.leases.give(before.lease),
            Some(before) => match (before.written, grant.written) {
                // The key has left this write's lease already.
                (Some(later), Some(written)) if later > written => {
                    self.leases.revoke_later(grant.lease.id);
                    return self.remember(resource, before);
                }
                // A write in between, which is yet to be told, has left this one.
                (Some(earlier), Some(written)) if earlier < written => {
                    self.leases.revoke_later(before.lease.id);
                }
                // Which came first is not known: that lease is left to its TTL.
                _ => {}
            },
            None => {}
        }
        self.remember(resource, grant);
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
    pub(super) fn holder_rewrite(
        &self,
        resource: &crate::lock::ResourceId,
        pair: &KeyValue,
        record: &Record,
        lease: &Lease,
        until: Instant,
    ) -> Op {
        let key = self.keys.holder(resource);
        let value = record.encode();
        Op {
            claims: Some(resource.clone()),
            bytes: 2 * key.len() + value.len(),
            when: vec![Compare::mod_revision(
                key.clone(),
                CompareOp::Equal,
                pair.mod_revision(),
            )],
            then: vec![TxnOp::put(key, value, Some(PutOptions::new().with_lease(lease.id)))],
            otherwise: Vec::new(),
            until,
            lease: Some(*lease),
        }
    }
}

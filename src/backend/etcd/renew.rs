//! RENEW: reads the key, then keeps its lease alive, or moves it to another: for
//! another TTL, or because its lease is not known to be of this era.

use std::sync::Arc;

use etcd_client::{KeyValue, TxnOp, TxnOpResponse};
use tokio::time::Instant;

use super::{
    acquire::revision, backend::Core, failure::Failure, grants::LocalGrant, keeper::KeepError,
    leases::lease_ttl_s, op::OpError, record::Record,
};
use crate::lock::{BackendError, Renewal, Renewed, ResourceId};

impl Core {
    /// Starts the TTL of a live grant again. The key is compared as well as the
    /// lease: a lease may outlive a key that somebody deleted.
    pub(super) async fn renew(
        &self,
        renewal: &Renewal,
        until: Instant,
    ) -> Result<Renewed, BackendError> {
        let asked_s = lease_ttl_s(renewal.ttl);
        let mut unknown: Option<(i64, Instant, LocalGrant)> = None;
        // A rewrite whose answer was lost may be applied for as long as the key
        // is unchanged, whatever is read meanwhile.
        let mut may_have_happened: Option<Arc<str>> = None;
        let known = |error: BackendError, lost: &Option<Arc<str>>| match (error, lost) {
            (BackendError::Unavailable(_), Some(why)) => BackendError::Unknown(Arc::clone(why)),
            (error, _) => error,
        };
        loop {
            let pair = self.holder(&renewal.resource, until).await;
            let pair =
                pair.map_err(|failure| known(failure.unavailable(), &may_have_happened))?;
            let Some((pair, record)) = owned(pair.as_ref(), renewal)? else {
                return Err(BackendError::NotHeld { held: pair.is_some() });
            };
            if let Some((lease_before, asked, grant)) =
                unknown.take().filter(|(.., grant)| grant.lease.id == pair.lease())
            {
                let renewed = Renewed { ttl: grant.lease.grant_ttl(), since: asked };
                let written = Some(revision(pair.mod_revision()));
                self.rehouse(&renewal.resource, lease_before, LocalGrant { written, ..grant });
                return Ok(renewed);
            }
            let token = revision(pair.create_revision());
            // Of another process's lease, or of one that etcd kept for longer
            // than its TTL, it is not known of which era it is.
            let is_of_this_era =
                self.grants.named(&renewal.resource, &renewal.lock_id).is_some_and(|grant| {
                    grant.token == token && !self.leases.is_of_before(&grant.lease)
                });
            if record.lease_ttl_s == asked_s && pair.lease() != 0 && is_of_this_era {
                match self.keeper.keep_alive(pair.lease(), until).await {
                    Ok(kept) => {
                        self.grants.refreshed(&renewal.resource, token, kept.sent);
                        let ttl = std::time::Duration::from_secs(kept.ttl_s)
                            .saturating_sub(super::pool::SLACK);
                        return Ok(Renewed { ttl, since: kept.sent });
                    }
                    // The key went with it; reading says what is there now.
                    Err(KeepError::Dead) if Instant::now() < until => {
                        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                        continue;
                    }
                    Err(KeepError::Dead) => {
                        return Err(BackendError::Unknown("the lease is about to end".into()));
                    }
                    Err(KeepError::Failed(why)) => return Err(BackendError::Unknown(why)),
                }
            }
            let lease = self.leases.take_another(asked_s, until).await;
            let lease =
                lease.map_err(|failure| known(failure.unavailable(), &may_have_happened))?;
            let asked = Instant::now();
            let lock_id = renewal.lock_id.clone();
            let grant = LocalGrant { lock_id, token, written: None, lease, attempt: None };
            let value = record.with_ttl(asked_s);
            let op = self.holder_rewrite(&renewal.resource, pair, &value, &lease, until);
            match self.commit(op).await {
                Ok(reply) if reply.succeeded => {
                    let grant = LocalGrant { written: Some(reply.revision), ..grant };
                    self.rehouse(&renewal.resource, pair.lease(), grant);
                    return Ok(Renewed { ttl: lease.grant_ttl(), since: reply.sent });
                }
                Ok(_) => self.leases.give(lease),
                Err(OpError::Unknown(why) | OpError::OutOfSpace(why)) => {
                    if Instant::now() >= until {
                        return Err(BackendError::Unknown(why));
                    }
                    unknown = Some((pair.lease(), asked, grant));
                    may_have_happened = Some(why);
                }
                Err(error) => self
                    .not_written(lease, &error, until)
                    .map_err(|error| known(error, &may_have_happened))?,
            }
        }
    }

    /// The holder's key, read linearizably.
    pub(super) async fn holder(
        &self,
        resource: &ResourceId,
        until: Instant,
    ) -> Result<Option<KeyValue>, Failure> {
        let get = TxnOp::get(self.keys.holder(resource), None);
        let read = self.connection.read(vec![get], until).await?;
        Ok(match read.op_responses().into_iter().next() {
            Some(TxnOpResponse::Get(mut get)) => get.take_kvs().into_iter().next(),
            _ => None,
        })
    }
}

/// The pair and its record, if the renewal's lock ID is its grant's.
fn owned<'a>(
    pair: Option<&'a KeyValue>,
    renewal: &Renewal,
) -> Result<Option<(&'a KeyValue, Record)>, BackendError> {
    let Some(pair) = pair else { return Err(BackendError::NotHeld { held: false }) };
    Ok(Record::decode(pair.value())
        .filter(|record| record.is(&renewal.lock_id))
        .map(|record| (pair, record)))
}

//! REPLAY: a repeated request finds its grant again.

use etcd_client::KeyValue;
use leasehold_lock::{Attempt, BackendError, FencingToken, Grant};
use tokio::time::Instant;

use crate::{
    core::{BUSY, Core, Failed},
    lease::leases::lease_ttl_s,
    record::Record,
    verbs::{
        held::Held,
        moves::{Moved, NotMoved},
    },
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
        let token = FencingToken::new(held.token.0)
            .ok_or(BackendError::Unknown("etcd's revision is no token".into()))?;
        let lock_id = held.name.lock_id.clone();
        let grant = (attempt.resource.clone(), lock_id.clone());
        let Some(_locked) = self.moved.lock(grant, until).await else {
            return Err(BackendError::Unavailable(BUSY.into()).into());
        };
        let claimed = record.claimed(attempt.id, lease_ttl_s(attempt.ttl));
        match self.move_key(&held, &claimed, until).await {
            Ok(Moved::To(lease, since)) => Ok(Some(Grant {
                id: record.id(),
                lock_id,
                token: Some(token),
                ttl: lease.grant_ttl(),
                since,
                created: false,
            })),
            Ok(Moved::Changed) => Ok(None),
            Err(NotMoved::Not(why)) => Err(BackendError::Unavailable(why).into()),
            Err(NotMoved::Unknown(why)) => Err(BackendError::Unknown(why).into()),
        }
    }
}

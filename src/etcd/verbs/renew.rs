//! RENEW: keeps the grant's lease alive and reads its key, without a raft entry. If the TTL
//! changes, or the lease cannot be trusted (see `moves`), it moves the key to another lease.

use std::{sync::Arc, time::Duration};

use leasehold_lock::{BackendError, Renewal, Renewed};
use tokio::time::{Instant, sleep};

use crate::{
    core::{BUSY, Core},
    lease::{keeper::KeepError, leases::lease_ttl_s, pool::SLACK},
    verbs::moves::{Moved, NotMoved},
};

/// The delay between reads of a key whose lease has ended, which is about to be deleted.
const DEAD_DELAY: Duration = Duration::from_millis(5);
/// How long a renewal waits for a move after an election.
const MOVE_TIMEOUT: Duration = Duration::from_secs(1);

impl Core {
    /// Starts the TTL of a live grant again. The key is checked as well as the lease, because
    /// a lease outlives a key that somebody deleted.
    ///
    /// The key is read after the keep-alive, because etcd fills in the header of a
    /// keep-alive's answer before it carries it out. Only the answer to a later request shows
    /// under which leader the keep-alive was carried out.
    pub(crate) async fn renew(
        &self,
        renewal: &Renewal,
        until: Instant,
    ) -> Result<Renewed, BackendError> {
        let resource = &renewal.resource;
        let grant = (resource.clone(), renewal.lock_id.clone());
        let Some(_locked) = self.moved.lock(grant, until).await else {
            return Err(BackendError::Unavailable(BUSY.into()));
        };
        let asked_s = lease_ttl_s(renewal.ttl);
        loop {
            let known = self.grants.named(resource, &renewal.lock_id);
            let (mut kept, mut dead) = (None, None);
            if let Some(grant) = known.as_ref().filter(|grant| grant.lease.asked_s == asked_s) {
                match self
                    .keeper
                    .keep_alive(grant.lease.id, grant.ends().running(), until)
                    .await
                {
                    Ok(alive) => kept = Some((grant.lease.id, alive)),
                    Err(KeepError::Dead) => dead = Some(grant.lease.id),
                    Err(KeepError::Failed(why)) => return Err(BackendError::Unknown(why)),
                }
            }
            let name = known.as_ref().map(|grant| &grant.name);
            let found = match self.find(resource, &renewal.lock_id, name, until).await {
                Ok(found) => found,
                Err(failure) if kept.is_none() => return Err(failure.unavailable()),
                Err(failure) => return Err(BackendError::Unknown(Arc::clone(failure.why()))),
            };
            let Some(held) = found.grant else {
                if let Some(ended) = known {
                    self.ended_elsewhere(resource, &ended.name, ended.token);
                }
                return Err(BackendError::NotHeld { held: found.is_held });
            };
            let grant = self.known(&held);
            let (id, record) = (held.record.id(), held.record.with_ttl(asked_s));
            if held.record.lease_ttl_s != asked_s || held.lease() == 0 {
                match self.move_key(&held, &record, until).await {
                    Ok(Moved::To(lease, since)) => {
                        return Ok(Renewed { id, ttl: lease.grant_ttl(), since });
                    }
                    Ok(Moved::Changed) => continue,
                    Err(NotMoved::Not(why)) => return Err(BackendError::Unavailable(why)),
                    Err(NotMoved::Unknown(why)) => return Err(BackendError::Unknown(why)),
                }
            }
            let alive = match kept.filter(|(lease, _)| *lease == held.lease()) {
                Some((_, alive)) => Ok(alive),
                // The key is about to be deleted.
                None if dead == Some(held.lease()) => Err(KeepError::Dead),
                None => self.keeper.keep_alive(held.lease(), until, until).await,
            };
            let alive = match alive {
                Ok(alive) => alive,
                Err(KeepError::Dead) if Instant::now() + DEAD_DELAY < until => {
                    sleep(DEAD_DELAY).await;
                    continue;
                }
                Err(KeepError::Dead) => {
                    return Err(BackendError::Unknown("the lease is about to end".into()));
                }
                Err(KeepError::Failed(why)) => return Err(BackendError::Unknown(why)),
            };
            let ttl = Duration::from_secs(alive.ttl_s).saturating_sub(SLACK);
            let renewed = Renewed { id, ttl, since: alive.sent };
            // It is not known when another process's lease was granted.
            let is_safe = grant.is_some_and(|grant| {
                self.grants.refreshed(resource, &grant.name, grant.lease.id, alive.sent);
                self.is_of_this_term(&grant.lease)
            });
            if is_safe {
                return Ok(renewed);
            }
            // Among too many, the next renewal moves it.
            let Ok(_permit) = self.moving.try_acquire() else { return Ok(renewed) };
            let until = until.min(Instant::now() + MOVE_TIMEOUT);
            match self.move_key(&held, &record, until).await {
                Ok(Moved::To(lease, since)) => {
                    return Ok(Renewed { id, ttl: lease.grant_ttl(), since });
                }
                Ok(Moved::Changed) => {}
                // The lease is alive anyway, and one that the key is moved to later lasts
                // longer than what is returned here.
                Err(NotMoved::Not(_) | NotMoved::Unknown(_)) => return Ok(renewed),
            }
        }
    }
}

//! RENEW: keeps the grant's lease alive and reads its key, without a raft entry. If the TTL
//! changes, or the lease cannot be trusted, it moves the grant to another lease. A repeated
//! request that finds its grant does so too.
//!
//! After an election, leases of earlier terms cannot be trusted (see `client::terms`). A grant
//! is safe until the end that it had when the former leader last heard of it. So nothing reports
//! a later end before the grant lies under a lease of the new term, unless it cannot be moved:
//! a holder that lost its lock whenever the database is full would be worse off.

use std::{sync::Arc, time::Duration};

use leasehold_lock::{Attempt, BackendError, FencingToken, Grant, Renewal, Renewed};
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep},
};

use crate::{
    etcd::Etcd,
    grants::{
        find::{By, Held},
        write::Writer,
    },
    lease::{keep_alives::KeepAlives, pool::SLACK, ttl::lease_ttl_s},
};

/// The delay between reads of a key whose lease has ended, which is about to be deleted.
const DEAD_DELAY: Duration = Duration::from_millis(5);
/// How long a renewal waits for a move after an election.
const MOVE_TIMEOUT: Duration = Duration::from_secs(1);
/// How many grants may be moved at the same time after an election: fewer than a sidecar's
/// renewals in flight, so that other renewals are answered meanwhile. Each needs a lease, few
/// of which are granted at once, and acquisitions need some too.
const MOVING_MAX: usize = 128;

/// Renews live grants.
pub(crate) struct Renewals {
    etcd: Arc<Etcd>,
    writer: Arc<Writer>,
    keep_alives: KeepAlives,
    /// Limits the moves to other leases after an election.
    moving: Semaphore,
}

impl Renewals {
    pub(crate) fn new(etcd: Arc<Etcd>, writer: Arc<Writer>, keep_alives: KeepAlives) -> Self {
        Self { etcd, writer, keep_alives, moving: Semaphore::new(MOVING_MAX) }
    }

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
        let Renewal { resource, lock_id, ttl } = renewal;
        let (grants, asked_s) = (&self.writer.grants, lease_ttl_s(*ttl));
        loop {
            let known = grants.named(resource, lock_id);
            // The lease that was kept alive, and for how long; `None` if it has ended.
            let kept = match known.as_ref().filter(|grant| grant.lease.asked_s == asked_s) {
                Some(grant) => {
                    let (id, needed_by) = (grant.lease.id, grant.ends().running());
                    Some((id, self.keep_alives.keep_alive(id, needed_by, until).await?))
                }
                None => None,
            };
            let mode = known.as_ref().map(|grant| grant.name.mode);
            let found = self.etcd.find(resource, By::LockId(lock_id), mode, until).await;
            let found = found.map_err(|failure| match kept {
                Some((_, Some(_))) => BackendError::Unknown(Arc::clone(failure.why())),
                _ => failure.unavailable(),
            })?;
            let Some(held) = found.grant else {
                if let Some(ended) = known {
                    grants.forget(resource, &ended.name, (ended.token, ended.written));
                }
                return Err(BackendError::NotHeld { held: found.is_held });
            };
            let known = grants.found(&held);
            let (id, record) = (held.record.id(), held.record.with_ttl(asked_s));
            if held.record.lease_ttl_s != asked_s || held.lease() == 0 {
                match self.writer.rewrite(&held, &record, until).await? {
                    Some(placed) => return Ok(placed.renewed(id)),
                    None => continue,
                }
            }
            let alive = match kept {
                Some((lease, alive)) if lease == held.lease() => alive,
                _ => self.keep_alives.keep_alive(held.lease(), until, until).await?,
            };
            let Some(alive) = alive else {
                // The key is about to be deleted.
                if Instant::now() + DEAD_DELAY >= until {
                    return Err(BackendError::Unknown("the lease is about to end".into()));
                }
                sleep(DEAD_DELAY).await;
                continue;
            };
            let ttl = Duration::from_secs(alive.ttl_s).saturating_sub(SLACK);
            let renewed = Renewed { id, ttl, since: alive.sent };
            // It is not known when another process's lease was granted.
            let is_safe = known.is_some_and(|grant| {
                grants.refreshed(resource, &grant.name, grant.lease.id, alive.sent);
                self.writer.grants.leases.is_of_this_term(&grant.lease)
            });
            if is_safe {
                return Ok(renewed);
            }
            // Among too many, the next renewal moves it.
            let Ok(_permit) = self.moving.try_acquire() else { return Ok(renewed) };
            let until = until.min(Instant::now() + MOVE_TIMEOUT);
            match self.writer.rewrite(&held, &record, until).await {
                Ok(Some(placed)) => return Ok(placed.renewed(id)),
                Ok(None) => {}
                // The lease is alive anyway, and one that the key is moved to later lasts
                // longer than what is returned here.
                Err(_) => return Ok(renewed),
            }
        }
    }

    /// Claims the live grant for a repeated request: no attempt may undo it any more, and
    /// its TTL starts again, under a lease of this process, so that whoever still cleans up
    /// after the first attempt cannot end it. `None` if the grant has changed meanwhile.
    pub(crate) async fn claim(
        &self,
        attempt: &Attempt,
        held: &Held<'_>,
        until: Instant,
    ) -> Result<Option<Grant>, BackendError> {
        if let Some(field) = held.record.mismatch(attempt) {
            return Err(BackendError::ReplayMismatch { field });
        }
        let token = FencingToken::new(held.token.0)
            .ok_or(BackendError::Unknown("etcd's revision is no token".into()))?;
        let claimed = held.record.claimed(attempt.id, lease_ttl_s(attempt.ttl));
        let placed = self.writer.rewrite(held, &claimed, until).await?;
        Ok(placed.map(|placed| Grant {
            id: held.record.id(),
            lock_id: held.name.lock_id.clone(),
            token: Some(token),
            ttl: placed.lease.grant_ttl(),
            since: placed.since,
            created: false,
        }))
    }
}

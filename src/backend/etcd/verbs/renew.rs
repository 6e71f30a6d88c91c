//! RENEW: keeps the grant's lease alive and reads its key, without a raft entry. If the TTL
//! changes, or the lease cannot be trusted (see `moves`), it moves the key to another lease.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep};

use crate::{
    backend::etcd::{
        client::failure::Failure,
        core::{BUSY, Core},
        lease::{keeper::KeepError, leases::lease_ttl_s, pool::SLACK},
        verbs::moves::{Moved, NotMoved, Unsettled},
    },
    lock::{BackendError, Renewal, Renewed},
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
        let mut unsettled = Vec::new();
        let renewed = self.renew_locked(renewal, until, &mut unsettled).await;
        // The next renewal must find out under which lease the grant lies.
        if !unsettled.is_empty()
            && matches!(renewed, Err(BackendError::Unknown(_)))
            && let Some(known) = self.grants.named(resource, &renewal.lock_id)
        {
            self.lose_track(resource, &known.name, known.token);
        }
        renewed
    }

    /// `unsettled` takes the moves whose answers were lost, until they are settled.
    async fn renew_locked(
        &self,
        renewal: &Renewal,
        until: Instant,
        unsettled: &mut Vec<Unsettled>,
    ) -> Result<Renewed, BackendError> {
        let resource = &renewal.resource;
        let asked_s = lease_ttl_s(renewal.ttl);
        loop {
            let known = self.grants.named(resource, &renewal.lock_id);
            let (mut kept, mut dead) = (None, None);
            if let Some(grant) = known.as_ref().filter(|grant| grant.lease.asked_s == asked_s) {
                match self.keeper.keep_alive(grant.lease.id, grant.ends(), until).await {
                    Ok(alive) => kept = Some((grant.lease.id, alive)),
                    Err(KeepError::Dead) => dead = Some(grant.lease.id),
                    Err(KeepError::Failed(why)) => return Err(BackendError::Unknown(why)),
                }
            }
            let name = known.as_ref().map(|grant| &grant.name);
            let found = match self.find(resource, &renewal.lock_id, name, until).await {
                Ok(found) => found,
                Err(failure) if kept.is_none() => {
                    return Err(step_error(failure, unsettled));
                }
                Err(failure) => return Err(BackendError::Unknown(Arc::clone(failure.why()))),
            };
            if let Some(renewed) = self.settle(resource, found.grant.as_ref(), unsettled) {
                return Ok(renewed);
            }
            let Some(held) = found.grant else {
                if let Some(ended) = known {
                    self.ended_elsewhere(resource, &ended.name, ended.token);
                }
                return Err(BackendError::NotHeld { held: found.is_held });
            };
            let grant = self.known(&held);
            if held.record.lease_ttl_s != asked_s || held.lease() == 0 || !unsettled.is_empty()
            {
                match self.move_key(&held, asked_s, until).await {
                    Ok(Moved::To(renewed)) => {
                        self.overtaken(unsettled);
                        return Ok(renewed);
                    }
                    Ok(Moved::Changed) => {}
                    Err(NotMoved::Unknown(lost)) if Instant::now() < until => {
                        unsettled.push(*lost);
                    }
                    Err(NotMoved::Unknown(lost)) => {
                        self.lose_track(resource, &held.name, held.token);
                        return Err(BackendError::Unknown(lost.why));
                    }
                    Err(NotMoved::Not(why)) => {
                        return Err(step_error(Failure::NotSent(why), unsettled));
                    }
                }
                continue;
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
            let renewed = Renewed { id: held.record.id(), ttl, since: alive.sent };
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
            match self.move_key(&held, asked_s, until).await {
                Ok(Moved::To(renewed)) => return Ok(renewed),
                Ok(Moved::Changed) => {}
                // The lease is alive anyway.
                Err(NotMoved::Not(_)) => return Ok(renewed),
                // If the key is moved later, then to a lease that lasts longer than what is
                // returned here.
                Err(NotMoved::Unknown(_)) => {
                    self.lose_track(resource, &held.name, held.token);
                    return Ok(renewed);
                }
            }
        }
    }
}

/// The error of a step that changed nothing, perhaps after a move of unknown outcome.
fn step_error(failure: Failure, unsettled: &[Unsettled]) -> BackendError {
    match unsettled.last() {
        Some(unsettled) => BackendError::Unknown(Arc::clone(&unsettled.why)),
        None => failure.unavailable(),
    }
}

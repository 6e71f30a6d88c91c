//! RENEW: keeps the grant's lease alive and looks at its key, without a raft write; or
//! moves the key to another lease: for another TTL, or because it cannot be trusted
//! that the lease lives on (see [`crate::backend::etcd::verbs::moves`]).

use std::{sync::Arc, time::Duration};

use etcd_client::KeyValue;
use tokio::time::{Instant, sleep};

use crate::{
    backend::etcd::{
        client::failure::Failure,
        core::Core,
        lease::{keeper::KeepError, leases::lease_ttl_s, pool::SLACK},
        record::Record,
        verbs::{
            acquire::revision,
            moves::{Held, Moved, NotMoved, Unsettled},
            replay::BUSY,
        },
    },
    lock::{BackendError, LockId, Renewal, Renewed, ResourceId},
};

/// Between looks at a key whose lease is dead: it is about to go.
const DEAD_DELAY: Duration = Duration::from_millis(5);
/// A grant that is sure to live for so much longer is moved in the background.
const HURRY: Duration = Duration::from_secs(2);
/// How long a renewal that is in a hurry waits for the move.
const MOVE_TIMEOUT: Duration = Duration::from_secs(1);

impl Core {
    /// Starts the TTL of a live grant again. The key is compared as well as the lease: a
    /// lease may outlive a key that somebody deleted.
    ///
    /// The look comes after the keep-alive, because the header of a keep-alive's answer
    /// is older than the answer: only an answer to what is sent later shows under which
    /// leader it was carried out.
    pub(crate) async fn renew(
        &self,
        renewal: &Renewal,
        until: Instant,
    ) -> Result<Renewed, BackendError> {
        let resource = &renewal.resource;
        let Some(_turn) = self.turns.take(resource, until).await else {
            return Err(BackendError::Unavailable(BUSY.into()));
        };
        let mut unsettled = None;
        let renewed = self.renew_in_turn(renewal, until, &mut unsettled).await;
        // The next renewal must find out under which lease the grant is.
        if unsettled.is_some()
            && matches!(renewed, Err(BackendError::Unknown(_)))
            && let Some(known) = self.grants.named(resource, &renewal.lock_id)
        {
            self.lose_track(resource, known.token);
        }
        renewed
    }

    /// `unsettled` is a move whose answer was lost: it may be applied for as long as the
    /// key is unchanged, whatever is read meanwhile.
    async fn renew_in_turn(
        &self,
        renewal: &Renewal,
        until: Instant,
        unsettled: &mut Option<Box<Unsettled>>,
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
            let pair = match self.holder(resource, until).await {
                Ok(pair) => pair,
                Err(failure) if kept.is_none() => {
                    return Err(told(failure, unsettled.as_deref()));
                }
                Err(failure) => return Err(BackendError::Unknown(Arc::clone(failure.why()))),
            };
            let Some(held) = Held::of(resource, pair.as_ref(), &renewal.lock_id) else {
                if let Some(ended) = known {
                    self.ended_elsewhere(resource, ended.token);
                }
                return Err(BackendError::NotHeld { held: pair.is_some() });
            };
            if let Some(unsettled) = unsettled
                && let Some(renewed) = self.settled(&held, unsettled)
            {
                return Ok(renewed);
            }
            let grant = self.known(&held);
            if held.record.lease_ttl_s != asked_s || held.lease() == 0 || unsettled.is_some() {
                match self.move_key(&held, asked_s, until).await {
                    Ok(Moved::To(renewed)) => return Ok(renewed),
                    Ok(Moved::Changed) => {}
                    Err(NotMoved::Unknown(lost)) if Instant::now() < until => {
                        *unsettled = Some(lost);
                    }
                    Err(NotMoved::Unknown(lost)) => {
                        self.lose_track(resource, held.token);
                        return Err(BackendError::Unknown(lost.why));
                    }
                    Err(NotMoved::Not(why)) => {
                        return Err(told(Failure::NotSent(why), unsettled.as_deref()));
                    }
                }
                continue;
            }
            let alive = match kept.filter(|(lease, _)| *lease == held.lease()) {
                Some((_, alive)) => Ok(alive),
                // The key is about to go.
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
            let renewed = Renewed { ttl, since: alive.sent };
            let hurries = match grant {
                // When another process's lease was granted is not known.
                None => true,
                Some(grant) => {
                    let term = self.connection.era().term;
                    self.grants.refreshed(resource, grant.lease.id, alive.sent, term);
                    grant.lease.era.term != term && grant.sure_until < Instant::now() + HURRY
                }
            };
            if !hurries {
                return Ok(renewed);
            }
            match self.move_soon(&held, until.min(Instant::now() + MOVE_TIMEOUT)).await {
                Ok(Moved::To(renewed)) => return Ok(renewed),
                Ok(Moved::Changed) => {}
                // The lease is alive all the same.
                Err(NotMoved::Not(_)) => return Ok(renewed),
                // If the key is moved later, then to a lease that lives for longer than
                // is told here.
                Err(NotMoved::Unknown(_)) => {
                    self.lose_track(resource, held.token);
                    return Ok(renewed);
                }
            }
        }
    }

    /// The holder's key, read linearizably.
    pub(crate) async fn holder(
        &self,
        resource: &ResourceId,
        until: Instant,
    ) -> Result<Option<KeyValue>, Failure> {
        self.looks.look(self.keys.holder(resource), until).await
    }
}

impl<'a> Held<'a> {
    /// What was read, if the lock ID is its grant's.
    pub(crate) fn of(
        resource: &'a ResourceId,
        pair: Option<&'a KeyValue>,
        lock_id: &'a LockId,
    ) -> Option<Self> {
        let pair = pair?;
        let record = Record::decode(pair.value()).filter(|record| record.is(lock_id))?;
        Some(Self { resource, lock_id, pair, record, token: revision(pair.create_revision()) })
    }
}

/// What is told of a step that changed nothing, after a move whose outcome is unknown.
fn told(failure: Failure, unsettled: Option<&Unsettled>) -> BackendError {
    match unsettled {
        Some(unsettled) => BackendError::Unknown(Arc::clone(&unsettled.why)),
        None => failure.unavailable(),
    }
}

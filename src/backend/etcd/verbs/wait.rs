//! WAIT: enters the queue, waits for the turn, and promotes itself.

use std::sync::Arc;

use etcd_client::{Compare, CompareOp, GetOptions, TxnOp};
use tokio::time::Instant;

use crate::{
    backend::etcd::{
        client::failure::Failure,
        commit::op::{Op, OpError},
        core::{Core, Ended, Leftover},
        lease::{grants::Flight, leases::lease_ttl_s, pool::Lease},
        queue::{
            place::{Place, Turn},
            session::{Entered, Session},
            waiters::FULL,
        },
        verbs::acquire::{Resolved, as_etcd, revision, unavailable},
    },
    lock::{Attempt, BackendError, Grant},
};

/// What a promotion came to.
enum Promoted {
    /// Granted.
    Granted(Grant),
    /// Somebody holds the resource after all, since this revision.
    Held(u64),
    /// The entry is gone.
    Lost,
}

/// An entry that was put.
struct Entry {
    session: Arc<Session>,
    key: String,
    /// Since when it stands in the queue.
    entered: u64,
    /// How many lists of the queue had been begun when that was known.
    lists_begun: u64,
}

impl Entry {
    fn leftover(self) -> Leftover {
        Leftover::Entry(self.session, self.key)
    }
}

impl Core {
    /// Waits until granted, or until the flight is not wanted any more.
    pub(crate) async fn wait(
        self: &Arc<Self>,
        attempt: &Attempt,
        flight: &Flight,
    ) -> Result<Grant, Ended> {
        let _slot = self.waiters.enter()?;
        if let Some(grant) = self.acquire_at_once(attempt).await? {
            return Ok(grant);
        }
        let mut place = self.queues.join(self, &attempt.resource)?;
        loop {
            tokio::select! {
                biased;
                () = flight.unwanted.cancelled() => return Err(abandoned()),
                ready = place.ready() => ready.map_err(unavailable)?,
            }
            if place.is_full(self.settings.waiters_per_resource_max) {
                return Err(BackendError::TooManyWaiters(FULL).into());
            }
            let Some(entry) = self.enter(attempt, flight, &mut place).await? else {
                continue;
            };
            match self.wait_in(attempt, flight, &place, &entry).await {
                Ok(Some(grant)) => {
                    place.leave();
                    return Ok(grant);
                }
                // The place was lost; at the end of the queue, then.
                Ok(None) => {}
                Err(mut ended) => {
                    place.leave();
                    if self.sessions.delete_entry(&entry.key, self.step_until()).await.is_err()
                    {
                        ended.leftovers.push(entry.leftover());
                    }
                    return Err(ended);
                }
            }
        }
    }

    /// What a try would do, unless it is known to be in vain.
    async fn acquire_at_once(&self, attempt: &Attempt) -> Result<Option<Grant>, Ended> {
        if attempt.request_id.is_none() && self.queues.is_contended(&attempt.resource) {
            return Ok(None);
        }
        let first = self.grants.first_try(&attempt.resource);
        if attempt.request_id.is_none() && first.is_none() {
            return Ok(None);
        }
        let until = self.step_until();
        match self.acquire(attempt, until).await {
            Ok(grant) => Ok(Some(grant)),
            Err(Ended { error: BackendError::Locked { .. }, .. }) => Ok(None),
            Err(ended) if self.is_only_slow(&ended.error, until) => Ok(None),
            Err(ended) => Err(ended),
        }
    }

    /// Puts an entry; `None` if that is to be tried again.
    async fn enter(
        &self,
        attempt: &Attempt,
        flight: &Flight,
        place: &mut Place,
    ) -> Result<Option<Entry>, Ended> {
        let until = self.step_until();
        let session =
            self.sessions.current(until).await.map_err(|error| unavailable(error.why()))?;
        let id = session.next_entry();
        let key = self.keys.entry(&attempt.resource, &id);
        place.enter(id);
        let (value, unwanted) = (attempt.id.to_string(), &flight.unwanted);
        match self.sessions.enter(&session, &key, value, until, unwanted).await {
            Ok(Entered::At(entered)) => {
                let lists_begun = place.lists_begun();
                Ok(Some(Entry { session, key, entered, lists_begun }))
            }
            Ok(Entered::SessionLost) => Ok(None),
            Err(OpError::Unknown(why)) => Err(Ended {
                error: BackendError::Unknown(why),
                leftovers: vec![Leftover::Entry(session, key)],
            }),
            Err(error) => {
                let ended = unavailable(error.why());
                if self.is_only_slow(&ended.error, until) { Ok(None) } else { Err(ended) }
            }
        }
    }

    /// Waits with an entry; `None` if that is gone.
    async fn wait_in(
        &self,
        attempt: &Attempt,
        flight: &Flight,
        place: &Place,
        entry: &Entry,
    ) -> Result<Option<Grant>, Ended> {
        loop {
            let turn = tokio::select! {
                biased;
                () = flight.unwanted.cancelled() => return Err(abandoned()),
                turn = place.turn(entry.entered, entry.lists_begun) => turn,
            };
            match turn {
                Turn::Mine => match self.promote(attempt, flight, entry).await? {
                    Promoted::Granted(grant) => return Ok(Some(grant)),
                    Promoted::Held(since) => place.saw_holder(since),
                    Promoted::Lost => return Ok(None),
                },
                Turn::Lost => return Ok(None),
                Turn::Outage(why) => return Err(unavailable(why)),
            }
        }
    }

    async fn promote(
        &self,
        attempt: &Attempt,
        flight: &Flight,
        entry: &Entry,
    ) -> Result<Promoted, Ended> {
        let mut until = self.step_until();
        loop {
            let lease = match self.lease_while_wanted(attempt, flight, until).await {
                Ok(lease) => lease,
                Err(ended) if self.is_only_slow(&ended.error, until) => {
                    until = self.step_until();
                    continue;
                }
                Err(ended) => return Err(ended),
            };
            let asked = Instant::now();
            let op = self.promote_op(attempt, entry, &lease, until);
            match self.committer.commit_while_wanted(op, &flight.unwanted).await {
                Ok(reply) if reply.succeeded => {
                    let grant = self.granted(attempt, lease, reply.revision, reply.sent)?;
                    return Ok(Promoted::Granted(grant));
                }
                Ok(reply) => {
                    self.leases.give(lease);
                    return Ok(match reply.pair(0) {
                        Some(holder) => Promoted::Held(revision(holder.mod_revision())),
                        None => Promoted::Lost,
                    });
                }
                Err(error @ (OpError::Unknown(_) | OpError::OutOfSpace(_))) => {
                    // The write may have used up the step's time.
                    until = self.step_until();
                    match self.resolve(attempt, &lease, until).await {
                        Ok(Resolved::Made(token)) => {
                            return Ok(Promoted::Granted(
                                self.granted(attempt, lease, token, asked)?,
                            ));
                        }
                        // etcd answers, so the waiter tries again.
                        Ok(Resolved::Undone) if error.is_passing() => {
                            until = self.step_until();
                        }
                        Ok(Resolved::Undone) => return Err(unavailable(error.why())),
                        Err(_) => {
                            let leftovers = vec![Leftover::Lease(lease.id)];
                            let error = BackendError::Unknown(error.why());
                            return Err(Ended { error, leftovers });
                        }
                    }
                }
                Err(error) => match self.not_written(lease, &error, until) {
                    Err(error) if self.is_only_slow(&error, until) => {
                        until = self.step_until();
                    }
                    written => written?,
                },
            }
        }
    }

    /// Whether a step failed only because its time was over while etcd answered other
    /// requests. That happens when many waiters come, or many resources become free, at
    /// once. It is no outage, so the waiter goes on.
    fn is_only_slow(&self, error: &BackendError, until: Instant) -> bool {
        matches!(error, BackendError::Unavailable(_))
            && Instant::now() + self.settings.operation_timeout / 2 >= until
            && self.connection.is_answering()
    }

    /// A lease; if the caller goes away meanwhile, it is kept for the next one
    /// when it comes, and the caller does not wait for it.
    async fn lease_while_wanted(
        &self,
        attempt: &Attempt,
        flight: &Flight,
        until: Instant,
    ) -> Result<Lease, Ended> {
        let (leases, asked_s) = (Arc::clone(&self.leases), lease_ttl_s(attempt.ttl));
        let mut take = tokio::spawn(async move { leases.take(asked_s, until).await });
        tokio::select! {
            biased;
            () = flight.unwanted.cancelled() => {
                let leases = Arc::clone(&self.leases);
                self.background.spawn(async move {
                    if let Ok(Ok(lease)) = take.await {
                        leases.give(lease);
                    }
                });
                Err(abandoned())
            }
            taken = &mut take => match taken {
                Ok(taken) => Ok(taken.map_err(Failure::unavailable)?),
                Err(_) => Err(unavailable("the store is closing".into())),
            },
        }
    }

    /// Nothing stands before the entry, and nothing ever will, so that needs
    /// no comparison.
    fn promote_op(
        &self,
        attempt: &Attempt,
        entry: &Entry,
        lease: &Lease,
        until: Instant,
    ) -> Op {
        let (key, put, bytes) = self.holder_put(attempt, lease);
        let at = as_etcd(entry.entered);
        Op {
            claims: Some(attempt.resource.clone()),
            enters: false,
            bytes: 2 * bytes + 2 * entry.key.len(),
            when: vec![
                Compare::create_revision(key.clone(), CompareOp::Equal, 0),
                Compare::create_revision(entry.key.clone(), CompareOp::Equal, at),
            ],
            then: vec![put, TxnOp::delete(entry.key.clone(), None)],
            otherwise: vec![TxnOp::get(key, Some(GetOptions::new().with_keys_only()))],
            until,
            lease: Some(*lease),
        }
    }
}

/// Nobody hears it.
fn abandoned() -> Ended {
    BackendError::Unavailable("the caller has gone".into()).into()
}

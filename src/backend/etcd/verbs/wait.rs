//! WAIT: enters the queue, waits for the turn, and takes the lock.

use std::sync::Arc;

use etcd_client::KeyValue;
use tokio::time::Instant;

use crate::{
    backend::etcd::{
        client::failure::Failure,
        commit::op::{Op, OpError},
        core::{Core, Failed, Leftover},
        flights::Flight,
        lease::{leases::lease_ttl_s, pool::Lease},
        queue::{
            place::{FULL, Place, Turn},
            session::{EntryOutcome, Session},
        },
        record::Record,
        revision::Revision,
        verbs::acquire::{Written, unavailable},
    },
    lock::{Attempt, BackendError, Grant},
};

/// What a promotion came to.
enum Promoted {
    /// Granted.
    Granted(Grant),
    /// Somebody holds the resource after all, since this revision.
    Held(Revision),
    /// The entry is gone.
    Lost,
}

/// An entry that was put.
struct Entry {
    session: Arc<Session>,
    key: String,
    /// The revision at which it was put.
    entered: Revision,
    /// How many lists of the queue had been begun when that was known.
    lists_begun: u64,
}

impl Entry {
    fn leftover(self) -> Leftover {
        Leftover::Entry(self.session, self.key)
    }
}

impl Core {
    /// Waits until granted, or until the caller leaves.
    pub(crate) async fn wait(
        self: &Arc<Self>,
        attempt: &Attempt,
        flight: &Flight,
    ) -> Result<Grant, Failed> {
        let _slot = self.waiters.enter()?;
        if let Some(grant) = self.acquire_at_once(attempt).await? {
            return Ok(grant);
        }
        let mut place = self.queues.join(&attempt.resource)?;
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
                // The entry was lost; a new one comes at the end of the queue.
                Ok(None) => {}
                Err(mut failed) => {
                    place.leave();
                    if self.sessions.delete_entry(&entry.key, self.step_until()).await.is_err()
                    {
                        failed.leftovers.push(entry.leftover());
                    }
                    return Err(failed);
                }
            }
        }
    }

    /// Tries to lock without queueing, unless that is known to fail.
    async fn acquire_at_once(&self, attempt: &Attempt) -> Result<Option<Grant>, Failed> {
        if attempt.request_id.is_none() && self.queues.is_contended(&attempt.resource) {
            return Ok(None);
        }
        let first = self.contention.first_try(&attempt.resource);
        if attempt.request_id.is_none() && first.is_none() {
            return Ok(None);
        }
        let until = self.step_until();
        match self.acquire(attempt, until).await {
            Ok(grant) => Ok(Some(grant)),
            Err(Failed { error: BackendError::Locked { .. }, .. }) => Ok(None),
            Err(failed) if self.is_only_slow(&failed.error, until) => Ok(None),
            Err(failed) => Err(failed),
        }
    }

    /// Puts an entry; `None` if the caller should try again.
    async fn enter(
        &self,
        attempt: &Attempt,
        flight: &Flight,
        place: &mut Place,
    ) -> Result<Option<Entry>, Failed> {
        let until = self.step_until();
        let session =
            self.sessions.current(until).await.map_err(|error| unavailable(error.why()))?;
        let id = session.next_entry();
        let key = self.keys.entry(&attempt.resource, &id);
        place.enter(id);
        let (value, unwanted) = (attempt.id.to_string(), &flight.unwanted);
        match self.sessions.enter(&session, &key, value, until, unwanted).await {
            Ok(EntryOutcome::PutAt(entered)) => {
                let lists_begun = place.lists_begun();
                Ok(Some(Entry { session, key, entered, lists_begun }))
            }
            Ok(EntryOutcome::SessionLost) => Ok(None),
            Err(OpError::Unknown(why)) => Err(Failed {
                error: BackendError::Unknown(why),
                leftovers: vec![Leftover::Entry(session, key)],
            }),
            Err(error) => {
                let failed = unavailable(error.why());
                if self.is_only_slow(&failed.error, until) { Ok(None) } else { Err(failed) }
            }
        }
    }

    /// Waits for the turn of an entry; `None` if the entry is gone.
    async fn wait_in(
        &self,
        attempt: &Attempt,
        flight: &Flight,
        place: &Place,
        entry: &Entry,
    ) -> Result<Option<Grant>, Failed> {
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

    /// Takes the lock for the first in the queue, in as many steps as it takes while etcd is
    /// merely slow.
    async fn promote(
        &self,
        attempt: &Attempt,
        flight: &Flight,
        entry: &Entry,
    ) -> Result<Promoted, Failed> {
        let mut until = self.step_until();
        loop {
            let failed = match self.try_promote(attempt, flight, entry, until).await {
                Ok(Written::Granted(grant)) => return Ok(Promoted::Granted(grant)),
                Ok(Written::NotFree(reply)) => {
                    let held_since = |pair: &KeyValue| Revision::from_etcd(pair.mod_revision());
                    let held = reply.pair().map(held_since).map(Promoted::Held);
                    return Ok(held.unwrap_or(Promoted::Lost));
                }
                Ok(Written::Undone(_)) => {
                    until = self.step_until();
                    continue;
                }
                Ok(Written::Again(_)) if Instant::now() < until => continue,
                Ok(Written::Again(error)) => error.into(),
                Err(failed) => failed,
            };
            if !self.is_only_slow(&failed.error, until) {
                return Err(failed);
            }
            until = self.step_until();
        }
    }

    async fn try_promote(
        &self,
        attempt: &Attempt,
        flight: &Flight,
        entry: &Entry,
        until: Instant,
    ) -> Result<Written, Failed> {
        let lease = self.lease_while_wanted(attempt, flight, until).await?;
        let op = self.promote_op(attempt, entry, &lease, until);
        // The write may use up the step's time, so resolving it gets a step of its own.
        let resolve_until = || self.step_until();
        self.write_grant(attempt, lease, op, &flight.unwanted, resolve_until).await
    }

    /// Whether a step failed only because its time ran out while etcd answered other
    /// requests. That happens when many waiters come, or many resources become free, at
    /// once. It is not an outage, so the waiter goes on.
    fn is_only_slow(&self, error: &BackendError, until: Instant) -> bool {
        matches!(error, BackendError::Unavailable(_))
            && Instant::now() + self.settings.operation_timeout / 2 >= until
            && self.connection.is_answering()
    }

    /// A lease. If the caller leaves meanwhile, this ends at once, and the lease goes to the
    /// pool when it arrives.
    async fn lease_while_wanted(
        &self,
        attempt: &Attempt,
        flight: &Flight,
        until: Instant,
    ) -> Result<Lease, Failed> {
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

    /// No other entry is before this one, and none ever will be, so that needs no comparison.
    fn promote_op(
        &self,
        attempt: &Attempt,
        entry: &Entry,
        lease: &Lease,
        until: Instant,
    ) -> Op {
        let key = self.keys.holder(&attempt.resource);
        Op::of_holder(&attempt.resource, until)
            .when_absent(&key)
            .when_created_at(&entry.key, entry.entered)
            .put_grant(&key, Record::of(attempt, lease.asked_s).encode(), lease)
            .delete(&entry.key)
            .or_get(&key)
    }
}

/// The error of an attempt whose caller has left.
fn abandoned() -> Failed {
    BackendError::Unavailable("the caller has gone".into()).into()
}

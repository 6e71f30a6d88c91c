//! WAIT: enters the queue, waits for the turn, and takes the lock.

use std::sync::Arc;

use leasehold_lock::{Attempt, BackendError, Grant, Mode};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    client::failure::Failure,
    commit::op::{Op, OpError, Reply},
    core::{Core, Failed, Leftover},
    flights::Flight,
    keys::{GrantKeys, GrantName, Part},
    lease::{leases::lease_ttl_s, pool::Lease, taken::Taken},
    queue::{
        place::{FULL, Place, Turn},
        session::{EntryOutcome, Session},
    },
    record::Record,
    revision::Revision,
    verbs::{
        acquire::{Written, unavailable},
        state::Patience,
    },
    waiter_record::WaiterRecord,
};

/// What a promotion came to.
enum Promoted {
    /// Granted, and the entry is gone.
    Granted(Grant),
    /// The grant of an earlier attempt with the same request, beside the entry.
    Found(Grant),
    /// Somebody holds the resource after all: the key, and the revision of its last write.
    Held(Part, Revision),
    /// The entry is gone.
    Lost,
}

/// An entry that was put.
struct Entry {
    /// A session is kept while somebody refers to it.
    _session: Arc<Session>,
    key: String,
    /// The revision at which it was put.
    entered: Revision,
    /// How many lists of the queue had been begun when that was known.
    lists_begun: u64,
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
                Ok(Promoted::Granted(grant)) => {
                    place.leave();
                    return Ok(grant);
                }
                Ok(Promoted::Found(grant)) => {
                    // Otherwise whoever follows the queue removes the entry.
                    let left = self.sessions.delete_entry(&entry.key, self.step_until());
                    if left.await.is_ok() {
                        place.leave();
                    }
                    return Ok(grant);
                }
                // The entry was lost; a new one comes at the end of the queue.
                Ok(Promoted::Lost | Promoted::Held(..)) => {}
                // The caller gets its answer before the entry is deleted: in an outage that
                // would take as long again.
                Err(mut failed) => {
                    place.leave();
                    failed.leftovers.push(Leftover::PutEntry(entry.key));
                    return Err(failed);
                }
            }
        }
    }

    /// Tries to lock without queueing, unless that is known to fail.
    async fn acquire_at_once(&self, attempt: &Attempt) -> Result<Option<Grant>, Failed> {
        let (resource, is_shared) = (&attempt.resource, attempt.mode == Mode::Shared);
        let must_look = attempt.request_id.is_some() || is_shared && attempt.lock_id_given;
        if !must_look && self.queues.is_contended(resource, attempt.mode) {
            return Ok(None);
        }
        let first = self.contention.first_try(resource);
        if !must_look && !is_shared && first.is_none() {
            return Ok(None);
        }
        let until = self.step_until();
        // Of many shared attempts all can succeed. Only the first takes a lease before it
        // knows.
        let read_first = is_shared && first.is_none();
        match self.acquire(attempt, Patience::Wait, read_first, until).await {
            Ok(grant) => Ok(Some(grant)),
            Err(Failed {
                error: BackendError::Locked { .. } | BackendError::TooManyHolders,
                ..
            }) => Ok(None),
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
        let id = session.next_entry(attempt.mode);
        let key = self.keys.entry(&attempt.resource, &id);
        place.enter(id);
        let value = WaiterRecord::of(attempt, self.now_unix_ms()).encode();
        let unwanted = &flight.unwanted;
        match self.sessions.enter(&session, &key, value, until, unwanted).await {
            Ok(EntryOutcome::PutAt(entered)) => {
                let lists_begun = place.lists_begun();
                Ok(Some(Entry { _session: session, key, entered, lists_begun }))
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

    /// Waits for the turn of an entry, until granted or until the entry is gone.
    async fn wait_in(
        &self,
        attempt: &Attempt,
        flight: &Flight,
        place: &Place,
        entry: &Entry,
    ) -> Result<Promoted, Failed> {
        loop {
            let turn = tokio::select! {
                biased;
                () = flight.unwanted.cancelled() => return Err(abandoned()),
                turn = place.turn(entry.entered, entry.lists_begun) => turn,
            };
            match turn {
                Turn::Mine => match self.promote(attempt, flight, entry).await? {
                    Promoted::Held(grant, since) => place.saw(grant, since),
                    promoted => return Ok(promoted),
                },
                Turn::Lost => return Ok(Promoted::Lost),
                Turn::Outage(why) => return Err(unavailable(why)),
            }
        }
    }

    /// Takes the lock for an entry whose turn it is, in as many steps as it takes while etcd
    /// is merely slow.
    async fn promote(
        &self,
        attempt: &Attempt,
        flight: &Flight,
        entry: &Entry,
    ) -> Result<Promoted, Failed> {
        let keys = self.keys.grant(&attempt.resource, &GrantName::of(attempt));
        let (mut until, mut stale) = (self.step_until(), Revision::default());
        loop {
            let unwanted = &flight.unwanted;
            let entry = (entry.key.as_str(), entry.entered);
            let promotion = Promotion { attempt, keys: &keys, entry, stale, until };
            let failed = match self.try_promote(promotion, unwanted).await {
                Ok(Written::Granted(grant)) => return Ok(Promoted::Granted(grant)),
                Ok(Written::NotFree(reply)) if met_a_grant(&keys, &reply) => {
                    let found = self.meet(attempt, &keys, &mut stale, until);
                    match Box::pin(found).await {
                        Ok(Some(grant)) => return Ok(Promoted::Found(grant)),
                        Ok(None) => continue,
                        Err(failed) => failed,
                    }
                }
                Ok(Written::NotFree(reply)) => {
                    let Some(pair) = reply.pair() else { return Ok(Promoted::Lost) };
                    let since = Revision::from_etcd(pair.mod_revision());
                    let part = self.keys.part(&attempt.resource, pair.key());
                    return Ok(Promoted::Held(part, since));
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
        promotion: Promotion<'_>,
        unwanted: &CancellationToken,
    ) -> Result<Written, Failed> {
        let Promotion { attempt, keys, until, .. } = promotion;
        let lease = self.lease_while_wanted(attempt, unwanted, until).await?;
        let record = Record::of(attempt, lease.asked_s, self.now_unix_ms());
        let op = promotion.op(&record, &lease);
        // The write may use up the step's time, so resolving it gets a step of its own.
        let resolve_until = || self.step_until();
        self.write_grant(attempt, keys, lease, op, unwanted, resolve_until).await
    }

    /// Handles a promotion that met a grant with the attempt's lock ID or request: finds the
    /// grant of the same request, or refuses the attempt. `None` if it is to be tried again,
    /// perhaps with another `stale` revision.
    async fn meet(
        &self,
        attempt: &Attempt,
        keys: &GrantKeys,
        stale: &mut Revision,
        until: Instant,
    ) -> Result<Option<Grant>, Failed> {
        let state = self.state(attempt, keys, until).await?;
        match self.refused(attempt, &state, Patience::Wait, stale, until).await {
            // It has ended meanwhile, or an exclusive grant is in the way.
            Err(Failed { error: BackendError::Locked { .. }, .. }) => Ok(None),
            met => met,
        }
    }

    /// Whether a step failed only because its time ran out while etcd answered other
    /// requests. That happens when many waiters come, or many resources become free, at
    /// once. It is not an outage, so the waiter goes on.
    fn is_only_slow(&self, error: &BackendError, until: Instant) -> bool {
        matches!(error, BackendError::Unavailable(_))
            && Instant::now() + self.settings.operation_timeout / 2 >= until
            && self.connection.is_answering()
    }

    /// A lease. If the caller leaves meanwhile, this ends at once, and the lease is kept for
    /// others when it arrives.
    async fn lease_while_wanted(
        &self,
        attempt: &Attempt,
        unwanted: &CancellationToken,
        until: Instant,
    ) -> Result<Taken, Failed> {
        let (leases, asked_s) = (Arc::clone(&self.leases), lease_ttl_s(attempt.ttl));
        let take = tokio::spawn(async move { leases.take(asked_s, until).await });
        tokio::select! {
            biased;
            () = unwanted.cancelled() => Err(abandoned()),
            taken = take => match taken {
                Ok(taken) => Ok(taken.map_err(Failure::unavailable)?),
                Err(_) => Err(unavailable("the store is closing".into())),
            },
        }
    }
}

/// The write that grants to an entry.
#[derive(Clone, Copy)]
pub(super) struct Promotion<'a> {
    pub(super) attempt: &'a Attempt,
    pub(super) keys: &'a GrantKeys,
    /// The entry's key, and the revision at which it was put.
    pub(super) entry: (&'a str, Revision),
    /// The revision of a key for the attempt's request that finds no grant.
    pub(super) stale: Revision,
    pub(super) until: Instant,
}

impl Promotion<'_> {
    /// That no other entry is before this one, or no exclusive one, needs no comparison: none
    /// ever will be.
    pub(super) fn op(&self, record: &Record, lease: &Lease) -> Op {
        let Self { keys, entry: (entry, entered), .. } = *self;
        let op = Op::of_grant(keys, self.until);
        let op = match &keys.shared {
            None => op.when_none_below(&keys.holder).or_get_first_below(&keys.holder),
            Some(shared) => {
                let op = op.when_absent(&keys.holder).when_new(keys, self.stale);
                let op = op.or_get(&keys.holder).or_get(&shared.record);
                keys.request().into_iter().fold(op, Op::or_get)
            }
        };
        op.when_created_at(entry, entered).put_grant(keys, record.encode(), lease).delete(entry)
    }
}

/// Whether a promotion failed because of a shared grant with its lock ID or its request.
fn met_a_grant(keys: &GrantKeys, reply: &Reply) -> bool {
    let mut own = [1, 2].into_iter();
    keys.shared.is_some()
        && reply.pair().is_none()
        && own.any(|read| reply.pair_at(read).is_some())
}

/// The error of an attempt whose caller has left.
fn abandoned() -> Failed {
    BackendError::Unavailable("the caller has gone".into()).into()
}

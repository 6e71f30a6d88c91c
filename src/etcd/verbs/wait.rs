//! WAIT: enters the queue, waits for the turn, and takes the lock.

use std::sync::Arc;

use leasehold_lock::{Attempt, BackendError, Clock, Grant, Mode, Settings, WaiterBudget};
use tokio::{sync::oneshot, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    client::failure::Failure,
    commit::op::{Op, Reply},
    etcd::Etcd,
    grants::write::{Bounds, Written},
    keys::{GrantKeys, GrantName, Part},
    queue::{
        place::{FULL, Place, Turn},
        queues::Queues,
        session::{Session, Sessions},
    },
    revision::Revision,
    verbs::{
        attempts::{Failed, Leftover},
        look::{Met, Patience, Tries},
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

/// Makes grants in turn.
pub(crate) struct Waits {
    pub(crate) etcd: Arc<Etcd>,
    pub(crate) tries: Arc<Tries>,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) queues: Arc<Queues>,
    pub(crate) waiters: WaiterBudget,
    pub(crate) settings: Settings,
    /// The wall clock, which only shows people since when somebody waits.
    pub(crate) clock: Clock,
}

impl Waits {
    /// Waits until granted, or until the caller leaves.
    pub(crate) async fn wait(
        &self,
        attempt: &Attempt,
        unwanted: &CancellationToken,
    ) -> Result<Grant, Failed> {
        let _slot = self.waiters.enter()?;
        if let Some(grant) = self.acquire_at_once(attempt, unwanted).await? {
            return Ok(grant);
        }
        let mut place = self.queues.join(&attempt.resource)?;
        loop {
            tokio::select! {
                biased;
                () = unwanted.cancelled() => return Err(abandoned()),
                ready = place.ready() => ready.map_err(unavailable)?,
            }
            if place.is_full(self.settings.waiters_per_resource_max) {
                return Err(BackendError::TooManyWaiters(FULL).into());
            }
            let Some(entry) = self.enter(attempt, unwanted, &mut place).await? else {
                continue;
            };
            match self.wait_in(attempt, unwanted, &place, &entry).await {
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
    async fn acquire_at_once(
        &self,
        attempt: &Attempt,
        unwanted: &CancellationToken,
    ) -> Result<Option<Grant>, Failed> {
        let (resource, is_shared) = (&attempt.resource, attempt.mode == Mode::Shared);
        let must_look = attempt.request_id.is_some() || is_shared && attempt.lock_id_given;
        if !must_look && self.queues.is_contended(resource, attempt.mode) {
            return Ok(None);
        }
        let first = self.tries.writer.grants.contention.first_try(resource);
        if !must_look && !is_shared && first.is_none() {
            return Ok(None);
        }
        let until = self.step_until();
        // Of many shared attempts all can succeed. Only the first takes a lease before it
        // knows.
        let look_first = is_shared && first.is_none();
        let patience = Patience::Wait;
        match self.tries.acquire(attempt, patience, look_first, unwanted, until).await {
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
        unwanted: &CancellationToken,
        place: &mut Place,
    ) -> Result<Option<Entry>, Failed> {
        let until = self.step_until();
        // All waiters need the session, so its creation goes on if this one leaves.
        let (made, session) = oneshot::channel();
        let sessions = Arc::clone(&self.sessions);
        self.etcd.background.spawn(async move {
            let _ = made.send(sessions.current(until).await);
        });
        let session = tokio::select! {
            biased;
            () = unwanted.cancelled() => return Err(abandoned()),
            session = session => session.unwrap_or_else(|_| Err(closing())),
        };
        let session = match session.map_err(Failure::unavailable) {
            Ok(session) => session,
            // The leases of others are granted first.
            Err(error) if self.is_only_slow(&error, until) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let id = session.next_entry(attempt.mode);
        let key = self.etcd.keys.entry(&attempt.resource, &id);
        place.enter(id);
        let value = WaiterRecord::of(attempt, self.clock.unix_us() / 1_000).encode();
        match self.sessions.enter(&session, &key, value, until, unwanted).await {
            Ok(Some(entered)) => {
                let lists_begun = place.lists_begun();
                Ok(Some(Entry { _session: session, key, entered, lists_begun }))
            }
            Ok(None) => Ok(None),
            Err(Failure::Unknown(why)) => Err(Failed {
                error: BackendError::Unknown(why),
                leftovers: vec![Leftover::Entry(session, key)],
            }),
            Err(failure) => {
                let error = failure.unavailable();
                if self.is_only_slow(&error, until) { Ok(None) } else { Err(error.into()) }
            }
        }
    }

    /// Waits for the turn of an entry, until granted or until the entry is gone.
    async fn wait_in(
        &self,
        attempt: &Attempt,
        unwanted: &CancellationToken,
        place: &Place,
        entry: &Entry,
    ) -> Result<Promoted, Failed> {
        loop {
            let turn = tokio::select! {
                biased;
                () = unwanted.cancelled() => return Err(abandoned()),
                turn = place.turn(entry.entered, entry.lists_begun) => turn,
            };
            match turn {
                Turn::Mine => match self.promote(attempt, unwanted, entry).await? {
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
        unwanted: &CancellationToken,
        entry: &Entry,
    ) -> Result<Promoted, Failed> {
        let keys = self.etcd.keys.grant(&attempt.resource, &GrantName::of(attempt));
        let mut until = self.step_until();
        // The write may use up the step's time, so finding out what became of it gets a step of
        // its own.
        let grace = self.settings.operation_timeout;
        loop {
            let op = turn_op(&keys, (&entry.key, entry.entered), until);
            let bounds = Bounds { until, grace, unwanted };
            let failed = match self.tries.writer.make(attempt, &keys, op, bounds).await {
                Ok(Written::Done(made)) => {
                    let granted = self.tries.granted(attempt, made, self.step_until()).await;
                    return granted.map(Promoted::Granted);
                }
                Ok(Written::Refused(reply)) if met_a_grant(&keys, &reply) => {
                    let look = self.tries.look(attempt, &keys, Patience::Wait, until);
                    match Box::pin(look).await {
                        Ok(Met::Found(grant)) => return Ok(Promoted::Found(grant)),
                        // It has ended meanwhile, or an exclusive grant is in the way.
                        Ok(Met::Changed | Met::Free(_)) | Err(BackendError::Locked { .. }) => {
                            continue;
                        }
                        Err(error) => error.into(),
                    }
                }
                Ok(Written::Refused(reply)) => {
                    let Some(pair) = reply.pair() else { return Ok(Promoted::Lost) };
                    let since = Revision::from_etcd(pair.mod_revision());
                    let part = self.etcd.keys.part(&attempt.resource, pair.key());
                    return Ok(Promoted::Held(part, since));
                }
                Ok(Written::Again(_)) if Instant::now() < until => continue,
                Ok(Written::Again(why)) => unavailable(why),
                Err(not) => not.into(),
            };
            if !self.is_only_slow(&failed.error, until) {
                return Err(failed);
            }
            until = self.step_until();
        }
    }

    /// Whether a step failed only because its time ran out while etcd answered other
    /// requests. That happens when many waiters come, or many resources become free, at
    /// once. It is not an outage, so the waiter goes on.
    fn is_only_slow(&self, error: &BackendError, until: Instant) -> bool {
        matches!(error, BackendError::Unavailable(_))
            && Instant::now() + self.settings.operation_timeout / 2 >= until
            && self.etcd.connection.is_answering()
    }

    /// The deadline of one step of a wait that begins now.
    fn step_until(&self) -> Instant {
        Instant::now() + self.settings.operation_timeout
    }
}

/// The comparisons of a write that grants to an entry, and the entry's removal. The queue is not
/// compared: no entry can get in front of one that is first.
pub(super) fn turn_op(
    keys: &GrantKeys,
    (entry, entered): (&str, Revision),
    until: Instant,
) -> Op {
    let op = Op::of_grant(keys, until);
    let op = match &keys.shared {
        None => op.when_none_below(&keys.holder).or_get_first_below(&keys.holder),
        Some(shared) => {
            let op = op.when_absent(&keys.holder).when_new(keys);
            let op = op.or_get(&keys.holder).or_get(&shared.record);
            keys.request().into_iter().fold(op, Op::or_get)
        }
    };
    op.when_created_at(entry, entered).delete(entry)
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

/// The error of a step whose task ended with the backend.
fn closing() -> Failure {
    Failure::NotSent("the backend is closing".into())
}

/// The error of a step for which it is known that nothing has changed.
fn unavailable(why: Arc<str>) -> Failed {
    BackendError::Unavailable(why).into()
}

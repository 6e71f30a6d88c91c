//! Writes a grant under its own lease, and resolves the outcome of the write.
//!
//! There are two such writes. One makes a grant; the other moves a live one to another lease,
//! which a renewal does and a repeated request. Both go through [`Writer::write`]: a lease is
//! taken, the write is committed, and if its answer is lost, the grant's key shows whether it
//! was applied. The lease has one owner throughout, [`Taken`], whose drop disposes of it.

use std::{sync::Arc, time::Duration};

use leasehold_lock::{
    self as lock, Attempt, BackendError, Clock, FencingToken, GrantId, Renewed,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    client::failure::{Failure, Refusal},
    commit::op::{Op, Reply},
    etcd::Etcd,
    grants::{find::Held, local::Grants, local_grant::LocalGrant},
    keys::{GrantKeys, GrantName},
    lease::{pool::Lease, resolve::Begun, taken::Taken, ttl::lease_ttl_s},
    record::Record,
    revision::Revision,
};

/// The outcome of a write of a grant.
#[derive(Debug)]
pub(crate) enum Written<T> {
    /// It was applied.
    Done(T),
    /// A comparison failed.
    Refused(Reply),
    /// It was not applied and never will be, and another one may succeed. The reason is for a
    /// caller who has no time left.
    Again(Arc<str>),
}

/// Why a grant was not written, as far as known.
#[derive(Debug)]
pub(crate) enum NotWritten {
    /// It certainly was not, and never will be.
    Not(Arc<str>),
    /// The answer was lost. What has been written under this lease may still take effect.
    Unknown(Arc<str>, Taken),
}

impl From<NotWritten> for BackendError {
    fn from(not: NotWritten) -> Self {
        match not {
            NotWritten::Not(why) => Self::Unavailable(why),
            NotWritten::Unknown(why, _) => Self::Unknown(why),
        }
    }
}

/// A grant that was written under a lease.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    pub(crate) lease: Lease,
    /// Its TTL counts from then: a request was sent, and the lease still covered all of it.
    pub(crate) since: lock::Instant,
}

impl Placed {
    /// The answer to a renewal that moved the grant.
    pub(crate) fn renewed(self, id: Option<GrantId>) -> Renewed {
        Renewed { id, ttl: self.lease.grant_ttl(), since: self.since }
    }
}

/// How long a write may take, and whether it is still wanted.
#[derive(Clone, Copy)]
pub(crate) struct Bounds<'a> {
    pub(crate) until: Instant,
    /// If its answer is lost after that, finding out what became of it may take so long.
    pub(crate) grace: Duration,
    pub(crate) unwanted: &'a CancellationToken,
}

/// Writes grants.
pub(crate) struct Writer {
    pub(crate) etcd: Arc<Etcd>,
    pub(crate) grants: Arc<Grants>,
    /// The wall clock, which only shows people when a grant began.
    pub(crate) clock: Clock,
}

impl Writer {
    /// Makes a grant for an attempt, with its token. `op` has the comparisons.
    pub(crate) async fn make(
        &self,
        attempt: &Attempt,
        keys: &GrantKeys,
        op: Op,
        bounds: Bounds<'_>,
    ) -> Result<Written<(FencingToken, Placed)>, NotWritten> {
        let now_unix_ms = self.clock.unix_us() / 1_000;
        let record = Record::of(attempt, lease_ttl_s(attempt.ttl), now_unix_ms);
        let begun = Begun::new(keys.record());
        let (lease, token, since) = match self.write(op, keys, &record, begun, bounds).await? {
            Written::Done(done) => done,
            Written::Refused(reply) => return Ok(Written::Refused(reply)),
            Written::Again(why) => return Ok(Written::Again(why)),
        };
        let Some(fencing) = FencingToken::new(token.0) else {
            return Err(NotWritten::Unknown("etcd's revision is no token".into(), lease));
        };
        let lease = lease.used();
        let (name, attempt_id) = (GrantName::of(attempt), Some(attempt.id));
        let grant = LocalGrant { name, token, written: token, lease, attempt: attempt_id };
        self.grants.insert(&attempt.resource, grant);
        Ok(Written::Done((fencing, Placed { lease, since })))
    }

    /// Writes a live grant under another lease, with this record, which has its TTL. The key
    /// keeps its creation revision, which is the grant's token. `None` if the key is to be read
    /// again: it has changed since it was read, or it lies under a lease of an earlier term.
    pub(crate) async fn rewrite(
        &self,
        held: &Held<'_>,
        record: &Record,
        until: Instant,
    ) -> Result<Option<Placed>, NotWritten> {
        let op = held.when_unchanged(until);
        let begun = Begun::moving(held.keys.record(), &held.pair);
        let unwanted = &CancellationToken::new();
        let bounds = Bounds { until, grace: Duration::ZERO, unwanted };
        let (lease, written, since) =
            match self.write(op, &held.keys, record, begun, bounds).await {
                Ok(Written::Done(done)) => done,
                Ok(Written::Refused(_) | Written::Again(_)) => return Ok(None),
                Err(not) => {
                    if matches!(not, NotWritten::Unknown(..)) {
                        self.grants.doubt(held.resource, &held.name, held.token);
                    }
                    return Err(not);
                }
            };
        let lease = lease.used();
        let (name, token) = (held.name.clone(), held.token);
        let grant = LocalGrant { name, token, written, lease, attempt: None };
        let is_alive = self.grants.moved(held.resource, held.lease(), grant);
        let is_safe = is_alive && self.grants.leases.is_of_this_term(&lease);
        Ok(is_safe.then_some(Placed { lease, since }))
    }

    /// Writes the keys of a grant under a lease that is taken for it: the lease, the revision
    /// of the write, and since when the TTL counts.
    async fn write(
        &self,
        op: Op,
        keys: &GrantKeys,
        record: &Record,
        begun: Begun,
        Bounds { until, grace, unwanted }: Bounds<'_>,
    ) -> Result<Written<(Taken, Revision, lock::Instant)>, NotWritten> {
        let mut lease = tokio::select! {
            biased;
            () = unwanted.cancelled() => return Err(NotWritten::Not("the caller has gone".into())),
            taken = self.grants.leases.take(record.lease_ttl_s, begun.is_new(), until) => {
                taken.map_err(|failure| NotWritten::Not(Arc::clone(failure.why())))?
            }
        };
        let asked = lock::Instant::now();
        let op = op.put_grant(keys, record.encode(), &lease);
        lease.begin(begun);
        let failure = match self.etcd.committer.commit_while_wanted(op, unwanted).await {
            Ok(reply) if reply.succeeded => {
                return Ok(Written::Done((lease, reply.revision, reply.sent)));
            }
            Ok(reply) => {
                lease.unused();
                return Ok(Written::Refused(reply));
            }
            Err(failure) => failure,
        };
        let why = Arc::clone(failure.why());
        match failure {
            Failure::Refused(Refusal::LeaseNotFound, _) => {
                lease.gone();
                return Ok(Written::Again(why));
            }
            Failure::Refused(Refusal::LeaseStale, _) => {
                lease.unused();
                return Ok(Written::Again(why));
            }
            Failure::NotSent(_) | Failure::Refused(..) => {
                lease.unused();
                return Err(NotWritten::Not(why));
            }
            Failure::Unknown(_) | Failure::OutOfSpace(_) => {}
        }
        let may_come = matches!(failure, Failure::Unknown(_));
        let resolve_until = until.max(Instant::now() + grace);
        match Box::pin(lease.resolve(may_come, resolve_until)).await {
            Ok(Some(at)) => Ok(Written::Done((lease, at, asked))),
            Ok(None) if may_come => Ok(Written::Again(why)),
            Ok(None) => Err(NotWritten::Not(why)),
            Err(_) => Err(NotWritten::Unknown(why, lease)),
        }
    }
}

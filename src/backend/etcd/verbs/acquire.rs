//! TRY: one write, which takes place only if there is no holder and no waiter.

use std::sync::Arc;

use etcd_client::{GetOptions, KeyValue, TxnOp, TxnOpResponse};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    backend::etcd::{
        client::{
            failure::{Failure, Refusal},
            link::Origin,
        },
        commit::op::{Op, OpError, Reply},
        core::{Core, Failed, Leftover},
        lease::{grants::LocalGrant, leases::lease_ttl_s, pool::Lease},
        record::Record,
        revision::Revision,
    },
    lock::{Attempt, BackendError, FencingToken, Grant, ResourceId},
};

/// The holder of a resource, and whether anybody waits for it.
#[derive(Debug)]
struct HolderState {
    /// The holder's key.
    holder: Option<KeyValue>,
    /// Whether anybody waits.
    queued: bool,
}

impl HolderState {
    /// From the answers to [`Core::holder_state_ops`].
    fn of(responses: &[TxnOpResponse]) -> Self {
        let pair = |index: usize| match responses.get(index) {
            Some(TxnOpResponse::Get(get)) => get.kvs().first().cloned(),
            _ => None,
        };
        Self { holder: pair(0), queued: pair(1).is_some() }
    }

    fn is_free(&self) -> bool {
        self.holder.is_none() && !self.queued
    }

    /// The holder's record, if the key is one of ours.
    fn record(&self) -> Option<Record> {
        self.holder.as_ref().and_then(|pair| Record::decode(pair.value()))
    }
}

/// How a try compares that nobody holds and nobody waits.
#[derive(Clone, Copy)]
enum Free {
    /// By one comparison of all of the resource's keys.
    AllKeys,
    /// By one comparison of the holder's key and one of the waiters' keys, because there is
    /// a key among the resource's keys that is not ours.
    HolderAndQueue,
}

/// What a write of a new grant came to.
pub(super) enum Written {
    /// Granted.
    Granted(Grant),
    /// A comparison failed.
    NotFree(Reply),
    /// It was certainly not applied, and another try may succeed. The error is for a caller
    /// who has no time left.
    Again(BackendError),
    /// The answer was lost. It was not applied and never will be, and etcd answers again.
    Undone(BackendError),
}

/// Whether a write was applied whose answer was lost.
enum Resolved {
    /// It was; the grant's token.
    Made(Revision),
    /// It was not, and never will be.
    Undone,
}

impl Core {
    /// Acquires a resource that is free and that nobody waits for. The futures of rare steps
    /// are boxed, so that the future of the common case stays small.
    pub(crate) async fn acquire(
        &self,
        attempt: &Attempt,
        until: Instant,
    ) -> Result<Grant, Failed> {
        let resource = &attempt.resource;
        let wanted = CancellationToken::new();
        let mut free = Free::AllKeys;
        loop {
            if self.contention.seems_held(resource) {
                let state = Box::pin(self.holder_state(resource, until)).await?;
                if !state.is_free() {
                    match Box::pin(self.refused(attempt, &state, until)).await? {
                        Some(grant) => return Ok(grant),
                        None => continue,
                    }
                }
                self.contention.saw(resource, false);
            }
            let lease = self.leases.take(lease_ttl_s(attempt.ttl), until).await;
            let lease = lease.map_err(Failure::unavailable)?;
            let op = self.try_op(attempt, free, &lease, until);
            match self.write_grant(attempt, lease, op, &wanted, || until).await? {
                Written::Granted(grant) => return Ok(grant),
                Written::Again(_) | Written::Undone(_) if Instant::now() < until => continue,
                Written::Again(error) | Written::Undone(error) => return Err(error.into()),
                Written::NotFree(_) => self.contention.saw(resource, true),
            }
            let state = Box::pin(self.holder_state(resource, until)).await?;
            if state.is_free() {
                free = Free::HolderAndQueue;
                continue;
            }
            if let Some(grant) = Box::pin(self.refused(attempt, &state, until)).await? {
                return Ok(grant);
            }
        }
    }

    /// Writes the holder's key under a new lease, and finds out what became of it if the
    /// answer is lost, which may take until `resolve_until`.
    pub(super) async fn write_grant(
        &self,
        attempt: &Attempt,
        lease: Lease,
        op: Op,
        unwanted: &CancellationToken,
        resolve_until: impl FnOnce() -> Instant,
    ) -> Result<Written, Failed> {
        let asked = Instant::now();
        let error = match self.committer.commit_while_wanted(op, unwanted).await {
            Ok(reply) if reply.succeeded => {
                let grant = self.granted(attempt, lease, reply.revision, reply.sent)?;
                return Ok(Written::Granted(grant));
            }
            Ok(reply) => {
                self.leases.give(lease);
                return Ok(Written::NotFree(reply));
            }
            Err(error) => error,
        };
        let unavailable = BackendError::Unavailable(error.why());
        if !matches!(error, OpError::Unknown(_) | OpError::OutOfSpace(_)) {
            return match self.may_write_again(lease, &error) {
                true => Ok(Written::Again(unavailable)),
                false => Err(unavailable.into()),
            };
        }
        match Box::pin(self.resolve(attempt, &lease, resolve_until())).await {
            Ok(Resolved::Made(token)) => {
                Ok(Written::Granted(self.granted(attempt, lease, token, asked)?))
            }
            Ok(Resolved::Undone) if matches!(error, OpError::OutOfSpace(_)) => {
                Err(unavailable.into())
            }
            Ok(Resolved::Undone) => Ok(Written::Undone(unavailable)),
            Err(_) => Err(Failed {
                error: BackendError::Unknown(error.why()),
                leftovers: vec![Leftover::Lease(lease.id)],
            }),
        }
    }

    /// Handles a write that was certainly not applied: gives its lease back, if that exists.
    /// Returns whether another try with another lease may succeed.
    pub(super) fn may_write_again(&self, lease: Lease, error: &OpError) -> bool {
        if matches!(error, OpError::Refused(Refusal::LeaseNotFound, _)) {
            return true;
        }
        self.leases.give(lease);
        matches!(error, OpError::Stale)
    }

    /// Reads the holder and the first waiter, without a raft entry.
    async fn holder_state(
        &self,
        resource: &ResourceId,
        until: Instant,
    ) -> Result<HolderState, BackendError> {
        let read = self.connection.read(self.holder_state_ops(resource), until).await;
        let read = read.map_err(Failure::unavailable)?;
        Ok(HolderState::of(&read.op_responses()))
    }

    /// Handles a try that found the resource taken: if it repeats the request that made the
    /// grant, it finds that grant, otherwise it is refused. `None` if the grant has changed
    /// meanwhile.
    async fn refused(
        &self,
        attempt: &Attempt,
        state: &HolderState,
        until: Instant,
    ) -> Result<Option<Grant>, Failed> {
        let record = state.record();
        if let (Some(pair), Some(record)) = (&state.holder, &record)
            && record.answers(attempt)
        {
            return self.replay(attempt, pair, record, until).await;
        }
        let holder = record.and_then(|record| record.holder());
        Err(BackendError::Locked { holder }.into())
    }

    /// Finds out what became of a write of the holder's key whose answer was lost. If the
    /// key is not there, the lease is revoked and the key read again, because the write may
    /// still be on its way: a proposal can outlive its connection.
    async fn resolve(
        &self,
        attempt: &Attempt,
        lease: &Lease,
        until: Instant,
    ) -> Result<Resolved, Failure> {
        for is_revoked in [false, true] {
            let get = TxnOp::get(self.keys.holder(&attempt.resource), None);
            let read = self.connection.read(vec![get], until).await?;
            if let Some(TxnOpResponse::Get(get)) = read.op_responses().first()
                && let Some(pair) = get.kvs().first()
                && Record::decode(pair.value()).is_some_and(|record| record.made_by(attempt.id))
            {
                return Ok(Resolved::Made(Revision::from_etcd(pair.create_revision())));
            }
            if !is_revoked {
                self.leases.revoke_now(lease.id, until).await?;
            }
        }
        Ok(Resolved::Undone)
    }

    /// Remembers a new grant. Its TTL counts from `since`, when its lease still covered all
    /// of it.
    fn granted(
        &self,
        attempt: &Attempt,
        lease: Lease,
        token: Revision,
        since: Instant,
    ) -> Result<Grant, Failed> {
        let Some(fencing) = FencingToken::new(token.0) else {
            return Err(Failed {
                error: BackendError::Unknown("etcd's revision is no token".into()),
                leftovers: vec![Leftover::Lease(lease.id)],
            });
        };
        let term = self.connection.term();
        let grant = LocalGrant {
            written: Some(token),
            attempt: Some(attempt.id),
            ..LocalGrant::new(attempt.lock_id.clone(), token, lease, term)
        };
        // An earlier grant has ended without this process, so its lease is not reused.
        if let Some(before) = self.grants.insert(&attempt.resource, grant) {
            self.leases.revoke_later(before.lease.id);
        }
        self.move_if_of_earlier_term(lease.origin);
        self.contention.saw(&attempt.resource, true);
        Ok(Grant {
            id: None,
            lock_id: attempt.lock_id.clone(),
            token: Some(fencing),
            ttl: lease.grant_ttl(),
            since,
            created: true,
        })
    }

    /// Has a grant moved if the term of its lease was over by the time it was remembered.
    pub(super) fn move_if_of_earlier_term(&self, origin: Origin) {
        let terms = self.connection.terms();
        if origin.term != terms.current() {
            terms.nudge();
        }
    }

    fn try_op(&self, attempt: &Attempt, free: Free, lease: &Lease, until: Instant) -> Op {
        let resource = &attempt.resource;
        let key = self.keys.holder(resource);
        let op = Op::of_holder(resource, until);
        let op = match free {
            Free::AllKeys => op.when_none_below(&self.keys.resource(resource)),
            Free::HolderAndQueue => {
                op.when_absent(&key).when_none_below(&self.keys.queue(resource))
            }
        };
        // A failed try reads the holder afterwards: a read in this transaction would be part
        // of every raft entry.
        op.put_grant(&key, Record::of(attempt, lease.asked_s).encode(), lease)
    }

    fn holder_state_ops(&self, resource: &ResourceId) -> Vec<TxnOp> {
        let first = GetOptions::new().with_prefix().with_limit(1).with_keys_only();
        vec![
            TxnOp::get(self.keys.holder(resource), None),
            TxnOp::get(self.keys.queue(resource), Some(first)),
        ]
    }
}

/// The error of a write for which it is known that nothing has changed.
pub(super) fn unavailable(why: Arc<str>) -> Failed {
    BackendError::Unavailable(why).into()
}

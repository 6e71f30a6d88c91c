//! TRY: one compared write on "no holder, no waiter".

use std::sync::Arc;

use etcd_client::{Compare, CompareOp, GetOptions, KeyValue, PutOptions, TxnOp, TxnOpResponse};
use tokio::time::Instant;

use crate::{
    backend::etcd::{
        client::{
            connection::Era,
            failure::{Failure, Refusal},
        },
        commit::op::{Op, OpError},
        core::{Core, Ended, Leftover},
        keys::range_end,
        lease::{grants::LocalGrant, leases::lease_ttl_s, pool::Lease},
        record::Record,
    },
    lock::{Attempt, BackendError, FencingToken, Grant, ResourceId},
};

/// The holder of a resource, and whether anybody waits for it.
#[derive(Debug)]
pub(crate) struct HolderState {
    /// The holder's key.
    pub(crate) holder: Option<KeyValue>,
    /// Whether anybody waits.
    pub(crate) queued: bool,
}

impl HolderState {
    /// From the answers of [`Core::holder_state_ops`].
    fn of(responses: &[TxnOpResponse]) -> Self {
        let pair = |index: usize| match responses.get(index) {
            Some(TxnOpResponse::Get(get)) => get.kvs().first().cloned(),
            _ => None,
        };
        Self { holder: pair(0), queued: pair(1).is_some() }
    }

    pub(crate) fn is_free(&self) -> bool {
        self.holder.is_none() && !self.queued
    }

    /// The holder's record, if it is one of ours.
    pub(crate) fn record(&self) -> Option<Record> {
        self.holder.as_ref().and_then(|pair| Record::decode(pair.value()))
    }
}

/// How a try compares that nobody holds and nobody waits.
#[derive(Clone, Copy)]
enum Free {
    /// By one comparison over all of the resource's keys.
    AllKeys,
    /// By one for the holder's and one for the waiters', because of a key among
    /// them that is not ours.
    HolderAndQueue,
}

/// What reading back after a lost answer brought.
pub(crate) enum Resolved {
    /// It was applied; the grant's token.
    Made(u64),
    /// It was not, and never will be.
    Undone,
}

impl Core {
    /// Acquires what is free and not waited for. What is rare is boxed, so that
    /// the future of the common case stays small.
    pub(crate) async fn acquire(
        &self,
        attempt: &Attempt,
        until: Instant,
    ) -> Result<Grant, Ended> {
        let resource = &attempt.resource;
        let mut free = Free::AllKeys;
        loop {
            if self.grants.seems_held(resource) {
                let state =
                    Box::pin(self.look(resource, until)).await.map_err(Failure::unavailable)?;
                if !state.is_free() {
                    match Box::pin(self.refused(attempt, &state, until)).await? {
                        Some(grant) => return Ok(grant),
                        None => continue,
                    }
                }
                self.grants.saw(resource, false);
            }
            let lease = self.leases.take(lease_ttl_s(attempt.ttl), until).await;
            let lease = lease.map_err(Failure::unavailable)?;
            let asked = Instant::now();
            let reply = match self.commit(self.try_op(attempt, free, &lease, until)).await {
                Ok(reply) => reply,
                Err(error @ (OpError::Unknown(_) | OpError::OutOfSpace(_))) => {
                    match Box::pin(self.resolve(attempt, &lease, until)).await {
                        Ok(Resolved::Made(token)) => {
                            return self.granted(attempt, lease, token, asked);
                        }
                        Ok(Resolved::Undone)
                            if error.is_passing() && Instant::now() < until =>
                        {
                            continue;
                        }
                        Ok(Resolved::Undone) => return Err(unavailable(error.why())),
                        Err(_) => {
                            let leftovers = vec![Leftover::Lease(lease.id)];
                            let error = BackendError::Unknown(error.why());
                            return Err(Ended { error, leftovers });
                        }
                    }
                }
                Err(error) => {
                    self.not_written(lease, &error, until)?;
                    continue;
                }
            };
            if reply.succeeded {
                return self.granted(attempt, lease, reply.revision, reply.sent);
            }
            self.leases.give(lease);
            self.grants.saw(resource, true);
            let state =
                Box::pin(self.look(resource, until)).await.map_err(Failure::unavailable)?;
            if state.is_free() {
                free = Free::HolderAndQueue;
                continue;
            }
            if let Some(grant) = Box::pin(self.refused(attempt, &state, until)).await? {
                return Ok(grant);
            }
        }
    }

    /// Reads what stands in the way, without a raft entry.
    pub(crate) async fn look(
        &self,
        resource: &ResourceId,
        until: Instant,
    ) -> Result<HolderState, Failure> {
        let read = self.connection.read(self.holder_state_ops(resource), until).await?;
        Ok(HolderState::of(&read.op_responses()))
    }

    /// A try that found the resource taken: its own grant again if it repeats a
    /// request, else refused. `None` if that has changed meanwhile.
    pub(crate) async fn refused(
        &self,
        attempt: &Attempt,
        state: &HolderState,
        until: Instant,
    ) -> Result<Option<Grant>, Ended> {
        let record = state.record();
        if let (Some(pair), Some(record)) = (&state.holder, &record)
            && record.answers(attempt)
        {
            return self.replay(attempt, pair, record, until).await;
        }
        let holder = record.and_then(|record| record.holder());
        Err(BackendError::Locked { holder }.into())
    }

    /// Handles a write that was certainly not applied: the lease goes back, if
    /// it lives. `Ok` if it is worth another try.
    pub(crate) fn not_written(
        &self,
        lease: Lease,
        error: &OpError,
        until: Instant,
    ) -> Result<(), BackendError> {
        let again = match error {
            OpError::Refused(Refusal::LeaseNotFound, _) => true,
            OpError::Stale => {
                self.leases.give(lease);
                true
            }
            _ => {
                self.leases.give(lease);
                false
            }
        };
        if again && Instant::now() < until {
            Ok(())
        } else {
            Err(BackendError::Unavailable(error.why()))
        }
    }

    /// Finds out what became of a write of the holder's key whose answer was
    /// lost. If it is not there, its lease is revoked first, so that it cannot
    /// be applied any more (a proposal may outlive its connection).
    pub(crate) async fn resolve(
        &self,
        attempt: &Attempt,
        lease: &Lease,
        until: Instant,
    ) -> Result<Resolved, Failure> {
        for fenced in [false, true] {
            let get = TxnOp::get(self.keys.holder(&attempt.resource), None);
            let read = self.connection.read(vec![get], until).await?;
            if let Some(TxnOpResponse::Get(get)) = read.op_responses().first()
                && let Some(pair) = get.kvs().first()
                && Record::decode(pair.value()).is_some_and(|record| record.made_by(attempt.id))
            {
                return Ok(Resolved::Made(revision(pair.create_revision())));
            }
            if !fenced {
                self.leases.revoke_now(lease.id, until).await?;
            }
        }
        Ok(Resolved::Undone)
    }

    /// Remembers a grant and tells it. Its TTL counts from `since`, when its
    /// lease still had all of it.
    pub(crate) fn granted(
        &self,
        attempt: &Attempt,
        lease: Lease,
        token: u64,
        since: Instant,
    ) -> Result<Grant, Ended> {
        let Some(fencing) = FencingToken::new(token) else {
            return Err(Ended {
                error: BackendError::Unknown("etcd's revision is no token".into()),
                leftovers: vec![Leftover::Lease(lease.id)],
            });
        };
        let term = self.connection.era().term;
        let grant = LocalGrant {
            written: Some(token),
            attempt: Some(attempt.id),
            ..LocalGrant::new(attempt.lock_id.clone(), token, lease, term)
        };
        self.remember(&attempt.resource, grant);
        self.grants.saw(&attempt.resource, true);
        Ok(Grant {
            lock_id: attempt.lock_id.clone(),
            token: Some(fencing),
            ttl: lease.grant_ttl(),
            since,
            created: true,
        })
    }

    /// Remembers a grant that this process made. The one before, if there still was
    /// one, has ended without this process, so its lease is not for reuse.
    fn remember(&self, resource: &ResourceId, grant: LocalGrant) {
        let era = grant.lease.era;
        if let Some(before) = self.grants.insert(resource, grant) {
            self.leases.revoke_later(before.lease.id);
        }
        self.see_to_term(era);
    }

    /// Has a grant moved if the term of its lease was over when it was remembered.
    pub(crate) fn see_to_term(&self, era: Era) {
        let terms = self.connection.terms();
        if era.term != terms.current() {
            terms.nudge();
        }
    }

    fn try_op(&self, attempt: &Attempt, free: Free, lease: &Lease, until: Instant) -> Op {
        let resource = &attempt.resource;
        let (key, put, bytes) = self.holder_put(attempt, lease);
        let no_key_of = |range: String| {
            let end = range_end(&range);
            Compare::create_revision(range, CompareOp::Equal, 0).with_range(end)
        };
        Op {
            claims: Some(resource.clone()),
            enters: false,
            when: match free {
                Free::AllKeys => vec![no_key_of(self.keys.resource(resource))],
                Free::HolderAndQueue => vec![
                    Compare::create_revision(key, CompareOp::Equal, 0),
                    no_key_of(self.keys.queue(resource)),
                ],
            },
            then: vec![put],
            // What stands in the way is read afterwards, if need be: here it
            // would be part of every raft entry.
            otherwise: Vec::new(),
            bytes: 2 * bytes,
            until,
            lease: Some(*lease),
        }
    }

    /// The write of the holder's key, and the size of its key and value.
    pub(crate) fn holder_put(
        &self,
        attempt: &Attempt,
        lease: &Lease,
    ) -> (String, TxnOp, usize) {
        let key = self.keys.holder(&attempt.resource);
        let value = Record::of(attempt, lease.asked_s).encode();
        let bytes = key.len() + value.len();
        let put = TxnOp::put(key.clone(), value, Some(PutOptions::new().with_lease(lease.id)));
        (key, put, bytes)
    }

    fn holder_state_ops(&self, resource: &ResourceId) -> Vec<TxnOp> {
        let first = GetOptions::new().with_prefix().with_limit(1).with_keys_only();
        vec![
            TxnOp::get(self.keys.holder(resource), None),
            TxnOp::get(self.keys.queue(resource), Some(first)),
        ]
    }
}

/// A revision as the domain counts: never negative.
pub(crate) fn revision(revision: i64) -> u64 {
    u64::try_from(revision).unwrap_or_default()
}

/// A revision as etcd's API takes it.
pub(crate) fn as_etcd(revision: u64) -> i64 {
    i64::try_from(revision).unwrap_or(i64::MAX)
}

/// An error of a write for which it is known that nothing changed.
pub(crate) fn unavailable(why: Arc<str>) -> Ended {
    BackendError::Unavailable(why).into()
}

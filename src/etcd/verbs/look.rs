//! What an attempt looks at that is not simply granted: who holds the resource, whether anybody
//! waits, and whether the attempt repeats the request of a live grant.

use std::sync::Arc;

use etcd_client::{GetOptions, KeyValue, TxnOp};
use leasehold_lock::{Attempt, BackendError, Grant, Mode};
use tokio::time::Instant;

use crate::{
    client::failure::Failure,
    commit::op::Op,
    etcd::Etcd,
    grants::{find::Held, readers::Count, write::Writer},
    keys::{GrantKeys, range_end},
    verbs::renew::Renewals,
};

/// What the caller of an attempt asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// A grant now or a refusal.
    Try,
    /// To wait until granted.
    Wait,
}

/// What an attempt meets that is not refused.
#[derive(Debug)]
pub(crate) enum Met {
    /// It can be granted, among so many others.
    Free(Count),
    /// It repeats the request that made this grant.
    Found(Grant),
    /// The state has changed meanwhile.
    Changed,
}

/// How a resource was read, at one revision.
#[derive(Debug)]
struct SeenResource {
    /// The key of the exclusive grant, or else of one of the shared ones.
    holder: Option<KeyValue>,
    /// Whether that is the exclusive grant.
    is_exclusive: bool,
    /// Whether anybody waits.
    queued: bool,
    /// The key that finds a shared grant by the attempt's request.
    request: Option<KeyValue>,
    /// The key of the shared grant with the attempt's lock ID. Read for a shared attempt.
    same: Option<KeyValue>,
    /// How many grants there are: all of them shared, unless one is exclusive.
    count: Count,
}

impl SeenResource {
    /// How the resource is held, as `Contention::saw` takes it.
    fn seen(&self) -> Option<Mode> {
        match self.holder {
            _ if self.is_exclusive || self.queued => Some(Mode::Exclusive),
            Some(_) => Some(Mode::Shared),
            None => None,
        }
    }

    /// Whether the attempt can be granted.
    fn is_free(&self, mode: Mode) -> bool {
        match mode {
            Mode::Exclusive => self.holder.is_none() && !self.queued,
            Mode::Shared => {
                !self.is_exclusive
                    && !self.queued
                    && self.same.is_none()
                    && self.request.is_none()
            }
        }
    }
}

/// Makes grants at once or not at all.
pub(crate) struct Tries {
    pub(crate) etcd: Arc<Etcd>,
    pub(crate) writer: Arc<Writer>,
    pub(crate) renewals: Arc<Renewals>,
    /// How many shared grants a resource may have.
    pub(crate) holders_max: usize,
}

impl Tries {
    /// Looks whether an attempt can be granted, without a raft entry. If not, it finds the live
    /// grant of the same request, or is refused.
    pub(super) async fn look(
        &self,
        attempt: &Attempt,
        keys: &GrantKeys,
        patience: Patience,
        until: Instant,
    ) -> Result<Met, BackendError> {
        let state = self.read(attempt, keys, until).await?;
        self.writer.grants.contention.saw(&attempt.resource, state.seen());
        if state.is_free(attempt.mode) {
            return Ok(Met::Free(state.count));
        }
        let held =
            |pair: Option<&KeyValue>| Held::of(&self.etcd.keys, &attempt.resource, pair?);
        let holder = held(state.holder.as_ref());
        let mut own = holder.clone().filter(|held| held.record.answers(attempt));
        if let (None, Some(request)) = (&own, &state.request) {
            let found = self.requested(attempt, request, until).await?;
            own = held(found.as_ref()).filter(|held| held.record.answers(attempt));
            if own.is_none() && attempt.mode == Mode::Shared {
                self.forget_request(keys, request, until).await?;
                return Ok(Met::Changed);
            }
        }
        if let Some(own) = own {
            let claimed = self.renewals.claim(attempt, &own, until).await?;
            return Ok(claimed.map_or(Met::Changed, Met::Found));
        }
        if state.same.is_some() && patience == Patience::Wait {
            return Err(BackendError::lock_id_in_use());
        }
        let of_same = held(state.same.as_ref());
        Err(BackendError::Locked { by: of_same.or(holder).map(|held| held.record.view()) })
    }

    async fn read(
        &self,
        attempt: &Attempt,
        keys: &GrantKeys,
        until: Instant,
    ) -> Result<SeenResource, BackendError> {
        let (resource, names) = (&attempt.resource, &self.etcd.keys);
        let one = || GetOptions::new().with_limit(1);
        let mut ops = vec![
            TxnOp::get(&*keys.holder, Some(one().with_range(range_end(&keys.holder)))),
            TxnOp::get(names.queue(resource), Some(one().with_prefix().with_keys_only())),
        ];
        let request = attempt.request_id.as_ref();
        ops.extend(request.map(|id| TxnOp::get(names.request(resource, id), None)));
        ops.extend(keys.shared.as_ref().map(|shared| TxnOp::get(&*shared.record, None)));
        let read = self.etcd.connection.read(ops, until).await;
        let (at, answers) = read.map_err(Failure::unavailable)?;
        let mut answers = answers.into_iter();
        let mut next = || match answers.next() {
            // The count is that of the whole range.
            Some(get) => (get.kvs().first().cloned(), get.count()),
            None => (None, 0),
        };
        let (holder, grants) = next();
        let is_exclusive =
            holder.as_ref().is_some_and(|pair| pair.key() == keys.holder.as_bytes());
        let grants = usize::try_from(grants).unwrap_or(0);
        Ok(SeenResource {
            holder,
            is_exclusive,
            count: Count { grants, at },
            queued: next().0.is_some(),
            request: request.and_then(|_| next().0),
            same: keys.shared.as_ref().and_then(|_| next().0),
        })
    }

    /// The key of the shared grant that a request's key names.
    async fn requested(
        &self,
        attempt: &Attempt,
        request: &KeyValue,
        until: Instant,
    ) -> Result<Option<KeyValue>, BackendError> {
        let etcd = &self.etcd;
        let Some(key) = etcd.keys.requested(&attempt.resource, request.value()) else {
            return Ok(None);
        };
        etcd.reads.key(key, until).await.map_err(Failure::unavailable)
    }

    /// Removes the key of a request that finds no grant: somebody has deleted the grant's record
    /// alone.
    async fn forget_request(
        &self,
        keys: &GrantKeys,
        request: &KeyValue,
        until: Instant,
    ) -> Result<(), BackendError> {
        let Some(key) = keys.request() else { return Ok(()) };
        let op = Op::of_grant(keys, until).when_unchanged(key, request).delete(key);
        self.etcd.committer.commit(op).await.map_err(Failure::unavailable)?;
        Ok(())
    }
}

//! What a try reads: who holds the resource, whether anybody waits, and for a shared attempt
//! also which grants it would meet.

use etcd_client::{GetOptions, KeyValue, TxnOp, TxnOpResponse};
use leasehold_lock::{Attempt, BackendError, Grant, Mode};
use tokio::time::Instant;

use crate::{
    client::failure::Failure,
    core::{Core, Failed},
    keys::{GrantKeys, range_end},
    lease::readers::Count,
    record::Record,
    revision::Revision,
};

/// What the caller of an attempt asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// A grant now or a refusal.
    Try,
    /// To wait until granted.
    Wait,
}

/// How a resource was read, at one revision.
#[derive(Debug)]
pub(super) struct State {
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
    /// How many grants there are.
    grants: usize,
    /// The revision at which it was read.
    revision: Revision,
}

impl State {
    /// How many grants there are: all of them shared, unless one is exclusive.
    pub(super) fn count(&self) -> Count {
        Count { grants: self.grants, at: self.revision }
    }

    /// How the resource is held, as [`Contention::saw`] takes it.
    ///
    /// [`Contention::saw`]: crate::contention::Contention::saw
    pub(super) fn seen(&self) -> Option<Mode> {
        match self.holder {
            _ if self.is_exclusive || self.queued => Some(Mode::Exclusive),
            Some(_) => Some(Mode::Shared),
            None => None,
        }
    }

    /// Whether the attempt can be granted. `stale` is the revision of a request's key that
    /// finds no grant.
    pub(super) fn is_free(&self, mode: Mode, stale: Revision) -> bool {
        let created = |pair: &KeyValue| Revision::from_etcd(pair.create_revision());
        match mode {
            Mode::Exclusive => self.holder.is_none() && !self.queued,
            Mode::Shared => {
                let is_of_grant = |request: &KeyValue| created(request) != stale;
                !self.is_exclusive
                    && !self.queued
                    && self.same.is_none()
                    && !self.request.as_ref().is_some_and(is_of_grant)
            }
        }
    }
}

impl Core {
    /// Reads the state for an attempt, without a raft entry.
    pub(super) async fn state(
        &self,
        attempt: &Attempt,
        keys: &GrantKeys,
        until: Instant,
    ) -> Result<State, BackendError> {
        let resource = &attempt.resource;
        let one = || GetOptions::new().with_limit(1);
        let mut ops = vec![
            TxnOp::get(&*keys.holder, Some(one().with_range(range_end(&keys.holder)))),
            TxnOp::get(self.keys.queue(resource), Some(one().with_prefix().with_keys_only())),
        ];
        let request = attempt.request_id.as_ref();
        ops.extend(request.map(|id| TxnOp::get(self.keys.request(resource, id), None)));
        ops.extend(keys.shared.as_ref().map(|shared| TxnOp::get(&*shared.record, None)));
        let read = self.connection.read(ops, until).await.map_err(Failure::unavailable)?;
        let revision = read.header().map(|header| Revision::from_etcd(header.revision()));
        let mut answers = read.op_responses().into_iter();
        let mut next = || match answers.next() {
            // The count is that of the whole range.
            Some(TxnOpResponse::Get(get)) => (get.kvs().first().cloned(), get.count()),
            _ => (None, 0),
        };
        let (holder, count) = next();
        let is_exclusive =
            holder.as_ref().is_some_and(|pair| pair.key() == keys.holder.as_bytes());
        let state = State {
            holder,
            is_exclusive,
            grants: usize::try_from(count).unwrap_or(0),
            revision: revision.unwrap_or_default(),
            queued: next().0.is_some(),
            request: request.and_then(|_| next().0),
            same: keys.shared.as_ref().and_then(|_| next().0),
        };
        Ok(state)
    }

    /// Handles an attempt that cannot be granted: if it repeats the request that made a live
    /// grant, it finds that grant, otherwise it is refused. `None` if the state has changed
    /// meanwhile; `stale` is then noted if the request's key finds no grant.
    pub(super) async fn refused(
        &self,
        attempt: &Attempt,
        state: &State,
        patience: Patience,
        stale: &mut Revision,
        until: Instant,
    ) -> Result<Option<Grant>, Failed> {
        let record = |pair: Option<&KeyValue>| Record::decode(pair?.value());
        let holder = record(state.holder.as_ref());
        if let (Some(pair), Some(record)) = (&state.holder, &holder)
            && record.answers(attempt)
        {
            return self.replay(attempt, pair, record, until).await;
        }
        if let Some(request) = &state.request {
            let found = self.requested(attempt, request, until).await?;
            if let Some(record) = record(found.as_ref())
                && let Some(pair) = &found
                && record.answers(attempt)
            {
                return self.replay(attempt, pair, &record, until).await;
            }
            let created = Revision::from_etcd(request.create_revision());
            if attempt.mode == Mode::Shared && *stale != created {
                *stale = created;
                return Ok(None);
            }
        }
        if state.same.is_some() && patience == Patience::Wait {
            return Err(BackendError::lock_id_in_use().into());
        }
        let of_same = record(state.same.as_ref());
        let by = of_same.or(holder).map(|record| record.view());
        Err(BackendError::Locked { by }.into())
    }

    /// The key of the shared grant that a request's key names.
    async fn requested(
        &self,
        attempt: &Attempt,
        request: &KeyValue,
        until: Instant,
    ) -> Result<Option<KeyValue>, BackendError> {
        let Some(key) = self.keys.requested(&attempt.resource, request.value()) else {
            return Ok(None);
        };
        self.reads.key(key, until).await.map_err(Failure::unavailable)
    }
}

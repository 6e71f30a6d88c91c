//! TRY: one write, which takes place only if there is no waiter, and no grant that excludes
//! the new one.

use std::sync::Arc;

use etcd_client::{TxnOp, TxnOpResponse};
use leasehold_lock::{self as lock, Attempt, BackendError, FencingToken, Grant, Mode};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    client::failure::{Failure, Refusal},
    commit::op::{Op, OpError, Reply},
    core::{Core, Failed, Leftover},
    keys::{GrantKeys, GrantName, Keys},
    lease::{
        grants::Seat,
        leases::lease_ttl_s,
        local_grant::LocalGrant,
        pool::Lease,
        readers::{Count, Uncounted},
        taken::Taken,
    },
    record::Record,
    revision::Revision,
    verbs::state::Patience,
};

/// How a try compares that nobody holds and nobody waits.
#[derive(Clone, Copy)]
pub(super) enum Free {
    /// By one comparison of all of the resource's keys.
    AllKeys,
    /// By one comparison of the grants' keys and one of the waiters' keys, because there is
    /// a key among the resource's keys that is neither.
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
    /// Acquires a resource that nobody waits for, and that is free or, for a shared attempt,
    /// has only shared grants. The futures of rare steps are boxed, so that the future of the
    /// common case stays small.
    ///
    /// `read_first`: the resource is read before a lease is taken for it.
    pub(crate) async fn acquire(
        &self,
        attempt: &Attempt,
        patience: Patience,
        mut read_first: bool,
        until: Instant,
    ) -> Result<Grant, Failed> {
        let (resource, mode) = (&attempt.resource, attempt.mode);
        let keys = self.keys.grant(resource, &GrantName::of(attempt));
        let wanted = CancellationToken::new();
        let (mut free, mut stale) = (Free::AllKeys, Revision::default());
        loop {
            let mut seat = self.seat(attempt, None);
            let seems_held = self.contention.seems_held(resource, mode);
            // Of many tries at once most may be in vain, so none waits for a lease before it
            // has looked.
            let is_slow = self.leases.is_granting_many(lease_ttl_s(attempt.ttl));
            if read_first || seat.is_err() || seems_held || is_slow {
                read_first = false;
                let state = Box::pin(self.state(attempt, &keys, until)).await?;
                self.contention.saw(resource, state.seen());
                if !state.is_free(mode, stale) {
                    let refused = self.refused(attempt, &state, patience, &mut stale, until);
                    match Box::pin(refused).await? {
                        Some(grant) => return Ok(grant),
                        None => continue,
                    }
                }
                if seat.is_err() {
                    seat = self.seat(attempt, Some(state.count()));
                }
            }
            let _seat = seat.map_err(|_| BackendError::TooManyHolders)?;
            let lease = self.leases.take(lease_ttl_s(attempt.ttl), until).await;
            let lease = lease.map_err(Failure::unavailable)?;
            let record = Record::of(attempt, lease.asked_s, self.now_unix_ms());
            let op = try_op(&self.keys, attempt, (free, stale), (&record, &*lease), until);
            match self.write_grant(attempt, &keys, lease, op, &wanted, || until).await? {
                Written::Granted(grant) => return Ok(grant),
                Written::Again(_) | Written::Undone(_) if Instant::now() < until => {}
                Written::Again(error) | Written::Undone(error) => return Err(error.into()),
                Written::NotFree(_) => (free, read_first) = (Free::HolderAndQueue, true),
            }
        }
    }

    /// Reserves one of the shared grants that the resource may have; an exclusive attempt
    /// needs none.
    fn seat<'a>(
        &'a self,
        attempt: &'a Attempt,
        counted: Option<Count>,
    ) -> Result<Option<Seat<'a>>, Uncounted> {
        if attempt.mode == Mode::Exclusive {
            return Ok(None);
        }
        let max = self.settings.holders_per_resource_max;
        self.grants.seat(attempt, max, counted).map(Some)
    }

    /// Writes the keys of a grant under a new lease, and finds out what became of it if the
    /// answer is lost, which may take until `resolve_until`.
    pub(super) async fn write_grant(
        &self,
        attempt: &Attempt,
        keys: &GrantKeys,
        mut lease: Taken,
        op: Op,
        unwanted: &CancellationToken,
        resolve_until: impl FnOnce() -> Instant,
    ) -> Result<Written, Failed> {
        let asked = lock::Instant::now();
        lease.begin();
        let error = match self.committer.commit_while_wanted(op, unwanted).await {
            Ok(reply) if reply.succeeded => {
                let (grant, lease) =
                    self.granted(attempt, lease, reply.revision, reply.sent)?;
                let secured = self.secure(attempt, grant, &lease, resolve_until()).await?;
                return Ok(Written::Granted(secured));
            }
            Ok(reply) => {
                lease.unused();
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
        let until = resolve_until();
        match Box::pin(self.resolve(attempt, keys, &lease, until)).await {
            Ok(Resolved::Made(token)) => {
                let (grant, lease) = self.granted(attempt, lease, token, asked)?;
                Ok(Written::Granted(self.secure(attempt, grant, &lease, until).await?))
            }
            Ok(Resolved::Undone) => {
                lease.gone();
                match error {
                    OpError::OutOfSpace(_) => Err(unavailable.into()),
                    _ => Ok(Written::Undone(unavailable)),
                }
            }
            Err(_) => Err(Failed {
                error: BackendError::Unknown(error.why()),
                leftovers: vec![Leftover::Lease(lease)],
            }),
        }
    }

    /// Handles a write that was certainly not applied. Returns whether another try with
    /// another lease may succeed.
    pub(super) fn may_write_again(&self, lease: Taken, error: &OpError) -> bool {
        if matches!(error, OpError::Refused(Refusal::LeaseNotFound, _)) {
            lease.gone();
            return true;
        }
        lease.unused();
        matches!(error, OpError::Stale)
    }

    /// Finds out what became of a write of a grant's keys whose answer was lost. If its
    /// record is not there, the lease is revoked and the key read again, because the write may
    /// still be on its way: a proposal can outlive its connection.
    async fn resolve(
        &self,
        attempt: &Attempt,
        keys: &GrantKeys,
        lease: &Lease,
        until: Instant,
    ) -> Result<Resolved, Failure> {
        for is_revoked in [false, true] {
            let get = TxnOp::get(keys.record(), None);
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
        lease: Taken,
        token: Revision,
        since: lock::Instant,
    ) -> Result<(Grant, Lease), Failed> {
        let Some(fencing) = FencingToken::new(token.0) else {
            return Err(Failed {
                error: BackendError::Unknown("etcd's revision is no token".into()),
                leftovers: vec![Leftover::Lease(lease)],
            });
        };
        let lease = lease.used();
        let grant = LocalGrant {
            written: Some(token),
            attempt: Some(attempt.id),
            ..LocalGrant::new(GrantName::of(attempt), token, lease)
        };
        // An earlier grant has ended without this process, so its lease is not reused.
        if let Some(before) = self.grants.insert(&attempt.resource, grant) {
            self.leases.revoke_later(before.lease.id);
        }
        self.contention.saw(&attempt.resource, Some(attempt.mode));
        let grant = Grant {
            id: Some(attempt.id.into()),
            lock_id: attempt.lock_id.clone(),
            token: Some(fencing),
            ttl: lease.grant_ttl(),
            since,
            created: true,
        };
        Ok((grant, lease))
    }
}

/// The write of a try. `free` says how an exclusive one compares, `stale` which revision of a
/// key for its request a shared one ignores.
pub(super) fn try_op(
    names: &Keys,
    attempt: &Attempt,
    (free, stale): (Free, Revision),
    (record, lease): (&Record, &Lease),
    until: Instant,
) -> Op {
    let resource = &attempt.resource;
    let keys = names.grant(resource, &GrantName::of(attempt));
    let op = Op::of_grant(&keys, until);
    let op = match (&keys.shared, free) {
        (None, Free::AllKeys) => op.when_none_below(&names.resource(resource)),
        (None, Free::HolderAndQueue) => {
            op.when_none_below(&keys.holder).when_none_below(&names.queue(resource))
        }
        (Some(_), _) => op
            .when_absent(&keys.holder)
            .when_none_below(&names.queue(resource))
            .when_new(&keys, stale),
    };
    // A failed try reads the state afterwards: a read in this transaction would be part of
    // every raft entry.
    op.put_grant(&keys, record.encode(), lease)
}

/// The error of a write for which it is known that nothing has changed.
pub(super) fn unavailable(why: Arc<str>) -> Failed {
    BackendError::Unavailable(why).into()
}

//! TRY: one write, which takes place only if there is no waiter, and no grant that excludes
//! the new one.

use leasehold_lock::{Attempt, BackendError, FencingToken, Grant, Mode, Renewal};
use tokio::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    commit::op::Op,
    grants::{
        local::Seat,
        readers::{Count, Uncounted},
        write::{Bounds, Placed, Written},
    },
    keys::{GrantKeys, GrantName, Keys},
    lease::ttl::lease_ttl_s,
    verbs::{
        attempts::{Failed, Leftover},
        look::{Met, Patience, Tries},
    },
};

/// How a try compares that the resource is free and has no waiters.
#[derive(Clone, Copy)]
pub(super) enum Free {
    /// By one comparison of all of the resource's keys.
    AllKeys,
    /// By one comparison of the grants' keys and one of the waiters' keys, because there is
    /// a key among the resource's keys that is neither.
    HolderAndQueue,
}

impl Tries {
    /// Acquires a resource that nobody waits for, and that is free or, for a shared attempt,
    /// has only shared grants. The futures of rare steps are boxed, so that the future of the
    /// common case stays small.
    ///
    /// `look_first`: the resource is read before a lease is taken for it.
    pub(crate) async fn acquire(
        &self,
        attempt: &Attempt,
        patience: Patience,
        mut look_first: bool,
        unwanted: &CancellationToken,
        until: Instant,
    ) -> Result<Grant, Failed> {
        let (resource, mode) = (&attempt.resource, attempt.mode);
        let keys = self.etcd.keys.grant(resource, &GrantName::of(attempt));
        let bounds = Bounds { until, grace: Duration::ZERO, unwanted };
        let mut free = Free::AllKeys;
        loop {
            let mut seat = self.seat(attempt, None);
            let seems_held = self.writer.grants.contention.seems_held(resource, mode);
            // Of many tries at once most may be in vain, so none waits for a lease before it
            // has looked.
            let is_slow = self.writer.grants.leases.is_granting_many(lease_ttl_s(attempt.ttl));
            if look_first || seat.is_err() || seems_held || is_slow {
                look_first = false;
                let look = self.look(attempt, &keys, patience, until);
                match Box::pin(look).await? {
                    Met::Free(count) if seat.is_err() => seat = self.seat(attempt, Some(count)),
                    Met::Free(_) => {}
                    Met::Found(grant) => return Ok(grant),
                    Met::Changed => continue,
                }
            }
            let _seat = seat.map_err(|_| BackendError::TooManyHolders)?;
            let op = try_op(&self.etcd.keys, attempt, &keys, free, until);
            match self.writer.make(attempt, &keys, op, bounds).await? {
                Written::Done(made) => return self.granted(attempt, made, until).await,
                Written::Again(_) if Instant::now() < until => {}
                Written::Again(why) => return Err(BackendError::Unavailable(why).into()),
                Written::Refused(_) => (free, look_first) = (Free::HolderAndQueue, true),
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
        self.writer.grants.seat(attempt, self.holders_max, counted).map(Some)
    }

    /// The answer to an attempt that made a grant. One that was written after the term of its
    /// lease, which may have been kept alive by the new leader only, is renewed first.
    pub(super) async fn granted(
        &self,
        attempt: &Attempt,
        (token, placed): (FencingToken, Placed),
        until: Instant,
    ) -> Result<Grant, Failed> {
        let (mut ttl, mut since) = (placed.lease.grant_ttl(), placed.since);
        if !self.writer.grants.leases.is_of_this_term(&placed.lease) {
            let (resource, lock_id) = (attempt.resource.clone(), attempt.lock_id.clone());
            let renewal = Renewal { resource, lock_id, ttl: attempt.ttl };
            let renewed = Box::pin(self.renewals.renew(&renewal, until)).await;
            let renewed = renewed.map_err(|_| {
                let why = "etcd has elected a leader, and the grant could not be moved";
                let error = BackendError::Unknown(why.into());
                Failed { error, leftovers: vec![Leftover::Grant] }
            })?;
            (ttl, since) = (renewed.ttl, renewed.since);
        }
        Ok(Grant {
            id: Some(attempt.id.into()),
            lock_id: attempt.lock_id.clone(),
            token: Some(token),
            ttl,
            since,
            created: true,
        })
    }
}

/// The comparisons of a try. `free` says how an exclusive one compares.
pub(super) fn try_op(
    names: &Keys,
    attempt: &Attempt,
    keys: &GrantKeys,
    free: Free,
    until: Instant,
) -> Op {
    let resource = &attempt.resource;
    let op = Op::of_grant(keys, until);
    // A failed try reads the state afterwards: a read in this transaction would be part of
    // every raft entry.
    match (&keys.shared, free) {
        (None, Free::AllKeys) => op.when_none_below(&names.resource(resource)),
        (None, Free::HolderAndQueue) => {
            op.when_none_below(&keys.holder).when_none_below(&names.queue(resource))
        }
        (Some(_), _) => {
            op.when_absent(&keys.holder).when_none_below(&names.queue(resource)).when_new(keys)
        }
    }
}

//! Taking a lease for a write, which decides whether it is reused or revoked.

use std::{fmt, ops::Deref, sync::Arc};

use etcd_client::LeaseGrantOptions;
use leasehold_lock as lock;
use leasehold_util::retry::pause_before;
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Instant, timeout_at},
};
use uuid::Uuid;

use crate::{
    client::{
        connection::delays,
        failure::{Failure, Refusal, no_space},
    },
    lease::{leases::Leases, pool::Lease, resolve::Begun, revocations::Unwanted},
    revision::Revision,
};

/// A lease that was asked for or taken. When it is dropped, [`Leases`] keeps it, or has it
/// revoked, by what may have been granted or written under it until then.
pub(crate) struct Taken {
    leases: Arc<Leases>,
    lease: Lease,
    end: End,
}

/// What happens to the lease when this is dropped.
#[derive(Debug)]
enum End {
    /// Its grant is in flight: it is to be revoked, also if etcd grants it later.
    IfGranted,
    /// Nothing lies under it, and nothing will.
    Reuse,
    /// The write may have been applied, or may come to be.
    Settle(Begun),
    /// Another owner decides.
    Left,
}

impl Taken {
    /// A lease under which nothing lies.
    fn new(leases: &Arc<Leases>, lease: Lease) -> Self {
        Self { leases: Arc::clone(leases), lease, end: End::Reuse }
    }

    /// A lease that etcd is asked for.
    fn being_granted(leases: &Arc<Leases>, lease: Lease) -> Self {
        Self { leases: Arc::clone(leases), lease, end: End::IfGranted }
    }

    /// The lease as etcd has granted it, or kept it alive.
    fn alive(mut self, lease: Lease) -> Self {
        (self.lease, self.end) = (lease, End::Reuse);
        self
    }

    /// Notes that a write under it is about to be sent. Unless that is known to have succeeded,
    /// a new key goes with the lease; a grant that is moved must not end with it.
    pub(crate) fn begin(&mut self, begun: Begun) {
        self.end = End::Settle(begun);
    }

    /// The lease belongs to what was written under it.
    pub(crate) fn used(mut self) -> Lease {
        self.end = End::Left;
        self.lease
    }

    /// It does not exist.
    pub(crate) fn gone(mut self) {
        self.end = End::Left;
    }

    /// What was begun was not applied, and never will be.
    pub(crate) fn unused(mut self) {
        self.end = End::Reuse;
    }

    /// Finds out whether the write that was begun has been applied: the revision at which its
    /// key was written under this lease. `None` if it does not lie under it and never will; the
    /// lease is revoked then. `may_come`: the write may still be on its way.
    pub(crate) async fn resolve(
        &mut self,
        may_come: bool,
        until: Instant,
    ) -> Result<Option<Revision>, Failure> {
        let End::Settle(begun) = &self.end else { return Ok(None) };
        let (connection, id) = (&self.leases.connection, self.lease.id);
        let applied = begun.resolve(connection, id, may_come, until).await?;
        if applied.is_none() {
            // It is not reused: whoever ended or moved what was written under it may be about
            // to revoke it.
            self.leases.revocations.push(Unwanted::unhurried(id));
            self.end = End::Left;
        }
        Ok(applied)
    }

    /// Makes sure that what was begun never takes effect: what it has written, or may come to
    /// write, goes with the lease.
    pub(crate) async fn undo(&mut self, until: Instant) -> Result<(), Failure> {
        self.leases.revoke_now(self.lease.id, until).await?;
        self.end = End::Left;
        Ok(())
    }
}

impl Deref for Taken {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        &self.lease
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.end, End::Left) {
            End::IfGranted => {
                self.leases.revocations.push(Unwanted::if_granted(self.lease.id));
            }
            End::Reuse => self.leases.give(self.lease),
            End::Settle(begun) => {
                self.leases.revocations.push(Unwanted::after(self.lease.id, begun));
            }
            End::Left => {}
        }
    }
}

impl fmt::Debug for Taken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lease.fmt(formatter)
    }
}

impl Leases {
    /// A lease of `asked_s` seconds, whose whole TTL it covers: an idle one, refreshed if need
    /// be, or a new one. A new one for a new grant waits while too many are still to be revoked.
    /// If the caller leaves after it was asked for, the lease is kept for others when it arrives.
    pub(crate) async fn take(
        self: &Arc<Self>,
        asked_s: u64,
        is_new_grant: bool,
        until: Instant,
    ) -> Result<Taken, Failure> {
        if let Some(lease) = self.take_idle(asked_s, until).await? {
            return Ok(lease);
        }
        if is_new_grant {
            self.revocations.wait_for_room(until).await?;
        }
        let turn = self.turn(until).await?;
        let leases = Arc::clone(self);
        let granting =
            tokio::spawn(async move { leases.grant_in_turn(turn, asked_s, until).await });
        granting.await.unwrap_or_else(|_| Err(Failure::NotSent("the store is closing".into())))
    }

    async fn take_idle(
        self: &Arc<Self>,
        asked_s: u64,
        until: Instant,
    ) -> Result<Option<Taken>, Failure> {
        loop {
            let Some(lease) = self.pool.lock().take(asked_s) else { return Ok(None) };
            let taken = Taken::new(self, lease);
            if !self.may_reuse(&lease) {
                continue;
            }
            if lease.is_fresh(lock::Instant::now()) {
                return Ok(Some(taken));
            }
            match Box::pin(self.keep_alives.keep_alive(lease.id, until, until)).await? {
                None => taken.gone(),
                // The answer may be the first that names another term.
                Some(_) if !self.may_reuse(&lease) => {}
                Some(kept) => {
                    let ttl_s = kept.ttl_s.max(lease.asked_s);
                    let lease = Lease { refreshed: kept.sent, ttl_s, ..lease };
                    return Ok(Some(taken.alive(lease)));
                }
            }
        }
    }

    /// Grants a lease. Its ID is chosen here, so that it can be revoked if the answer is
    /// lost, or if the caller leaves.
    pub(crate) async fn grant(
        self: &Arc<Self>,
        asked_s: u64,
        until: Instant,
    ) -> Result<Taken, Failure> {
        let turn = self.turn(until).await?;
        self.grant_in_turn(turn, asked_s, until).await
    }

    /// Waits until few enough leases are being granted.
    async fn turn(&self, until: Instant) -> Result<OwnedSemaphorePermit, Failure> {
        let turn = timeout_at(until, Arc::clone(&self.granting).acquire_owned()).await;
        turn.ok()
            .and_then(Result::ok)
            .ok_or_else(|| Failure::NotSent("too many leases are being granted at once".into()))
    }

    async fn grant_in_turn(
        self: &Arc<Self>,
        _turn: OwnedSemaphorePermit,
        asked_s: u64,
        until: Instant,
    ) -> Result<Taken, Failure> {
        let ttl = i64::try_from(asked_s).unwrap_or(i64::MAX);
        let mut delays = delays();
        loop {
            let link = self.connection.link(until).await?;
            let mut client = link.client().lease_client();
            // Read before the request: if the lease is taken to be older than it is, it is
            // only reused less.
            let (sent, origin) = (lock::Instant::now(), link.origin());
            if self.connection.is_out_of_space(Instant::now()) {
                return Err(Failure::NotSent(no_space()));
            }
            let asked =
                Lease { id: random_id(), asked_s, ttl_s: asked_s, refreshed: sent, origin };
            let lease = Taken::being_granted(self, asked);
            let options = Some(LeaseGrantOptions::new().with_id(lease.id));
            let request = Box::pin(client.grant(ttl, options));
            match self.connection.answer(&link, until, request).await {
                Ok(granted) => {
                    let ttl_s = u64::try_from(granted.ttl()).unwrap_or(asked_s);
                    return Ok(lease.alive(Lease { ttl_s, ..asked }));
                }
                // The ID belongs to another lease.
                Err(Failure::Refused(Refusal::LeaseExists, _)) => lease.gone(),
                Err(Failure::OutOfSpace(why)) => return Err(Failure::NotSent(why)),
                Err(failure) if failure.is_passing() => {
                    if matches!(failure, Failure::NotSent(_)) {
                        lease.gone();
                    }
                    if !pause_before(until, delays.next_delay()).await {
                        return Err(Failure::NotSent(Arc::clone(failure.why())));
                    }
                }
                Err(refused) => {
                    lease.gone();
                    return Err(refused);
                }
            }
        }
    }
}

/// An ID that nobody else chooses; positive, as etcd's own are.
fn random_id() -> i64 {
    let (random, _) = Uuid::new_v4().as_u64_pair();
    i64::try_from(random >> 1).unwrap_or(1).max(1)
}

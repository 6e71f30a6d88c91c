//! A lease that was taken for a write, which decides whether it is reused or revoked.

use std::{fmt, ops::Deref, sync::Arc};

use tokio::time::Instant;

use crate::{
    client::failure::Failure,
    lease::{leases::Leases, pool::Lease, resolve::Begun, revocations::Unwanted},
    revision::Revision,
};

/// A lease that was asked for or taken. When it is dropped, [`Leases`] keeps it, or has it revoked,
/// by what may have been granted or written under it until then.
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
    pub(super) fn new(leases: &Arc<Leases>, lease: Lease) -> Self {
        Self { leases: Arc::clone(leases), lease, end: End::Reuse }
    }

    /// A lease that etcd is asked for.
    pub(super) fn asked(leases: &Arc<Leases>, lease: Lease) -> Self {
        Self { leases: Arc::clone(leases), lease, end: End::IfGranted }
    }

    /// The lease as etcd has granted it, or kept it alive.
    pub(super) fn alive(mut self, lease: Lease) -> Self {
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

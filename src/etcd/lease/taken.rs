//! A lease that a verb has taken, whose end decides what becomes of it.

use std::{fmt, ops::Deref, sync::Arc};

use crate::{
    lease::{leases::Leases, pool::Lease},
    revision::Revision,
};

/// A lease that a verb has taken. When it is dropped, [`Leases`] keeps it, or has it revoked,
/// by what may have been written under it until then.
pub(crate) struct Taken {
    leases: Arc<Leases>,
    lease: Lease,
    end: End,
}

/// A write that moves the key of a grant from one lease to another. Once it is known to have
/// been applied, or never to be, one of the two leases is of no more use.
#[derive(Clone, Debug)]
pub(crate) struct Move {
    /// The key that the write compares.
    pub(crate) key: Arc<str>,
    /// The revision that it compares.
    pub(crate) compared: Revision,
    /// The lease that the key lies under before.
    pub(crate) from: i64,
}

/// What becomes of the lease when it is dropped.
enum End {
    /// Nothing lies under it, and nothing will.
    Reuse,
    /// What lies under it, or may come to, has to go.
    Revoke,
    /// A grant may lie under it, or come to.
    Settle(Move),
    /// Somebody else decides.
    Left,
}

impl Taken {
    /// A lease under which nothing lies.
    pub(super) fn new(leases: &Arc<Leases>, lease: Lease) -> Self {
        Self { leases: Arc::clone(leases), lease, end: End::Reuse }
    }

    /// The lease with another start of its TTL.
    pub(super) fn refreshed(mut self, lease: Lease) -> Self {
        self.lease = lease;
        self
    }

    /// Notes that something new is about to be written under it, which is to go with it
    /// unless the write is known to have succeeded.
    pub(crate) fn begin(&mut self) {
        self.end = End::Revoke;
    }

    /// Notes that a live grant is about to be moved to it, which must not end with it.
    pub(crate) fn begin_move(&mut self, begun: Move) {
        self.end = End::Settle(begun);
    }

    /// The lease belongs to what was written under it.
    pub(crate) fn used(mut self) -> Lease {
        self.end = End::Left;
        self.lease
    }

    /// It does not exist, or is revoked already.
    pub(crate) fn gone(mut self) {
        self.end = End::Left;
    }

    /// What was begun was not applied, and never will be.
    pub(crate) fn unused(mut self) {
        self.end = End::Reuse;
    }

    /// Nothing lies under it any more, and nothing will, but somebody else may be about to
    /// revoke it.
    pub(crate) fn revoke(mut self) {
        self.end = End::Revoke;
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
            End::Reuse => self.leases.give(self.lease),
            End::Revoke => self.leases.revoke_later(self.lease.id),
            End::Settle(begun) => self.leases.settle_later(self.lease.id, begun),
            End::Left => {}
        }
    }
}

impl fmt::Debug for Taken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lease.fmt(formatter)
    }
}

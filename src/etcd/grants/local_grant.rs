//! A grant of this process.

use leasehold_lock::{AttemptId, Instant};

use crate::{keys::GrantName, lease::pool::Lease, revision::Revision};

/// A grant under a lease of this process.
#[derive(Clone, Debug)]
pub(crate) struct LocalGrant {
    pub(crate) name: GrantName,
    /// Its token: the creation revision of its key.
    pub(crate) token: Revision,
    /// The revision of this process's last write of its key.
    pub(crate) written: Revision,
    pub(crate) lease: Lease,
    /// The attempt that made it; `None` once the key was written again.
    pub(crate) attempt: Option<AttemptId>,
}

impl LocalGrant {
    /// Until when it certainly lives, unless somebody ends it.
    pub(crate) fn ends(&self) -> Instant {
        self.lease.ends()
    }
}

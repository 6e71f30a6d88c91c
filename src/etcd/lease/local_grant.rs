//! A grant of this process.

use leasehold_lock::{AttemptId, Instant};

use crate::{keys::GrantName, lease::pool::Lease, revision::Revision};

/// A grant under a lease of this process.
#[derive(Clone, Debug)]
pub(crate) struct LocalGrant {
    pub(crate) name: GrantName,
    /// Its token: the creation revision of its key.
    pub(crate) token: Revision,
    /// The revision of this process's last write of its key, if known.
    pub(crate) written: Option<Revision>,
    pub(crate) lease: Lease,
    /// The attempt that made it; `None` once a replay has claimed it.
    pub(crate) attempt: Option<AttemptId>,
}

impl LocalGrant {
    /// A grant that was just written under this lease.
    pub(crate) fn new(name: GrantName, token: Revision, lease: Lease) -> Self {
        Self { name, token, written: None, lease, attempt: None }
    }

    /// Until when it certainly lives, unless somebody ends it.
    pub(crate) fn ends(&self) -> Instant {
        self.lease.ends()
    }
}

//! A grant of this process.

use tokio::time::Instant;

use crate::{
    backend::etcd::{keys::GrantName, lease::pool::Lease, revision::Revision},
    lock::AttemptId,
};

/// A grant under a lease of this process.
#[derive(Clone, Debug)]
pub(crate) struct LocalGrant {
    pub(crate) name: GrantName,
    /// Its token: the creation revision of its key.
    pub(crate) token: Revision,
    /// The revision of this process's last write of its key, if known.
    pub(crate) written: Option<Revision>,
    pub(crate) lease: Lease,
    /// Until when the grant lives even if the leader of the term in which its lease was
    /// granted comes back. Counted from the last keep-alive that this leader has seen.
    pub(crate) sure_until: Instant,
    /// The attempt that made it; `None` once a replay has claimed it.
    pub(crate) attempt: Option<AttemptId>,
}

impl LocalGrant {
    /// A grant that was just written under this lease. `term` is the current term, read
    /// after the answer.
    pub(crate) fn new(name: GrantName, token: Revision, lease: Lease, term: u64) -> Self {
        // If the term has changed, perhaps only the new leader has seen the last keep-alive
        // of the lease.
        let sure_until = if lease.origin.term == term { lease.ends() } else { lease.refreshed };
        Self { name, token, written: None, lease, sure_until, attempt: None }
    }

    /// Until when it certainly lives, unless somebody ends it.
    pub(crate) fn ends(&self) -> Instant {
        self.lease.ends()
    }
}

//! The log line of a grant that was ended by force.

use tracing::info;

use crate::{
    lock::{Holder, inspect::GrantView},
    net::peer::Peer,
};

/// Who ends grants by force, and why, for the log.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ForcedBy<'a> {
    /// The ID of the app whose sidecar was called.
    pub(crate) app_id: Option<&'a str>,
    /// The process that called.
    pub(crate) peer: Option<Peer>,
    /// Why; may be empty.
    pub(crate) reason: &'a str,
}

impl ForcedBy<'_> {
    /// Logs the end of a grant; `None` if the store does not tell which it was.
    pub(crate) fn log(self, store: &str, resource: &str, grant: Option<&GrantView>) {
        let Self { app_id, peer, reason } = self;
        let reason = (!reason.is_empty()).then_some(reason);
        let (uid, pid) = (peer.map(|peer| peer.uid), peer.and_then(|peer| peer.pid));
        let holder = grant.and_then(|grant| grant.holder.as_ref()).map(Holder::as_str);
        let grant_id = grant.and_then(|grant| grant.id).map(|id| id.to_string());
        info!(app_id, store, resource, holder, grant_id, uid, pid, reason, "unlocked by force");
    }
}

//! The log lines of grants that are ended by force.

use leasehold_lock::{
    GrantId, Holder, ResourceId, Store,
    inspect::{EndOutcome, GrantView, LockView, PageRequest},
};
use tokio::time::timeout;
use tracing::info;

use crate::peer::Peer;

/// For how many grants of a resource an unlock by force logs a line each.
const LOGGED_MAX: usize = 1000;
/// An unlock by force spends at most this part of its time looking up the grants that it
/// ends.
const SEEN_WITHIN_PART: u32 = 5;

/// The grants that an unlock by force is about to end.
#[derive(Default)]
pub struct SeenGrants {
    /// Those that are logged, one line each.
    grants: Vec<GrantView>,
    /// How many others there are.
    others: usize,
}

/// The grants that an unlock by force is about to end; with `grant_id`, only that one. Empty
/// if the store does not report them in time.
pub async fn seen(
    store: &Store,
    resource: &ResourceId,
    grant_id: Option<GrantId>,
) -> SeenGrants {
    let page = PageRequest::first(LOGGED_MAX);
    let within = store.settings().operation_timeout / SEEN_WITHIN_PART;
    let Ok(Ok(found)) = timeout(within, store.get(resource, &page)).await else {
        return SeenGrants::default();
    };
    let LockView { mut grants, grants_total, .. } = found.lock;
    let others = if grant_id.is_none() { grants_total.saturating_sub(grants.len()) } else { 0 };
    grants.retain(|grant| grant_id.is_none() || grant.id == grant_id);
    SeenGrants { grants, others }
}

/// The caller and the reason of an end by force, for the log.
#[derive(Clone, Copy, Debug, Default)]
pub struct ForcedBy<'a> {
    /// The ID of the app whose sidecar was called.
    pub app_id: Option<&'a str>,
    /// The process that called.
    pub peer: Option<Peer>,
    /// The reason; may be empty.
    pub reason: &'a str,
}

impl ForcedBy<'_> {
    /// Logs the end of a grant.
    pub fn log(self, store: &str, resource: &str, grant: &GrantView, outcome: EndOutcome) {
        self.line(store, resource, grant.holder.as_ref(), grant.id, outcome);
    }

    /// Logs an unlock by force: each grant that was seen before, and the number of others. If
    /// none was seen, logs the grant that was asked for.
    pub fn log_seen(
        self,
        store: &str,
        resource: &str,
        seen: &SeenGrants,
        grant_id: Option<GrantId>,
        outcome: EndOutcome,
    ) {
        if seen.grants.is_empty() {
            self.line(store, resource, None, grant_id, outcome);
        }
        for grant in &seen.grants {
            self.log(store, resource, grant, outcome);
        }
        if seen.others > 0 {
            let others = seen.others;
            info!(store, resource, others, "unlocked by force with other grants");
        }
    }

    fn line(
        self,
        store: &str,
        resource: &str,
        holder: Option<&Holder>,
        grant_id: Option<GrantId>,
        outcome: EndOutcome,
    ) {
        let Self { app_id, peer, reason } = self;
        let reason = (!reason.is_empty()).then_some(reason);
        let (uid, pid) = (peer.map(|peer| peer.uid), peer.and_then(|peer| peer.pid));
        let holder = holder.map(Holder::as_str);
        let grant_id = grant_id.map(|id| id.to_string());
        let message = match outcome {
            EndOutcome::Ended => "unlocked by force",
            EndOutcome::Unknown => "unlock by force with an unknown outcome",
        };
        info!(app_id, store, resource, holder, grant_id, uid, pid, reason, "{message}");
    }
}

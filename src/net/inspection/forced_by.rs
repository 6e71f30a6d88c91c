//! The log lines of grants that are ended by force.

use leasehold_lock::{
    GrantId, Holder, LockError, ResourceId, Store,
    inspect::{EndOutcome, GrantView, LockView, PageRequest},
};
use tokio::time::{Instant, timeout};
use tracing::info;

use crate::{completed::completed, peer::Peer};

/// For how many grants of a resource an unlock by force logs a line each.
const LOGGED_MAX: usize = 1000;
/// An unlock by force spends at most this part of its time looking up the grants that it
/// ends.
const SEEN_WITHIN_PART: u32 = 5;

/// The grants that an unlock by force is about to end.
#[derive(Default)]
struct SeenGrants {
    /// Those that are logged, one line each.
    grants: Vec<GrantView>,
    /// How many others there are.
    others: usize,
}

/// The grants that an unlock by force is about to end; with `grant_id`, only that one. Empty
/// if the store does not report them in time.
async fn seen(store: &Store, resource: &ResourceId, grant_id: Option<GrantId>) -> SeenGrants {
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

/// Unlocks a resource by force, by `unlock`, which must end at the given moment. Logs a line for
/// each grant that the store reported just before. Runs to its end even if the caller goes away.
pub async fn force_unlock<Unlocking>(
    store: Store,
    resource: ResourceId,
    grant_id: Option<GrantId>,
    by: ForcedBy,
    unlock: impl FnOnce(Instant) -> Unlocking + Send + 'static,
) -> Result<(), LockError>
where
    Unlocking: Future<Output = Result<(), LockError>> + Send,
{
    completed(async move {
        let until = store.until();
        let seen = seen(&store, &resource, grant_id).await;
        let forced = unlock(until).await;
        let outcome = match &forced {
            Ok(()) => EndOutcome::Ended,
            Err(LockError::OutcomeUnknown(_)) => EndOutcome::Unknown,
            Err(_) => return forced,
        };
        if seen.grants.is_empty() {
            by.line(&resource, None, grant_id, outcome);
        }
        for grant in &seen.grants {
            by.log(&resource, grant, outcome);
        }
        if seen.others > 0 {
            let (store, resource, others) = (&by.store_name, resource.as_str(), seen.others);
            info!(store, resource, others, "unlocked by force with other grants");
        }
        forced
    })
    .await
}

/// The caller and the reason of an end by force, for the log.
#[derive(Clone, Debug, Default)]
pub struct ForcedBy {
    /// The store's name.
    pub store_name: String,
    /// The ID of the app whose sidecar was called.
    pub app_id: Option<String>,
    /// The process that called.
    pub peer: Option<Peer>,
    /// The reason; may be empty.
    pub reason: String,
}

impl ForcedBy {
    /// Logs the end of a grant.
    pub(super) fn log(&self, resource: &ResourceId, grant: &GrantView, outcome: EndOutcome) {
        self.line(resource, grant.holder.as_ref(), grant.id, outcome);
    }

    fn line(
        &self,
        resource: &ResourceId,
        holder: Option<&Holder>,
        grant_id: Option<GrantId>,
        outcome: EndOutcome,
    ) {
        let Self { store_name: store, app_id, peer, reason } = self;
        let resource = resource.as_str();
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

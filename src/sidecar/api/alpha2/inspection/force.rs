//! Ends grants by force, logs who held them, and notifies holders that use this sidecar.

use std::sync::Arc;

use leasehold_held::{HeldError, Target};
use leasehold_lock::{
    GrantId, LockError, ResourceId,
    inspect::{EndOutcome, EndRequest, Ended, GrantView},
};
use leasehold_net::{
    completed::completed,
    inspection::{ForcedBy, seen},
    peer::Peer,
};

use super::super::Locks;
use crate::{
    api::error::ApiError, app_names::AppNames, name::ResourceName, stores::NamedStore,
};

/// The parameters of an unlock by force.
#[derive(Clone, Debug, Default)]
pub(crate) struct Force {
    /// The grant to end; `None`: all of them.
    pub(crate) grant_id: Option<GrantId>,
    /// Why, for the log.
    pub(crate) reason: String,
    /// The calling process.
    pub(crate) peer: Option<Peer>,
}

impl Locks {
    /// Ends all grants of a resource, or the one that is named. Logs a line for each grant
    /// that the store reported just before. Runs to its end even if the caller goes away.
    pub(crate) async fn force_unlock(
        &self,
        store_name: &str,
        resource: &ResourceName,
        force: Force,
    ) -> Result<(), ApiError> {
        let (locks, resource) = (self.clone(), resource.clone());
        let store_name = store_name.to_owned();
        completed(async move {
            let Force { grant_id, reason, peer } = force;
            let target = locks.target(&store_name, &resource)?;
            let store = target.store.store();
            let until = store.until();
            let seen = seen(store, &target.resource, grant_id).await;
            let forced = locks.engine.force_unlock(target, grant_id, until).await;
            let outcome = match &forced {
                Ok(()) => EndOutcome::Ended,
                Err(HeldError::Lock(LockError::OutcomeUnknown(_))) => EndOutcome::Unknown,
                Err(_) => return Ok(forced?),
            };
            let resource = resource.encoded();
            let by = locks.forced_by(peer, &reason);
            by.log_seen(&store_name, resource.as_str(), &seen, grant_id, outcome);
            Ok(forced?)
        })
        .await
    }

    /// Ends grants. Each is logged, and a holder that uses this sidecar is notified of the
    /// loss. Runs to its end even if the caller goes away.
    pub(super) async fn end_in_task(
        &self,
        store: Arc<NamedStore>,
        names: AppNames,
        request: EndRequest,
        peer: Option<Peer>,
        reason: String,
    ) -> Result<Ended, ApiError> {
        let locks = self.clone();
        completed(async move {
            let by = locks.forced_by(peer, &reason);
            let on_end = |resource: &ResourceId, grant: &GrantView, outcome| {
                let Some(name) = names.read(resource) else { return };
                by.log(&store.name, name.encoded().as_str(), grant, outcome);
                if let (EndOutcome::Ended, Some(id)) = (outcome, grant.id) {
                    let store = Arc::<NamedStore>::clone(&store);
                    locks.engine.forced(&Target { store, resource: resource.clone() }, id);
                }
            };
            Ok(store.store().end(&request, &on_end).await?)
        })
        .await
    }

    fn forced_by<'a>(&'a self, peer: Option<Peer>, reason: &'a str) -> ForcedBy<'a> {
        ForcedBy { app_id: Some(self.identity.app_id()), peer, reason }
    }
}

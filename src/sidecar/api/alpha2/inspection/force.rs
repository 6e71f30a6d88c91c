//! Ending grants by force: whose they were is logged, and holders of this sidecar are told.

use std::{collections::HashSet, sync::Arc, time::Duration};

use tokio::time::timeout;

use super::super::Locks;
use crate::{
    held::{HeldKey, Target},
    lock::{
        GrantId,
        inspect::{EndRequest, Ended, GrantView, PageRequest},
    },
    net::{completed::completed, inspection::ForcedBy, peer::Peer},
    sidecar::{
        api::error::ApiError, app_names::AppNames, name::ResourceName, stores::NamedStore,
    },
};

/// How many grants of a resource that is unlocked by force are logged each by itself.
const LOGGED_MAX: usize = 1000;
/// How long an unlock by force waits to be told whose grants it ends.
const SEEN_WITHIN: Duration = Duration::from_secs(1);

/// How a resource is unlocked by force.
#[derive(Clone, Debug, Default)]
pub(crate) struct Force {
    /// The grant to end; `None`: all of them.
    pub(crate) grant_id: Option<GrantId>,
    /// Why, for the log.
    pub(crate) reason: String,
    /// The process that asks for it.
    pub(crate) peer: Option<Peer>,
}

impl Locks {
    /// Ends the grants of whoever holds a resource. Each is one line of the log, as far as
    /// the store told of them just before. Completed also if the caller goes away.
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
            let (key, target) = locks.target(&store_name, &resource);
            let grants = match &target {
                Ok(target) => seen(target, grant_id).await,
                Err(_) => Vec::new(),
            };
            locks.engine.force_unlock(key, grant_id, target).await?;
            let by = ForcedBy { app_id: Some(locks.identity.app_id()), peer, reason: &reason };
            let log = |grant| by.log(&store_name, resource.encoded().as_str(), grant);
            if grants.is_empty() {
                log(None);
            }
            grants.iter().map(Some).for_each(log);
            Ok(())
        })
        .await
    }

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
            let ended = store.store().end(&request).await?;
            if !request.dry_run {
                let by =
                    ForcedBy { app_id: Some(locks.identity.app_id()), peer, reason: &reason };
                locks.note_ended(&store, &names, &ended, by);
            }
            Ok(ended)
        })
        .await
    }

    fn note_ended(
        &self,
        store: &NamedStore,
        names: &AppNames,
        ended: &Ended,
        by: ForcedBy<'_>,
    ) {
        for lock in &ended.locks {
            let Some(name) = names.read(&lock.resource) else { continue };
            let ids: HashSet<_> = lock.grants.iter().filter_map(|grant| grant.id).collect();
            let key =
                HeldKey { store: Arc::clone(&store.name), resource: name.encoded().clone() };
            self.engine.forced(&key, &ids);
            for grant in &lock.grants {
                by.log(&store.name, name.encoded().as_str(), Some(grant));
            }
        }
    }
}

/// The grants that a force is about to end; none if the store does not tell.
async fn seen(target: &Target, grant_id: Option<GrantId>) -> Vec<GrantView> {
    let store = target.store.store();
    let page = PageRequest::first(LOGGED_MAX);
    let Ok(Ok(found)) = timeout(SEEN_WITHIN, store.get(&target.resource, &page)).await else {
        return Vec::new();
    };
    let mut grants = found.lock.grants;
    grants.retain(|grant| grant_id.is_none() || grant.id == grant_id);
    grants
}

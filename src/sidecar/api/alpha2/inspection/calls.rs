//! The calls of `Inspection` for one app: names are those that the app uses, and locks of
//! other apps are not visible.

use std::sync::Arc;

use futures_util::Stream;
use leasehold_held::Resource;
use leasehold_lock::{LockError, ResourceId, Violation, inspect::Scope};
use leasehold_net::{
    inspection::{self, ForcedBy, Inspector, Named, Names},
    peer::Peer,
};
use leasehold_proto::locks as pb;

use super::super::{Locks, wire};
use crate::{
    api::error::ApiError,
    app_names::AppNames,
    name::{NameScope, Namespace, ResourceName},
};

impl Names for AppNames {
    fn resource(&self, key: &str, namespace: Vec<String>) -> Result<ResourceId, Violation> {
        self.of(&wire::resource(key, namespace)?)
    }

    fn scope(&self, scope: pb::LockScope) -> Result<Scope, Violation> {
        self.scope_of(name_scope(scope)?)
    }

    fn read(&self, resource: &ResourceId) -> Named {
        // Only resources with such a name are looked up, so it is always there.
        self.name_of(resource).as_ref().map(ResourceName::to_named).unwrap_or_default()
    }
}

impl Locks {
    /// Reports who holds a resource.
    pub(super) async fn get_one(
        &self,
        mut asked: pb::GetLockRequest,
    ) -> Result<pb::GetLockResponse, ApiError> {
        let inspector = self.inspector(&asked.store_name)?;
        asked.page_token = self.page_tokens.find(&asked.page_token)?;
        let mut found = inspector.get(asked).await?;
        found.next_page_token = self.page_tokens.name(found.next_page_token);
        Ok(found)
    }

    /// Lists what is held.
    pub(super) async fn list(
        &self,
        mut asked: pb::ListLocksRequest,
    ) -> Result<pb::ListLocksResponse, ApiError> {
        let inspector = self.inspector(&asked.store_name)?;
        asked.page_token = self.page_tokens.find(&asked.page_token)?;
        let mut found = inspector.list(asked).await?;
        found.next_page_token = self.page_tokens.name(found.next_page_token);
        Ok(found)
    }

    /// Lists who waits for a resource.
    pub(super) async fn waiters(
        &self,
        mut asked: pb::ListWaitersRequest,
    ) -> Result<pb::ListWaitersResponse, ApiError> {
        let inspector = self.inspector(&asked.store_name)?;
        asked.page_token = self.page_tokens.find(&asked.page_token)?;
        let mut found = inspector.waiters(asked).await?;
        found.next_page_token = self.page_tokens.name(found.next_page_token);
        Ok(found)
    }

    /// Begins to watch a resource or a scope.
    pub(super) fn watch(
        &self,
        asked: pb::WatchLocksRequest,
    ) -> Result<impl Stream<Item = Result<pb::LockEvent, LockError>> + Send + use<>, ApiError>
    {
        Ok(self.inspector(&asked.store_name)?.watch(asked)?)
    }

    /// Ends grants and reports them. A holder that uses this sidecar is notified of the loss.
    pub(super) async fn end(
        &self,
        mut asked: pb::EndLocksRequest,
        peer: Option<Peer>,
    ) -> Result<pb::EndLocksResponse, ApiError> {
        let reason = inspection::reason(std::mem::take(&mut asked.reason))?;
        let by = self.forced_by(&asked.store_name, peer, reason);
        let lock_store = Arc::clone(&self.store(&asked.store_name)?.lock_store);
        let engine = self.engine.clone();
        let forced = move |resource: &ResourceId, grant| {
            let id = resource.clone();
            engine.forced(&Resource { lock_store: Arc::clone(&lock_store), id }, grant);
        };
        Ok(self.inspector(&asked.store_name)?.end(asked, by, forced).await?)
    }

    /// The caller and the reason of an end by force.
    pub(in super::super) fn forced_by(
        &self,
        store_name: &str,
        peer: Option<Peer>,
        reason: String,
    ) -> ForcedBy {
        let app_id = Some(self.identity.app_id().to_owned());
        ForcedBy { store_name: store_name.to_owned(), app_id, peer, reason }
    }

    fn inspector(&self, store_name: &str) -> Result<Inspector<AppNames>, ApiError> {
        let store = self.store(store_name)?;
        Ok(Inspector {
            store: store.store().clone(),
            store_name: store_name.to_owned(),
            names: store.names.clone(),
        })
    }
}

fn name_scope(scope: pb::LockScope) -> Result<NameScope, Violation> {
    Ok(NameScope {
        namespace: Namespace::new(scope.namespace)?,
        children: scope.children,
        prefix: inspection::name_prefix(scope.prefix)?,
    })
}

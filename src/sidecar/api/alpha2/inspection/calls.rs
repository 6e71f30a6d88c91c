//! The calls of `Inspection` for one app: names are those that the app uses, and locks of
//! other apps are not visible.

use std::sync::Arc;

use leasehold_lock::{
    ResourceId, Violation,
    inspect::{Listing, PageRequest, Watch},
};
use leasehold_net::{
    inspection::{self, List, Named, count, state},
    peer::Peer,
};
use leasehold_proto::locks as pb;

use super::super::{Locks, wire};
use crate::{
    api::error::ApiError,
    app_names::AppNames,
    name::{NameScope, Namespace, ResourceName},
    stores::NamedStore,
};

/// A watch whose events have the app's names.
pub(super) struct AppWatch {
    pub(super) watch: Watch,
    names: AppNames,
}

impl AppWatch {
    /// The next event.
    pub(super) async fn next(&mut self) -> Result<pb::LockEvent, ApiError> {
        let event = self.watch.next().await?;
        Ok(inspection::event(&event, |resource| named(self.names.read(resource))))
    }
}

impl Locks {
    /// Reports who holds a resource.
    pub(super) async fn get_one(
        &self,
        asked: pb::GetLockRequest,
    ) -> Result<pb::GetLockResponse, ApiError> {
        let name = wire::resource(&asked.resource_id, asked.namespace)?;
        let store = self.store(&asked.store_name)?;
        let resource = store.name_of(&name, self.identity.app_id())?;
        let list = List::new(&["GetLock", &store.name, resource.as_str()]);
        let page = self.page(list, asked.page_size, &asked.page_token)?;
        let found = store.store().get(&resource, &page).await?;
        Ok(pb::GetLockResponse {
            lock: Some(state(&found.lock, named(Some(name)))),
            waiters: count(found.waiters),
            next_page_token: self.page_tokens.name(list.token(found.next.as_ref())),
        })
    }

    /// Lists what is held.
    pub(super) async fn list(
        &self,
        asked: pb::ListLocksRequest,
    ) -> Result<pb::ListLocksResponse, ApiError> {
        let wanted = name_scope(asked.scope.unwrap_or_default())?;
        let holder_prefix = inspection::holder_prefix(asked.holder_prefix)?;
        let (store, names) = self.store_and_names(&asked.store_name)?;
        let beginning = names.beginning(&wanted);
        let children = if wanted.children { "children" } else { "" };
        let list = List::new(&[
            "ListLocks",
            &store.name,
            &beginning,
            children,
            &wanted.prefix,
            &holder_prefix,
        ]);
        let page = self.page(list, asked.page_size, &asked.page_token)?;
        let listing = Listing { scope: names.scope(wanted)?, holder_prefix, page };
        let found = store.store().list(&listing).await?;
        let in_app = |lock| state(lock, named(names.read(&lock.resource)));
        Ok(pb::ListLocksResponse {
            locks: found.items.iter().map(in_app).collect(),
            next_page_token: self.page_tokens.name(list.token(found.next.as_ref())),
        })
    }

    /// Lists who waits for a resource.
    pub(super) async fn waiters(
        &self,
        asked: pb::ListWaitersRequest,
    ) -> Result<pb::ListWaitersResponse, ApiError> {
        let store = self.store(&asked.store_name)?;
        let resource = self.resource_in(&store, &asked.resource_id, asked.namespace)?;
        let list = List::new(&["ListWaiters", &store.name, resource.as_str()]);
        let page = self.page(list, asked.page_size, &asked.page_token)?;
        let found = store.store().waiters(&resource, &page).await?;
        Ok(pb::ListWaitersResponse {
            waiters: found.items.iter().map(inspection::waiter).collect(),
            next_page_token: self.page_tokens.name(list.token(found.next.as_ref())),
        })
    }

    /// Begins to watch a resource or a scope.
    pub(super) fn watch(&self, asked: pb::WatchLocksRequest) -> Result<AppWatch, ApiError> {
        let (store, names) = self.store_and_names(&asked.store_name)?;
        let resource = |key: &str, namespace| self.resource_in(&store, key, namespace);
        let scope = |wanted| names.scope(name_scope(wanted)?);
        let scope = inspection::watched_scope(asked, resource, scope)?;
        Ok(AppWatch { watch: store.store().watch(scope)?, names })
    }

    /// Ends grants and reports them. Runs to its end even if the caller goes away, so
    /// that each end is logged.
    pub(super) async fn end(
        &self,
        asked: pb::EndLocksRequest,
        peer: Option<Peer>,
    ) -> Result<pb::EndLocksResponse, ApiError> {
        let reason = inspection::reason(&asked.reason)?.to_owned();
        let (store, names) = self.store_and_names(&asked.store_name)?;
        let resource = |key: &str, namespace| self.resource_in(&store, key, namespace);
        let scope = |wanted| names.scope(name_scope(wanted)?);
        let request = inspection::end_request(asked, resource, scope)?;
        let ended = self.end_in_task(store, names.clone(), request, peer, reason).await?;
        let in_app = |lock| state(lock, named(names.read(&lock.resource)));
        Ok(pb::EndLocksResponse {
            ended: ended.locks.iter().map(in_app).collect(),
            more: ended.more,
        })
    }

    fn store_and_names(
        &self,
        store_name: &str,
    ) -> Result<(Arc<NamedStore>, AppNames), ApiError> {
        let store = self.store(store_name)?;
        let names = store.names_of(self.identity.app_id());
        Ok((store, names))
    }

    /// The store's name of a resource of the app.
    fn resource_in(
        &self,
        store: &NamedStore,
        key: &str,
        namespace: Vec<String>,
    ) -> Result<ResourceId, Violation> {
        store.name_of(&wire::resource(key, namespace)?, self.identity.app_id())
    }

    /// Reads the page to return; the violation names `page_size` or `page_token`.
    fn page(&self, list: List, size: i32, name: &str) -> Result<PageRequest, Violation> {
        let token = self.page_tokens.find(name).ok_or_else(inspection::unknown_page)?;
        list.page(size, &token)
    }
}

fn name_scope(scope: pb::LockScope) -> Result<NameScope, Violation> {
    Ok(NameScope {
        namespace: Namespace::new(scope.namespace)?,
        children: scope.children,
        prefix: inspection::name_prefix(scope.prefix)?,
    })
}

/// The app's name of a resource. Only resources with such a name are looked up, so it
/// is always there.
fn named(name: Option<ResourceName>) -> Named {
    let split = |name: ResourceName| Named {
        resource_id: name.key().as_str().to_owned(),
        namespace: name.namespace().segments().to_vec(),
    };
    name.map(split).unwrap_or_default()
}

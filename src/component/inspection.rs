//! The `Inspection` service on a component's socket, where names are the store's own.

use std::pin::Pin;

use futures_util::{Stream, stream};
use leasehold_lock::{
    LockError, ResourceId, Store, Violation,
    inspect::{EndRequest, Ended, GrantView, Listing, Scope},
};
use leasehold_net::{
    completed::completed,
    inspection::{self, ForcedBy, List, count, raw, state},
    peer::Peer,
    wire::deadline,
};
use leasehold_proto::locks::{self as pb, inspection_server::Inspection};
use tokio::time::Instant;
use tonic::{Request, Response, Status, metadata::MetadataMap};

use super::{
    service::{Service, answer},
    wire,
};

impl Service {
    /// The store of the instance that a call names in its metadata, and maybe again as
    /// `store_name`.
    async fn inspected(
        &self,
        metadata: &MetadataMap,
        store_name: &str,
    ) -> Result<Store, LockError> {
        let arrived = Instant::now();
        let instance = wire::instance(metadata)?;
        if !store_name.is_empty() && store_name != instance {
            return Err(Violation::new(
                "store_name",
                "is not that of x-component-instance; leave it empty",
            )
            .into());
        }
        self.store_named(instance, arrived, deadline(metadata, arrived)).await
    }
}

#[tonic::async_trait]
impl Inspection for Service {
    type WatchLocksStream = Pin<Box<dyn Stream<Item = Result<pb::LockEvent, Status>> + Send>>;

    async fn get_lock(
        &self,
        request: Request<pb::GetLockRequest>,
    ) -> Result<Response<pb::GetLockResponse>, Status> {
        answer("GetLock", async {
            let (metadata, _, asked) = request.into_parts();
            let store = self.inspected(&metadata, &asked.store_name).await?;
            let resource = resource(&asked.resource_id, &asked.namespace)?;
            let list = List::new(&["GetLock", wire::instance(&metadata)?, resource.as_str()]);
            let page = list.page(asked.page_size, &asked.page_token)?;
            let found = store.get(&resource, &page).await?;
            Ok(Response::new(pb::GetLockResponse {
                lock: Some(state(&found.lock, raw(&resource))),
                waiters: count(found.waiters),
                next_page_token: list.token(found.next.as_ref()),
            }))
        })
        .await
    }

    async fn list_locks(
        &self,
        request: Request<pb::ListLocksRequest>,
    ) -> Result<Response<pb::ListLocksResponse>, Status> {
        answer("ListLocks", async {
            let (metadata, _, asked) = request.into_parts();
            let store = self.inspected(&metadata, &asked.store_name).await?;
            let prefix = name_prefix(asked.scope.unwrap_or_default())?;
            let holder_prefix = inspection::holder_prefix(asked.holder_prefix)?;
            let list =
                List::new(&["ListLocks", wire::instance(&metadata)?, &prefix, &holder_prefix]);
            let page = list.page(asked.page_size, &asked.page_token)?;
            let listing = Listing { scope: Scope::prefix(&prefix), holder_prefix, page };
            let found = store.list(&listing).await?;
            Ok(Response::new(pb::ListLocksResponse {
                locks: found
                    .items
                    .iter()
                    .map(|lock| state(lock, raw(&lock.resource)))
                    .collect(),
                next_page_token: list.token(found.next.as_ref()),
            }))
        })
        .await
    }

    async fn list_waiters(
        &self,
        request: Request<pb::ListWaitersRequest>,
    ) -> Result<Response<pb::ListWaitersResponse>, Status> {
        answer("ListWaiters", async {
            let (metadata, _, asked) = request.into_parts();
            let store = self.inspected(&metadata, &asked.store_name).await?;
            let resource = resource(&asked.resource_id, &asked.namespace)?;
            let list =
                List::new(&["ListWaiters", wire::instance(&metadata)?, resource.as_str()]);
            let page = list.page(asked.page_size, &asked.page_token)?;
            let found = store.waiters(&resource, &page).await?;
            Ok(Response::new(pb::ListWaitersResponse {
                waiters: found.items.iter().map(inspection::waiter).collect(),
                next_page_token: list.token(found.next.as_ref()),
            }))
        })
        .await
    }

    async fn watch_locks(
        &self,
        request: Request<pb::WatchLocksRequest>,
    ) -> Result<Response<Self::WatchLocksStream>, Status> {
        answer("WatchLocks", async {
            let (metadata, _, asked) = request.into_parts();
            let store = self.inspected(&metadata, &asked.store_name).await?;
            let scope =
                inspection::watched_scope(asked, |id, within| resource(id, &within), scope)?;
            let watch = store.watch(scope)?;
            let events = stream::try_unfold(watch, async |mut watch| {
                let event = watch.next().await.map_err(inspection::status)?;
                Ok(Some((inspection::event(&event, raw), watch)))
            });
            Ok(Response::new(Box::pin(events) as Self::WatchLocksStream))
        })
        .await
    }

    async fn end_locks(
        &self,
        request: Request<pb::EndLocksRequest>,
    ) -> Result<Response<pb::EndLocksResponse>, Status> {
        answer("EndLocks", async {
            let (metadata, extensions, asked) = request.into_parts();
            let store = self.inspected(&metadata, &asked.store_name).await?;
            let reason = inspection::reason(&asked.reason)?.to_owned();
            let request =
                inspection::end_request(asked, |id, within| resource(id, &within), scope)?;
            let instance = wire::instance(&metadata)?.to_owned();
            let peer = extensions.get().copied();
            let ended = end(store, request, instance, peer, reason).await?;
            Ok(Response::new(pb::EndLocksResponse {
                ended: ended
                    .locks
                    .iter()
                    .map(|lock| state(lock, raw(&lock.resource)))
                    .collect(),
                more: ended.more,
            }))
        })
        .await
    }
}

/// Ends grants. Runs to its end even if the caller goes away, so that each end is logged.
async fn end(
    store: Store,
    request: EndRequest,
    instance: String,
    peer: Option<Peer>,
    reason: String,
) -> Result<Ended, LockError> {
    completed(async move {
        let by = ForcedBy { app_id: None, peer, reason: &reason };
        let on_end = |resource: &ResourceId, grant: &GrantView, outcome| {
            by.log(&instance, resource.as_str(), grant, outcome);
        };
        store.end(&request, &on_end).await
    })
    .await
}

fn resource(id: &str, namespace: &[String]) -> Result<ResourceId, Violation> {
    must_be_empty(namespace)?;
    ResourceId::new(id)
}

fn scope(scope: pb::LockScope) -> Result<Scope, Violation> {
    Ok(Scope::prefix(&name_prefix(scope)?))
}

/// The prefix of the names of a scope. Here a scope has no namespaces.
fn name_prefix(scope: pb::LockScope) -> Result<String, Violation> {
    must_be_empty(&scope.namespace)?;
    inspection::name_prefix(scope.prefix)
}

fn must_be_empty(namespace: &[String]) -> Result<(), Violation> {
    if namespace.is_empty() {
        return Ok(());
    }
    Err(Violation::new(
        "namespace",
        "is for the sidecar; on a component's socket give the store's whole name as resource_id \
         or prefix",
    ))
}

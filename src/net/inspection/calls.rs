//! The calls of `Inspection`, which both edges serve under their callers' names.

use futures_util::{Stream, stream};
use leasehold_lock::{
    GrantId, LockError, ResourceId, Store,
    inspect::{EndOutcome, GrantView, Listing, LockView},
};
use leasehold_proto::locks as pb;

use super::{
    forced_by::ForcedBy,
    messages::{count, event, state, waiter},
    names::Names,
    pages::List,
    requests::{end_request, holder_prefix, watched_scope},
};
use crate::completed::completed;

/// Answers inspection calls about one store.
#[derive(Clone)]
pub struct Inspector<N> {
    /// The store.
    pub store: Store,
    /// Its name, as the caller gives it.
    pub store_name: String,
    /// The caller's names of its resources.
    pub names: N,
}

impl<N: Names> Inspector<N> {
    /// Reports who holds a resource.
    pub async fn get(
        &self,
        asked: pb::GetLockRequest,
    ) -> Result<pb::GetLockResponse, LockError> {
        let resource = self.names.resource(&asked.resource_id, asked.namespace)?;
        let list = List::new(&["GetLock", &self.store_name, resource.as_str()]);
        let page = list.page(asked.page_size, &asked.page_token)?;
        let found = self.store.get(&resource, &page).await?;
        Ok(pb::GetLockResponse {
            lock: Some(self.state(&found.lock)),
            waiters: count(found.waiters),
            next_page_token: list.token(found.next.as_ref()),
        })
    }

    /// Lists what is held.
    pub async fn list(
        &self,
        asked: pb::ListLocksRequest,
    ) -> Result<pb::ListLocksResponse, LockError> {
        let scope = asked.scope.unwrap_or_default();
        let holder_prefix = holder_prefix(asked.holder_prefix)?;
        let children = if scope.children { "children" } else { "" };
        let mut wanted =
            vec!["ListLocks", &self.store_name, &holder_prefix, &scope.prefix, children];
        wanted.extend(scope.namespace.iter().map(String::as_str));
        let list = List::new(&wanted);
        let scope = self.names.scope(scope)?;
        let page = list.page(asked.page_size, &asked.page_token)?;
        let found = self.store.list(&Listing { scope, holder_prefix, page }).await?;
        Ok(pb::ListLocksResponse {
            locks: found.items.iter().map(|lock| self.state(lock)).collect(),
            next_page_token: list.token(found.next.as_ref()),
        })
    }

    /// Lists who waits for a resource.
    pub async fn waiters(
        &self,
        asked: pb::ListWaitersRequest,
    ) -> Result<pb::ListWaitersResponse, LockError> {
        let resource = self.names.resource(&asked.resource_id, asked.namespace)?;
        let list = List::new(&["ListWaiters", &self.store_name, resource.as_str()]);
        let page = list.page(asked.page_size, &asked.page_token)?;
        let found = self.store.waiters(&resource, &page).await?;
        Ok(pb::ListWaitersResponse {
            waiters: found.items.iter().map(waiter).collect(),
            next_page_token: list.token(found.next.as_ref()),
        })
    }

    /// Watches a resource or a scope. The stream ends with an error only.
    pub fn watch(
        self,
        asked: pb::WatchLocksRequest,
    ) -> Result<impl Stream<Item = Result<pb::LockEvent, LockError>> + Send + use<N>, LockError>
    {
        let watch = self.store.watch(watched_scope(asked, &self.names)?)?;
        Ok(stream::try_unfold((watch, self.names), async |(mut watch, names)| {
            let next = event(&watch.next().await?, &names);
            Ok(Some((next, (watch, names))))
        }))
    }

    /// Ends grants. Each end is logged with the app and the process that called, and `forced` is
    /// called for each that is certain. Runs to its end even if the caller goes away.
    pub async fn end(
        self,
        asked: pb::EndLocksRequest,
        by: ForcedBy,
        forced: impl Fn(&ResourceId, GrantId) + Send + Sync + 'static,
    ) -> Result<pb::EndLocksResponse, LockError> {
        let request = end_request(asked, &self.names)?;
        completed(async move {
            let on_end = |resource: &ResourceId, grant: &GrantView, outcome| {
                by.log(resource, grant, outcome);
                if let (EndOutcome::Ended, Some(id)) = (outcome, grant.id) {
                    forced(resource, id);
                }
            };
            let ended = self.store.end(&request, &on_end).await?;
            Ok(pb::EndLocksResponse {
                ended: ended.locks.iter().map(|lock| self.state(lock)).collect(),
                more: ended.more,
            })
        })
        .await
    }

    fn state(&self, lock: &LockView) -> pb::LockState {
        state(lock, self.names.read(&lock.resource))
    }
}

//! The `Inspection` service on a component's socket, where names are the store's own.

use std::pin::Pin;

use futures_util::{Stream, StreamExt as _};
use leasehold_lock::{LockError, Violation};
use leasehold_net::{
    inspection::{ForcedBy, Inspector, OwnNames, reason},
    peer::Peer,
    status::ErrorDescription,
};
use leasehold_proto::locks::{self as pb, inspection_server::Inspection};
use tonic::{Request, Response, Status};

use super::{
    service::{Service, answer},
    wire,
};

impl Service {
    /// Inspects the store of the instance that a call names in its metadata, and maybe again as
    /// `store_name`. Returns the message, and the calling process, too.
    async fn inspector<T>(
        &self,
        request: Request<T>,
        store_name: impl Fn(&T) -> &str,
    ) -> Result<(Inspector<OwnNames>, T, Option<Peer>), LockError> {
        let instance = wire::instance(request.metadata())?.to_owned();
        let again = store_name(request.get_ref());
        if !again.is_empty() && again != instance {
            return Err(Violation::new(
                "store_name",
                "is not that of x-component-instance; leave it empty",
            )
            .into());
        }
        let (store, _) = self.store(&request).await?;
        let peer = request.extensions().get().copied();
        let inspector = Inspector { store, store_name: instance, names: OwnNames };
        Ok((inspector, request.into_inner(), peer))
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
            let (inspector, asked, _) = self.inspector(request, |it| &it.store_name).await?;
            Ok(Response::new(inspector.get(asked).await?))
        })
        .await
    }

    async fn list_locks(
        &self,
        request: Request<pb::ListLocksRequest>,
    ) -> Result<Response<pb::ListLocksResponse>, Status> {
        answer("ListLocks", async {
            let (inspector, asked, _) = self.inspector(request, |it| &it.store_name).await?;
            Ok(Response::new(inspector.list(asked).await?))
        })
        .await
    }

    async fn list_waiters(
        &self,
        request: Request<pb::ListWaitersRequest>,
    ) -> Result<Response<pb::ListWaitersResponse>, Status> {
        answer("ListWaiters", async {
            let (inspector, asked, _) = self.inspector(request, |it| &it.store_name).await?;
            Ok(Response::new(inspector.waiters(asked).await?))
        })
        .await
    }

    async fn watch_locks(
        &self,
        request: Request<pb::WatchLocksRequest>,
    ) -> Result<Response<Self::WatchLocksStream>, Status> {
        answer("WatchLocks", async {
            let (inspector, asked, _) = self.inspector(request, |it| &it.store_name).await?;
            let events = inspector.watch(asked)?;
            let events =
                events.map(|event| event.map_err(|error| ErrorDescription::from(error).into()));
            Ok(Response::new(Box::pin(events) as Self::WatchLocksStream))
        })
        .await
    }

    async fn end_locks(
        &self,
        request: Request<pb::EndLocksRequest>,
    ) -> Result<Response<pb::EndLocksResponse>, Status> {
        answer("EndLocks", async {
            let (inspector, mut asked, peer) =
                self.inspector(request, |it| &it.store_name).await?;
            let reason = reason(std::mem::take(&mut asked.reason))?;
            let store_name = inspector.store_name.clone();
            let by = ForcedBy { store_name, peer, reason, app_id: None };
            Ok(Response::new(inspector.end(asked, by, |_, _| {}).await?))
        })
        .await
    }
}

//! Inspection over gRPC.

use std::pin::Pin;

use futures_util::{Stream, StreamExt as _};
use leasehold_proto::locks::{self as pb, inspection_server::Inspection};
use tonic::{Request, Response, Status};

use super::super::Locks;
use crate::api::error::ApiError;

#[tonic::async_trait]
impl Inspection for Locks {
    type WatchLocksStream = Pin<Box<dyn Stream<Item = Result<pb::LockEvent, Status>> + Send>>;

    async fn get_lock(
        &self,
        request: Request<pb::GetLockRequest>,
    ) -> Result<Response<pb::GetLockResponse>, Status> {
        Ok(Response::new(self.get_one(request.into_inner()).await?))
    }

    async fn list_locks(
        &self,
        request: Request<pb::ListLocksRequest>,
    ) -> Result<Response<pb::ListLocksResponse>, Status> {
        Ok(Response::new(self.list(request.into_inner()).await?))
    }

    async fn list_waiters(
        &self,
        request: Request<pb::ListWaitersRequest>,
    ) -> Result<Response<pb::ListWaitersResponse>, Status> {
        Ok(Response::new(self.waiters(request.into_inner()).await?))
    }

    async fn watch_locks(
        &self,
        request: Request<pb::WatchLocksRequest>,
    ) -> Result<Response<Self::WatchLocksStream>, Status> {
        let watch = self.watch(request.into_inner())?;
        let events = watch.map(|event| event.map_err(|error| ApiError::Lock(error).into()));
        Ok(Response::new(Box::pin(events)))
    }

    async fn end_locks(
        &self,
        request: Request<pb::EndLocksRequest>,
    ) -> Result<Response<pb::EndLocksResponse>, Status> {
        let peer = request.extensions().get().copied();
        Ok(Response::new(self.end(request.into_inner(), peer).await?))
    }
}

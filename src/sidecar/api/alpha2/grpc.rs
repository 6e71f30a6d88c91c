//! alpha2 over gRPC.

use std::pin::Pin;

use futures_util::{Stream, StreamExt as _};
use leasehold_held::MaxHold;
use leasehold_net::wire::{Arrival, duration, grant_id, token};
use leasehold_proto::locks::{self as proto, lock_server_stream::LockServerStream as Line};
use tonic::{Request, Response, Status, Streaming};

use super::{
    LockCall, Locks, check, keep_alive,
    stream::{self, Event},
    wire,
};
use crate::api::error::ApiError;

#[tonic::async_trait]
impl proto::locks_server::Locks for Locks {
    type LockStreamStream =
        Pin<Box<dyn Stream<Item = Result<proto::LockServerStream, Status>> + Send>>;
    type LockKeepAliveStream =
        Pin<Box<dyn Stream<Item = Result<proto::LockKeepAliveResponse, Status>> + Send>>;

    async fn lock(
        &self,
        request: Request<proto::LockRequest>,
    ) -> Result<Response<proto::LockResponse>, Status> {
        let call = lock_call(request)?;
        let grant = Self::lock(self, call).await?;
        let granted = &grant.granted;
        let mut response = Response::new(proto::LockResponse {
            lock_id: granted.lock_id.as_str().to_owned(),
            fencing_token: token(granted.token),
            ttl: Some(duration(granted.ttl)),
            waited: Some(duration(granted.waited)),
            grant_id: grant_id(granted.id),
        });
        response.extensions_mut().insert(grant.deliver());
        Ok(response)
    }

    async fn renew_lock(
        &self,
        request: Request<proto::RenewLockRequest>,
    ) -> Result<Response<proto::RenewLockResponse>, Status> {
        let ttl = Self::renew_lock(self, request.into_inner()).await?;
        Ok(Response::new(proto::RenewLockResponse { ttl: Some(duration(ttl)) }))
    }

    async fn unlock(
        &self,
        request: Request<proto::UnlockRequest>,
    ) -> Result<Response<proto::UnlockResponse>, Status> {
        self.unlock_lock(request.into_inner()).await?;
        Ok(Response::new(proto::UnlockResponse {}))
    }

    async fn lock_keep_alive(
        &self,
        requests: Request<Streaming<proto::LockKeepAliveRequest>>,
    ) -> Result<Response<Self::LockKeepAliveStream>, Status> {
        let answers = keep_alive::answers(self.clone(), requests.into_inner());
        Ok(Response::new(Box::pin(answers)))
    }

    async fn check_locks(
        &self,
        request: Request<proto::CheckLocksRequest>,
    ) -> Result<Response<proto::CheckLocksResponse>, Status> {
        Ok(Response::new(check::answer(self, request.into_inner()).map_err(ApiError::from)?))
    }

    async fn force_unlock(
        &self,
        request: Request<proto::ForceUnlockRequest>,
    ) -> Result<Response<proto::ForceUnlockResponse>, Status> {
        let peer = request.extensions().get().copied();
        self.force(request.into_inner(), peer).await?;
        Ok(Response::new(proto::ForceUnlockResponse {}))
    }

    async fn lock_stream(
        &self,
        request: Request<proto::LockRequest>,
    ) -> Result<Response<Self::LockStreamStream>, Status> {
        let call = lock_call(request)?;
        let max_hold = MaxHold::asked_for(call.max_hold);
        let events = stream::open(self, call, max_hold).await?;
        let lines = events.map(|event| match event {
            Ok(event) => Ok(proto::LockServerStream { lock_server_stream: Some(line(&event)) }),
            Err(error) => Err(error.into()),
        });
        Ok(Response::new(Box::pin(lines)))
    }
}

/// Reads a request.
fn lock_call(request: Request<proto::LockRequest>) -> Result<LockCall, ApiError> {
    let Arrival { at, deadline } = Arrival::of_call(&request);
    Ok(wire::lock_call(request.into_inner(), at, deadline)?)
}

fn line(event: &Event) -> Line {
    match event {
        Event::Ping => Line::Ping(proto::LockPing {}),
        Event::Acquired(granted) => Line::LockAcquired(proto::LockAcquired {
            lock_id: granted.lock_id.as_str().to_owned(),
            fencing_token: token(granted.token),
            ttl: Some(duration(granted.ttl)),
            waited: Some(duration(granted.waited)),
            grant_id: grant_id(granted.id),
        }),
    }
}

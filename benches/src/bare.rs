//! The baseline: a tonic service with the two smallest Redis lock scripts and
//! nothing else. No token, no waiting, no clean-up, no validation.

use std::path::Path;

use anyhow::Result;
use leasehold_proto::components::{
    FeaturesRequest, FeaturesResponse, LockRequest, LockResponse, LockStoreInitRequest,
    LockStoreInitResponse, PingRequest, PingResponse, RenewLockRequest, RenewLockResponse,
    UnlockRequest, UnlockResponse,
    lock_store_server::{LockStore, LockStoreServer},
};
use redis::{Script, aio::MultiplexedConnection};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status, transport::Server};
use uuid::Uuid;

/// Serves the baseline until killed.
pub(crate) async fn serve(socket: &Path, redis: Option<&str>) -> Result<()> {
    let connection = match redis {
        Some(url) => Some(redis::Client::open(url)?.get_multiplexed_async_connection().await?),
        None => None,
    };
    let bare = Bare {
        connection,
        lock: Script::new("return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])"),
        unlock: Script::new(
            "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) \
             else return 0 end",
        ),
    };
    let listener = UnixListenerStream::new(UnixListener::bind(socket)?);
    Server::builder()
        .add_service(LockStoreServer::new(bare))
        .serve_with_incoming(listener)
        .await?;
    Ok(())
}

struct Bare {
    connection: Option<MultiplexedConnection>,
    lock: Script,
    unlock: Script,
}

#[tonic::async_trait]
impl LockStore for Bare {
    async fn init(
        &self,
        _: Request<LockStoreInitRequest>,
    ) -> Result<Response<LockStoreInitResponse>, Status> {
        Ok(Response::new(LockStoreInitResponse {}))
    }

    async fn features(
        &self,
        _: Request<FeaturesRequest>,
    ) -> Result<Response<FeaturesResponse>, Status> {
        Ok(Response::new(FeaturesResponse::default()))
    }

    async fn ping(&self, _: Request<PingRequest>) -> Result<Response<PingResponse>, Status> {
        Ok(Response::new(PingResponse {}))
    }

    async fn try_lock(
        &self,
        request: Request<LockRequest>,
    ) -> Result<Response<LockResponse>, Status> {
        let request = request.into_inner();
        let lock_id = Uuid::new_v4().to_string();
        if let Some(connection) = &self.connection {
            let ttl_ms = request.ttl.map_or(30_000, |ttl| ttl.seconds * 1000);
            let taken: Option<String> = self
                .lock
                .key(&request.resource_id)
                .arg(&lock_id)
                .arg(ttl_ms)
                .invoke_async(&mut connection.clone())
                .await
                .map_err(|error| Status::unavailable(error.to_string()))?;
            if taken.is_none() {
                return Err(Status::aborted("locked"));
            }
        }
        Ok(Response::new(LockResponse { lock_id, ttl: request.ttl, ..Default::default() }))
    }

    async fn lock(&self, _: Request<LockRequest>) -> Result<Response<LockResponse>, Status> {
        Err(Status::unimplemented("the baseline does not wait"))
    }

    async fn renew_lock(
        &self,
        _: Request<RenewLockRequest>,
    ) -> Result<Response<RenewLockResponse>, Status> {
        Err(Status::unimplemented("the baseline does not renew"))
    }

    async fn unlock(
        &self,
        request: Request<UnlockRequest>,
    ) -> Result<Response<UnlockResponse>, Status> {
        let request = request.into_inner();
        if let Some(connection) = &self.connection {
            let deleted: i64 = self
                .unlock
                .key(&request.resource_id)
                .arg(&request.lock_id)
                .invoke_async(&mut connection.clone())
                .await
                .map_err(|error| Status::unavailable(error.to_string()))?;
            if deleted == 0 {
                return Err(Status::not_found("not held"));
            }
        }
        Ok(Response::new(UnlockResponse {}))
    }
}

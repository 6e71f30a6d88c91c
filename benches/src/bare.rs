//! The baseline: a tonic service with the two smallest lock scripts of Redis, or
//! the two smallest transactions of etcd, and nothing else. No tokens, no
//! separate leases, no waiting, no clean-up, no validation.

use std::path::Path;

use anyhow::Result;
use clap::Args;
use etcd_client::{Compare, CompareOp, KvClient, PutOptions, Txn, TxnOp};
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

/// The lease that all locks on etcd share.
const LEASE_S: i64 = 600;

#[derive(Args)]
pub(crate) struct Over {
    /// The URL of a Redis.
    #[arg(long)]
    redis: Option<String>,
    /// The endpoint of an etcd.
    #[arg(long)]
    etcd: Option<String>,
}

/// Serves the baseline until killed; without a backend it does nothing.
pub(crate) async fn serve(socket: &Path, over: &Over) -> Result<()> {
    let bare = if let Some(url) = &over.redis {
        let client = redis::Client::open(url.as_str())?;
        Bare::Redis {
            connection: client.get_multiplexed_async_connection().await?,
            lock: Script::new(
                "return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])",
            ),
            unlock: Script::new(
                "if redis.call('GET', KEYS[1]) == ARGV[1] then \
                 return redis.call('DEL', KEYS[1]) else return 0 end",
            ),
        }
    } else if let Some(endpoint) = &over.etcd {
        let mut client = etcd_client::Client::connect([endpoint], None).await?;
        let lease = client.lease_grant(LEASE_S, None).await?.id();
        Bare::Etcd { client: Box::new(client.kv_client()), lease }
    } else {
        Bare::Nothing
    };
    let listener = UnixListenerStream::new(UnixListener::bind(socket)?);
    Server::builder()
        .add_service(LockStoreServer::new(bare))
        .serve_with_incoming(listener)
        .await?;
    Ok(())
}

enum Bare {
    Nothing,
    Redis { connection: MultiplexedConnection, lock: Script, unlock: Script },
    Etcd { client: Box<KvClient>, lease: i64 },
}

impl Bare {
    async fn take(&self, key: &str, lock_id: &str, ttl_ms: i64) -> Result<bool> {
        Ok(match self {
            Self::Nothing => true,
            Self::Redis { connection, lock, .. } => {
                let taken: Option<String> = lock
                    .key(key)
                    .arg(lock_id)
                    .arg(ttl_ms)
                    .invoke_async(&mut connection.clone())
                    .await?;
                taken.is_some()
            }
            Self::Etcd { client, lease } => {
                let options = PutOptions::new().with_lease(*lease);
                let txn = Txn::new()
                    .when([Compare::create_revision(key, CompareOp::Equal, 0)])
                    .and_then([TxnOp::put(key, lock_id, Some(options))]);
                KvClient::clone(client).txn(txn).await?.succeeded()
            }
        })
    }

    async fn release(&self, key: &str, lock_id: &str) -> Result<bool> {
        Ok(match self {
            Self::Nothing => true,
            Self::Redis { connection, unlock, .. } => {
                let deleted: i64 =
                    unlock.key(key).arg(lock_id).invoke_async(&mut connection.clone()).await?;
                deleted > 0
            }
            Self::Etcd { client, .. } => {
                let txn = Txn::new()
                    .when([Compare::value(key, CompareOp::Equal, lock_id)])
                    .and_then([TxnOp::delete(key, None)]);
                KvClient::clone(client).txn(txn).await?.succeeded()
            }
        })
    }
}

fn unavailable(error: &anyhow::Error) -> Status {
    Status::unavailable(error.to_string())
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
        let ttl_ms = request.ttl.map_or(30_000, |ttl| ttl.seconds * 1000);
        if !self
            .take(&request.resource_id, &lock_id, ttl_ms)
            .await
            .map_err(|error| unavailable(&error))?
        {
            return Err(Status::aborted("locked"));
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
        if !self
            .release(&request.resource_id, &request.lock_id)
            .await
            .map_err(|error| unavailable(&error))?
        {
            return Err(Status::not_found("not held"));
        }
        Ok(Response::new(UnlockResponse {}))
    }
}

//! The calls of the protocol as boxed futures.

use leasehold_proto::components::{
    LockRequest, LockResponse, PingRequest, PingResponse, RenewLockRequest, RenewLockResponse,
    UnlockRequest, UnlockResponse,
};
use tonic::Request;

use super::connection::{Answer, Client};

pub(super) fn try_lock(
    mut client: Client,
    request: Request<LockRequest>,
) -> Answer<LockResponse> {
    Box::pin(async move { client.try_lock(request).await })
}

pub(super) fn lock(mut client: Client, request: Request<LockRequest>) -> Answer<LockResponse> {
    Box::pin(async move { client.lock(request).await })
}

pub(super) fn renew_lock(
    mut client: Client,
    request: Request<RenewLockRequest>,
) -> Answer<RenewLockResponse> {
    Box::pin(async move { client.renew_lock(request).await })
}

pub(super) fn unlock(
    mut client: Client,
    request: Request<UnlockRequest>,
) -> Answer<UnlockResponse> {
    Box::pin(async move { client.unlock(request).await })
}

pub(super) fn ping(mut client: Client, request: Request<PingRequest>) -> Answer<PingResponse> {
    Box::pin(async move { client.ping(request).await })
}

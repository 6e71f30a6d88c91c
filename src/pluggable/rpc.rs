//! The calls of the protocol as boxed futures.

use leasehold_proto::components::lock_store_client::LockStoreClient;
use leasehold_proto::components::{
    LockRequest, LockResponse, PingRequest, PingResponse, RenewLockRequest, RenewLockResponse,
    UnlockRequest, UnlockResponse,
};
use leasehold_proto::locks::{
    EndLocksRequest, EndLocksResponse, GetLockRequest, GetLockResponse, ListLocksRequest,
    ListLocksResponse, ListWaitersRequest, ListWaitersResponse, LockEvent, WatchLocksRequest,
    inspection_client::InspectionClient,
};
use tonic::{Request, Streaming, transport::Channel};

use super::connection::Answer;

macro_rules! calls {
    ($($client:ident :: $name:ident($request:ty) -> $response:ty;)*) => {$(
        pub(super) fn $name(channel: Channel, request: Request<$request>) -> Answer<$response> {
            Box::pin(async move { $client::new(channel).$name(request).await })
        }
    )*};
}

calls! {
    LockStoreClient::try_lock(LockRequest) -> LockResponse;
    LockStoreClient::lock(LockRequest) -> LockResponse;
    LockStoreClient::renew_lock(RenewLockRequest) -> RenewLockResponse;
    LockStoreClient::unlock(UnlockRequest) -> UnlockResponse;
    LockStoreClient::ping(PingRequest) -> PingResponse;
    InspectionClient::get_lock(GetLockRequest) -> GetLockResponse;
    InspectionClient::list_locks(ListLocksRequest) -> ListLocksResponse;
    InspectionClient::list_waiters(ListWaitersRequest) -> ListWaitersResponse;
    InspectionClient::watch_locks(WatchLocksRequest) -> Streaming<LockEvent>;
    InspectionClient::end_locks(EndLocksRequest) -> EndLocksResponse;
}

//! A store that lacks something that many cases need: a wrapper of another
//! store, over its socket.

use std::path::Path;
use tokio::{net::UnixListener, task::AbortHandle};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{
    Request, Response, Status,
    transport::{Channel, Endpoint, Server},
};

use leasehold_proto::components::{
    FeaturesRequest, FeaturesResponse, LockRequest, LockResponse, LockStoreInitRequest,
    LockStoreInitResponse, PingRequest, PingResponse, RenewLockRequest, RenewLockResponse,
    UnlockRequest, UnlockResponse,
    lock_store_client::LockStoreClient,
    lock_store_server::{LockStore, LockStoreServer},
};

/// What the store lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// Refusals have a code and a message, and no details.
    Details,
    /// RenewLock answers UNIMPLEMENTED, as generated code does.
    RenewLock,
}

struct Front {
    inner: LockStoreClient<Channel>,
    lack: Lack,
}

/// Serves the store of the socket `inner`, with the lack, on `path`.
pub async fn serve(path: &Path, inner: &Path, lack: Lack) -> AbortHandle {
    let endpoint = Endpoint::from_shared(format!("unix://{}", inner.display())).unwrap();
    let front = Front { inner: LockStoreClient::new(endpoint.connect().await.unwrap()), lack };
    let incoming = UnixListenerStream::new(UnixListener::bind(path).unwrap());
    let serving = Server::builder()
        .add_service(LockStoreServer::new(front))
        .serve_with_incoming(incoming);
    tokio::spawn(async { serving.await.unwrap() }).abort_handle()
}

impl Front {
    fn strip<T>(&self, answer: Result<Response<T>, Status>) -> Result<Response<T>, Status> {
        answer.map_err(|status| match self.lack {
            Lack::Details => Status::new(status.code(), status.message()),
            Lack::RenewLock => status,
        })
    }
}

#[tonic::async_trait]
impl LockStore for Front {
    async fn init(
        &self,
        request: Request<LockStoreInitRequest>,
    ) -> Result<Response<LockStoreInitResponse>, Status> {
        self.strip(self.inner.clone().init(request).await)
    }

    async fn features(
        &self,
        request: Request<FeaturesRequest>,
    ) -> Result<Response<FeaturesResponse>, Status> {
        self.strip(self.inner.clone().features(request).await)
    }

    async fn ping(
        &self,
        request: Request<PingRequest>,
    ) -> Result<Response<PingResponse>, Status> {
        self.strip(self.inner.clone().ping(request).await)
    }

    async fn try_lock(
        &self,
        request: Request<LockRequest>,
    ) -> Result<Response<LockResponse>, Status> {
        self.strip(self.inner.clone().try_lock(request).await)
    }

    async fn lock(
        &self,
        request: Request<LockRequest>,
    ) -> Result<Response<LockResponse>, Status> {
        self.strip(self.inner.clone().lock(request).await)
    }

    async fn renew_lock(
        &self,
        request: Request<RenewLockRequest>,
    ) -> Result<Response<RenewLockResponse>, Status> {
        if self.lack == Lack::RenewLock {
            return Err(Status::unimplemented(""));
        }
        self.strip(self.inner.clone().renew_lock(request).await)
    }

    async fn unlock(
        &self,
        request: Request<UnlockRequest>,
    ) -> Result<Response<UnlockResponse>, Status> {
        self.strip(self.inner.clone().unlock(request).await)
    }
}

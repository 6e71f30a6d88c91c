//! alpha1 over gRPC, and the metadata that SDKs ask for at their start.

use leasehold_net::answers::Delivery;
use leasehold_proto::dapr::{
    GetMetadataRequest, GetMetadataResponse, TryLockRequest, TryLockResponse, UnlockRequest,
    UnlockResponse, dapr_server::Dapr,
};
use tonic::{Request, Response, Status, metadata::MetadataValue};

use super::{Alpha1, FENCING_TOKEN};
use crate::api::metadata::Metadata;

/// The part of Dapr's API that is served here.
#[derive(Clone, Debug)]
pub struct DaprService {
    /// The lock calls.
    pub alpha1: Alpha1,
    /// What `GetMetadata` returns.
    pub metadata: Metadata,
}

#[tonic::async_trait]
impl Dapr for DaprService {
    async fn try_lock_alpha1(
        &self,
        request: Request<TryLockRequest>,
    ) -> Result<Response<TryLockResponse>, Status> {
        let granted = self.alpha1.try_lock(request.into_inner()).await?;
        let mut response = Response::new(TryLockResponse { success: granted.is_some() });
        if let Some(granted) = granted {
            if let Some(token) = granted.token {
                let token = MetadataValue::from(token.get());
                response.metadata_mut().insert(FENCING_TOKEN, token);
            }
            response.extensions_mut().insert(Delivery::of(granted.receipt));
        }
        Ok(response)
    }

    async fn unlock_alpha1(
        &self,
        request: Request<UnlockRequest>,
    ) -> Result<Response<UnlockResponse>, Status> {
        let status = self.alpha1.unlock(request.into_inner()).await?;
        Ok(Response::new(UnlockResponse { status: status.into() }))
    }

    async fn get_metadata(
        &self,
        _: Request<GetMetadataRequest>,
    ) -> Result<Response<GetMetadataResponse>, Status> {
        Ok(Response::new(self.metadata.as_proto()))
    }
}

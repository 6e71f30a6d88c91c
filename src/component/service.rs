//! The `LockStore` service.

use std::sync::Arc;

use leasehold_lock::{Granted, LockError, Store};
use leasehold_net::{
    answers::Delivery,
    inspection::{ForcedBy, force_unlock},
    status::ErrorDescription,
    wire::{Arrival, duration},
};
use leasehold_proto::components::{self as pb, lock_store_server::LockStore};
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::Instant,
};
use tonic::{Request, Response, Status};
use tracing::{Instrument as _, debug, debug_span};

use super::{instances::Instances, wire};

/// How many TryLocks and Inits may be under way at a time. Waits need no permit. Neither
/// do renewals and unlocks: holders must be able to keep and release their locks.
const SHORT_CALLS_MAX: usize = 10_000;

/// Serves the instances of one backend.
#[derive(Clone)]
pub(crate) struct Service {
    instances: Arc<Instances>,
    short_calls: Arc<Semaphore>,
}

impl Service {
    pub(crate) fn new(instances: Arc<Instances>) -> Self {
        Self { instances, short_calls: Arc::new(Semaphore::new(SHORT_CALLS_MAX)) }
    }

    /// The store of the instance that a call names, and when the call arrived.
    pub(super) async fn store<T>(
        &self,
        request: &Request<T>,
    ) -> Result<(Store, Arrival), LockError> {
        let instance = wire::instance(request.metadata())?;
        let arrival = Arrival::of_call(request);
        let store = self.instances.store(instance, arrival.at, arrival.deadline).await?;
        Ok((store, arrival))
    }

    fn admit(&self) -> Result<SemaphorePermit<'_>, LockError> {
        self.short_calls.try_acquire().map_err(|_| LockError::Overloaded)
    }
}

#[tonic::async_trait]
impl LockStore for Service {
    async fn init(
        &self,
        request: Request<pb::LockStoreInitRequest>,
    ) -> Result<Response<pb::LockStoreInitResponse>, Status> {
        answer("Init", async {
            let _permit = self.admit()?;
            let instance = wire::instance(request.metadata())?.to_owned();
            let metadata = request.into_inner().metadata.unwrap_or_default().properties;
            self.instances.init(&instance, metadata.into_iter().collect()).await?;
            Ok(Response::new(pb::LockStoreInitResponse {}))
        })
        .await
    }

    async fn features(
        &self,
        request: Request<pb::FeaturesRequest>,
    ) -> Result<Response<pb::FeaturesResponse>, Status> {
        answer("Features", async {
            let instance = wire::instance(request.metadata())?;
            let features = self.instances.features(instance);
            let features = features.iter().map(|feature| feature.name().to_owned()).collect();
            Ok(Response::new(pb::FeaturesResponse { features }))
        })
        .await
    }

    async fn ping(
        &self,
        _: Request<pb::PingRequest>,
    ) -> Result<Response<pb::PingResponse>, Status> {
        Ok(Response::new(pb::PingResponse {}))
    }

    async fn try_lock(
        &self,
        request: Request<pb::LockRequest>,
    ) -> Result<Response<pb::LockResponse>, Status> {
        answer("TryLock", async {
            let _permit = self.admit()?;
            let (store, arrival) = self.store(&request).await?;
            let request = wire::acquire(request.get_ref(), arrival.at, None)?;
            Ok(receipted(store.try_lock(request).await?))
        })
        .await
    }

    async fn lock(
        &self,
        request: Request<pb::LockRequest>,
    ) -> Result<Response<pb::LockResponse>, Status> {
        answer("Lock", async {
            let (store, arrival) = self.store(&request).await?;
            let request = wire::acquire(request.get_ref(), arrival.at, arrival.deadline)?;
            Ok(receipted(store.lock(request).await?))
        })
        .await
    }

    async fn renew_lock(
        &self,
        request: Request<pb::RenewLockRequest>,
    ) -> Result<Response<pb::RenewLockResponse>, Status> {
        answer("RenewLock", async {
            let (store, _) = self.store(&request).await?;
            let renewed = store.renew(wire::renew(request.get_ref())?).await?;
            let ttl = Some(duration(renewed.ttl));
            Ok(Response::new(pb::RenewLockResponse { ttl }))
        })
        .await
    }

    async fn unlock(
        &self,
        request: Request<pb::UnlockRequest>,
    ) -> Result<Response<pb::UnlockResponse>, Status> {
        answer("Unlock", async {
            let (store, _) = self.store(&request).await?;
            let unlock = wire::unlock(request.get_ref())?;
            if request.get_ref().force {
                let by = ForcedBy {
                    store_name: wire::instance(request.metadata())?.to_owned(),
                    peer: request.extensions().get().copied(),
                    ..ForcedBy::default()
                };
                let (resource, by_force) = (unlock.resource.clone(), store.clone());
                let unlock =
                    move |until| async move { by_force.unlock_by(unlock, until).await };
                force_unlock(store, resource, None, by, unlock).await?;
            } else {
                store.unlock(unlock).await?;
            }
            Ok(Response::new(pb::UnlockResponse {}))
        })
        .await
    }
}

/// Answers one call. An error becomes a status, and the outcome is traced without any ID.
pub(super) async fn answer<T>(
    call: &'static str,
    work: impl Future<Output = Result<Response<T>, LockError>>,
) -> Result<Response<T>, Status> {
    let began = Instant::now();
    match work.instrument(debug_span!("call", name = call)).await {
        Ok(response) => {
            debug!(call, took = ?began.elapsed(), "answered");
            Ok(response)
        }
        Err(refused) => {
            debug!(call, error = %refused, "refused");
            Err(ErrorDescription::from(refused).into())
        }
    }
}

/// The response to a grant. The transport accepts its receipt.
fn receipted(granted: Granted) -> Response<pb::LockResponse> {
    let mut response = Response::new(wire::granted(&granted));
    response.extensions_mut().insert(Delivery::of(granted.receipt));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_frees_the_place_of_its_call() {
        let service =
            Service::new(Arc::new(Instances::new(Arc::new(|_, _, _| panic!("a defect")), &[])));
        let call = tokio::spawn({
            let service = service.clone();
            async move { service.init(Request::new(pb::LockStoreInitRequest::default())).await }
        });
        assert!(call.await.unwrap_err().is_panic());
        assert_eq!(service.short_calls.available_permits(), SHORT_CALLS_MAX);
    }
}

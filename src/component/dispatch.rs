//! Routes each call to its service, within the caller's deadline.

use std::{convert::Infallible, sync::Arc};

use axum::{Router, body::Body, response::Response};
use futures_util::TryFutureExt as _;
use http::Request;
use leasehold_net::{request_budget::RequestBudget, server::Respond, wire::Arrival};
use leasehold_proto::{
    FILE_DESCRIPTOR_SET,
    components::lock_store_server::{self, LockStoreServer},
    locks::inspection_server::{self, InspectionServer},
};
use tokio::time::{Instant, timeout_at};
use tonic::{Status, codegen::BoxFuture, service::Routes};
use tonic_health::pb::health_server::{self, Health, HealthServer};
use tower::{Service as _, ServiceExt as _};

use super::service::Service;

/// Init carries certificates; nothing else is larger than a few kilobytes.
const MESSAGE_BYTES_MAX: usize = 1024 * 1024;
const INSPECTION_BYTES_MAX: usize = 64 * 1024;

/// The response type of the generated services.
type Responding = BoxFuture<http::Response<tonic::body::Body>, Infallible>;

/// The services of a socket.
struct Services {
    lock_store: LockStoreServer<Service>,
    inspection: InspectionServer<Service>,
    /// Health and reflection, which are seldom called.
    others: Router,
    request_budget: RequestBudget,
}

/// Responds to the calls of a socket.
///
/// Each lock call goes straight to its service. A router and its layers would copy
/// themselves for each call, which is a tenth of what a call costs.
#[derive(Clone)]
pub(super) struct Dispatch(Arc<Services>);

impl Dispatch {
    /// Dispatches to the lock store, its inspection, health, and their reflection.
    pub(super) fn new(
        service: Service,
        health: HealthServer<impl Health>,
    ) -> Result<Self, tonic_reflection::server::Error> {
        let others = Routes::new(health)
            .add_service(reflection().build_v1()?)
            .add_service(reflection().build_v1alpha()?);
        Ok(Self(Arc::new(Services {
            inspection: InspectionServer::new(service.clone())
                .max_decoding_message_size(INSPECTION_BYTES_MAX),
            lock_store: LockStoreServer::new(service)
                .max_decoding_message_size(MESSAGE_BYTES_MAX),
            others: others.into_axum_router().with_state(()),
            request_budget: RequestBudget::default(),
        })))
    }
}

impl Services {
    /// Calls the service that the request names. Requests of the lock store and of its
    /// inspection are one message each, and are counted; those of the others are streams.
    fn call(&self, request: Request<Body>) -> Responding {
        // The generated services are always ready, and need no poll for it.
        match service_name(&request) {
            lock_store_server::SERVICE_NAME => {
                let request = request.map(|body| self.request_budget.count(body));
                self.lock_store.clone().call(request)
            }
            inspection_server::SERVICE_NAME => {
                let request = request.map(|body| self.request_budget.count(body));
                self.inspection.clone().call(request)
            }
            _ => {
                let responding = self.others.clone().oneshot(request);
                Box::pin(responding.map_ok(|response| response.map(tonic::body::Body::new)))
            }
        }
    }
}

impl Respond for Dispatch {
    fn respond(self, request: Request<Body>) -> impl Future<Output = Response> + Send {
        let deadline = Arrival::of(request.extensions(), request.headers()).deadline;
        // Called here and not in the future: a future that holds a whole request is slow to
        // move.
        respond_within(deadline, self.0.call(request))
    }
}

async fn respond_within(deadline: Option<Instant>, responding: Responding) -> Response {
    let responded = match deadline {
        None => responding.await,
        Some(deadline) => match timeout_at(deadline, responding).await {
            Ok(responded) => responded,
            // The status that tonic's server uses.
            Err(_) => return Status::cancelled("Timeout expired").into_http(),
        },
    };
    responded.unwrap_or_else(|never| match never {}).map(Body::new)
}

/// The part of the path before the method.
fn service_name(request: &Request<Body>) -> &str {
    let path = request.uri().path().strip_prefix('/').unwrap_or_default();
    path.split_once('/').map_or(path, |(service, _)| service)
}

/// Describes the services of this socket, and no others that the descriptors contain.
fn reflection() -> tonic_reflection::server::Builder<'static> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .with_service_name(lock_store_server::SERVICE_NAME)
        .with_service_name(inspection_server::SERVICE_NAME)
        .with_service_name(health_server::SERVICE_NAME)
}

#[cfg(test)]
mod tests {
    use std::{future::pending, time::Duration};

    use tonic::Code;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_call_ends_at_its_deadline() {
        let request = Request::get("/").header("grpc-timeout", "100m").body(Body::empty());
        let began = Instant::now();
        let deadline = Arrival::now(request.unwrap().headers()).deadline;
        let response = respond_within(deadline, Box::pin(pending())).await;
        assert_eq!(began.elapsed(), Duration::from_millis(100));
        let status = Status::from_header_map(response.headers()).unwrap();
        assert_eq!((status.code(), status.message()), (Code::Cancelled, "Timeout expired"));
    }

    #[test]
    fn a_service_is_named_before_its_method() {
        for (path, name) in [("/a.B/C", "a.B"), ("/a.B", "a.B"), ("/", "")] {
            let request = Request::get(path).body(Body::empty()).unwrap();
            assert_eq!(service_name(&request), name);
        }
    }
}

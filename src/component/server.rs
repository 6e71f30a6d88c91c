//! One backend on its socket, from listening to the end of the drain.

use std::{sync::Arc, time::Duration};

use axum::{
    body::Body,
    extract::{Request, State},
    middleware::{Next, from_fn_with_state},
    response::Response,
};
use http::{HeaderMap, HeaderName};
use leasehold_proto::{
    FILE_DESCRIPTOR_SET,
    components::lock_store_server::{self, LockStoreServer},
    locks::inspection_server::{self, InspectionServer},
};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tonic::{Status, metadata::MetadataMap, service::Routes};
use tonic_health::{ServingStatus, server::HealthReporter};
use tracing::{info, warn};

use super::{instances::Instances, service::Service};
use crate::{
    lock::LockError,
    net::{
        config::{AtLimit, Config, Protocols},
        delivery::settle,
        listener::Listener,
        request_budget::RequestBudget,
        server::Server,
        socket::Socket,
        status::ErrorDescription,
        wire::deadline,
    },
};

/// How many connections a socket serves at a time.
const CONNECTIONS_MAX: usize = 4096;
/// Init carries certificates; nothing else is larger than a few kilobytes.
const MESSAGE_BYTES_MAX: usize = 1024 * 1024;
const INSPECTION_BYTES_MAX: usize = 64 * 1024;
const HEADER_BYTES_MAX: u32 = 16 * 1024;
/// A caller that cancels thousands of waits at once is no attack here. With h2's own limit of
/// 20 it would lose the connection, and all its other waits.
const EARLY_RESETS_MAX: usize = 100_000;
/// Room for the answers to some fifty calls.
const ANSWER_BYTES_HELD_MAX: usize = 8 * 1024;
const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
/// The steps of a drain, which ends within 10 s.
const QUIET_WITHIN: Duration = Duration::from_secs(5);
const ANSWERED_WITHIN: Duration = Duration::from_secs(2);
const SETTLED_WITHIN: Duration = Duration::from_secs(2);
/// Clients that are still connected have finished renewing and unlocking when they were
/// silent for so long.
const QUIET: Duration = Duration::from_secs(1);
const QUIET_POLL: Duration = Duration::from_millis(20);

/// How answers are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Answers {
    /// Each response is flushed at once, so that early callers can send their next request
    /// while later ones are still served.
    #[default]
    AsTheyCome,
    /// Responses that are ready at the same time share a flush, for a backend that commits
    /// groups.
    Together,
}

/// Why serving could not begin.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The reflection service refused the descriptors: a defect of the build.
    #[error("reflection: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
}

/// A backend that is being served.
#[derive(Debug)]
pub struct Component {
    instances: Arc<Instances>,
    health: HealthReporter,
    server: Server,
}

impl Component {
    /// Starts to serve. Health, reflection and Ping answer from now on, calls as soon as
    /// their instance is initialised.
    pub async fn start(
        socket: Socket,
        instances: Arc<Instances>,
        answers: Answers,
    ) -> Result<Self, ServeError> {
        let (health, health_service) = tonic_health::server::health_reporter();
        health.set_serving::<LockStoreServer<Service>>().await;
        let service = Service::new(Arc::clone(&instances));
        let inspection = InspectionServer::new(service.clone())
            .max_decoding_message_size(INSPECTION_BYTES_MAX);
        let lock_store =
            LockStoreServer::new(service).max_decoding_message_size(MESSAGE_BYTES_MAX);
        let router = Routes::new(lock_store)
            .add_service(inspection)
            .add_service(health_service)
            .add_service(reflection().build_v1()?)
            .add_service(reflection().build_v1alpha()?)
            .into_axum_router()
            .layer(from_fn_with_state(RequestBudget::new(), respond));
        let server = Server::new(router, config(answers));
        server.serve(Listener::Unix(socket));
        Ok(Self { instances, health, server })
    }

    /// The instances that are served.
    #[must_use]
    pub fn instances(&self) -> &Arc<Instances> {
        &self.instances
    }

    /// Drains within 10 s: new locks and tries are refused and waits end with SHUTTING_DOWN.
    /// Renewals and unlocks are served for as long as they keep coming, and then the socket
    /// is removed. Grants stay with their holders.
    pub async fn drain(self) {
        self.health.set_not_serving::<LockStoreServer<Service>>().await;
        self.health.set_service_status("", ServingStatus::NotServing).await;
        self.instances.drain();
        if timeout(QUIET_WITHIN, self.quiet()).await.is_err() {
            info!("clients keep calling; their connections end now");
        }
        if !self.server.close(Instant::now() + ANSWERED_WITHIN).await {
            warn!("clients kept their connections past the drain; they are cut off");
        }
        if timeout(SETTLED_WITHIN, self.instances.retire()).await.is_err() {
            warn!("some operations are still unsettled; what they left ends with its TTL");
        }
    }

    /// Waits until nobody is connected, or no call has come for a while.
    async fn quiet(&self) {
        let (mut seen, mut since) = (self.instances.calls(), Instant::now());
        while !self.server.is_idle() && since.elapsed() < QUIET {
            sleep(QUIET_POLL).await;
            let calls = self.instances.calls();
            if calls != seen {
                (seen, since) = (calls, Instant::now());
            }
        }
    }
}

fn config(answers: Answers) -> Config {
    Config {
        protocols: Protocols::Http2,
        connections_max: CONNECTIONS_MAX,
        at_limit: AtLimit::Close,
        header_bytes_max: HEADER_BYTES_MAX,
        early_resets_max: EARLY_RESETS_MAX,
        error_resets_max: None,
        held_bytes_max: match answers {
            Answers::AsTheyCome => 0,
            Answers::Together => ANSWER_BYTES_HELD_MAX,
        },
        panicked: || {
            tonic::Status::from(ErrorDescription::from(LockError::Internal)).into_http()
        },
    }
}

/// Responds to a call within the deadline that its caller sent, and releases its grant if the
/// response is not delivered.
async fn respond(
    State(request_budget): State<RequestBudget>,
    request: Request,
    next: Next,
) -> Response {
    let deadline = deadline_of(&request, Instant::now());
    let responding = next.run(counted(&request_budget, request));
    let response = match deadline {
        None => responding.await,
        // As tonic's own server does.
        Some(deadline) => timeout_at(deadline, responding)
            .await
            .unwrap_or_else(|_| Status::cancelled("Timeout expired").into_http()),
    };
    settle(response).map(Body::new)
}

/// The deadline of a call that arrived just now.
fn deadline_of(request: &Request, arrived: Instant) -> Option<Instant> {
    let timeout = request.headers().get(GRPC_TIMEOUT)?;
    let mut headers = HeaderMap::with_capacity(1);
    headers.insert(GRPC_TIMEOUT, timeout.clone());
    deadline(&MetadataMap::from_headers(headers), arrived)
}

/// Counts the requests of the lock store and of its inspection, which are one message each. Those of the other
/// services are streams.
fn counted(request_budget: &RequestBudget, request: Request) -> Request {
    let path = request.uri().path().strip_prefix('/').unwrap_or_default();
    let is_counted = path.starts_with(lock_store_server::SERVICE_NAME)
        || path.starts_with(inspection_server::SERVICE_NAME);
    if is_counted { request.map(|body| Body::new(request_budget.count(body))) } else { request }
}

/// Describes the services of this socket, and no others that the descriptors contain.
fn reflection() -> tonic_reflection::server::Builder<'static> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .with_service_name(lock_store_server::SERVICE_NAME)
        .with_service_name(inspection_server::SERVICE_NAME)
        .with_service_name(tonic_health::pb::health_server::SERVICE_NAME)
}

#[cfg(test)]
mod tests {
    use axum::{Router, routing::get};
    use tonic::Code;
    use tonic_types::StatusExt as _;
    use tower::ServiceExt as _;

    use super::*;

    #[test]
    fn a_panic_is_an_internal_error() {
        let response = (config(Answers::default()).panicked)();
        let status = Status::from_header_map(response.headers()).unwrap();
        assert_eq!(status.code(), Code::Internal);
        assert_eq!(status.get_details_error_info().unwrap().reason, "INTERNAL");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_ends_at_its_deadline() {
        let router = Router::new()
            .route("/", get(std::future::pending::<()>))
            .layer(from_fn_with_state(RequestBudget::new(), respond));
        let request = Request::get("/").header(GRPC_TIMEOUT, "100m").body(Body::empty());
        let began = Instant::now();
        let response = router.oneshot(request.unwrap()).await.unwrap();
        assert!(began.elapsed() >= Duration::from_millis(100));
        let status = Status::from_header_map(response.headers()).unwrap();
        assert_eq!((status.code(), status.message()), (Code::Cancelled, "Timeout expired"));
    }
}

//! One backend on its socket, from listening to the end of the drain.

use std::{sync::Arc, time::Duration};

use leasehold_proto::{
    FILE_DESCRIPTOR_SET,
    components::lock_store_server::{self, LockStoreServer},
};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tonic::{body::Body, transport::Server};
use tonic_health::{ServingStatus, server::HealthReporter};
use tower::ServiceBuilder;
use tracing::{info, warn};

use super::{
    connections::{Answers, Places},
    instances::Instances,
    service::Service,
};
use crate::{
    edge::{delivery::settle, request_budget::RequestBudget},
    net::socket::{Socket, SocketFile},
};

/// Above every limit of waiters, so that no wait keeps other calls out.
const STREAMS_MAX: u32 = 250_000;
/// What a connection may have sent that nobody has read yet. h2 takes small
/// frames beyond half of it, each counted as 256 bytes, for an attack and ends
/// the connection: so as many waits as a store allows may begin at once.
const UNREAD_BYTES_MAX: u32 = 64 * 1024 * 1024;
/// Init carries certificates; nothing else is larger than a few kilobytes.
const MESSAGE_BYTES_MAX: usize = 1024 * 1024;
const HEADER_BYTES_MAX: u32 = 16 * 1024;
/// A peer that answers no ping within this time is gone.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(20);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// A caller that cancels thousands of waits at once is no attack here; with
/// h2's own limit of 20 it would lose the connection, and all its other waits.
const RESETS_MAX: usize = 100_000;
/// A drain has ended by then, each of its steps in its share of the time.
const QUIET_WITHIN: Duration = Duration::from_secs(5);
const ANSWERED_WITHIN: Duration = Duration::from_secs(2);
const SETTLED_WITHIN: Duration = Duration::from_secs(2);
/// Clients that are still connected are done with renewing and unlocking when
/// they were silent for so long.
const QUIET: Duration = Duration::from_secs(1);
const QUIET_LOOK: Duration = Duration::from_millis(20);

/// Why serving ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The reflection service refused the descriptors: a defect of the build.
    #[error("reflection: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
    /// The transport failed.
    #[error("transport: {0}")]
    Transport(#[from] tonic::transport::Error),
}

/// A backend that is being served.
#[derive(Debug)]
pub struct Component {
    file: SocketFile,
    instances: Arc<Instances>,
    health: HealthReporter,
    places: Places,
    stop: CancellationToken,
    server: JoinHandle<Result<(), tonic::transport::Error>>,
}

impl Component {
    /// Starts to serve. Health, reflection and Ping answer from now on, calls
    /// as soon as their instance is initialised.
    pub async fn start(
        socket: Socket,
        instances: Arc<Instances>,
        answers: Answers,
    ) -> Result<Self, ServeError> {
        let (file, listener) = socket.into_parts();
        let (health, health_service) = tonic_health::server::health_reporter();
        health.set_serving::<LockStoreServer<Service>>().await;
        let lock_store = LockStoreServer::new(Service::new(Arc::clone(&instances)))
            .max_decoding_message_size(MESSAGE_BYTES_MAX);
        let (places, stop) = (Places::new(), CancellationToken::new());
        let request_budget = RequestBudget::new();
        let server = Server::builder()
            .max_concurrent_streams(STREAMS_MAX)
            .initial_connection_window_size(UNREAD_BYTES_MAX)
            .http2_max_header_list_size(HEADER_BYTES_MAX)
            .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
            .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
            .http2_max_pending_accept_reset_streams(Some(RESETS_MAX))
            .layer(
                ServiceBuilder::new()
                    .map_request(move |request| counted(&request_budget, request))
                    .map_response(settle::<Body>),
            )
            .add_service(lock_store)
            .add_service(health_service)
            .add_service(reflection().build_v1()?)
            .add_service(reflection().build_v1alpha()?)
            .serve_with_incoming_shutdown(
                places.clone().incoming(listener, answers),
                stop.clone().cancelled_owned(),
            );
        let server = tokio::spawn(server);
        Ok(Self { file, instances, health, places, stop, server })
    }

    /// The instances that are served.
    #[must_use]
    pub fn instances(&self) -> &Arc<Instances> {
        &self.instances
    }

    /// Drains within 10 s: new locks and tries are refused and waits end with
    /// SHUTTING_DOWN; renewals and unlocks are served for as long as they keep
    /// coming; then the socket is removed. Grants stay with their holders.
    pub async fn drain(self) -> Result<(), ServeError> {
        self.health.set_not_serving::<LockStoreServer<Service>>().await;
        self.health.set_service_status("", ServingStatus::NotServing).await;
        self.instances.drain();
        if timeout(QUIET_WITHIN, self.quiet()).await.is_err() {
            info!("clients keep calling; their connections end now");
        }
        // Before nobody listens any more: a stale socket hangs a starting daprd.
        drop(self.file);
        self.stop.cancel();
        let abort = self.server.abort_handle();
        match timeout(ANSWERED_WITHIN, self.server).await {
            Ok(Ok(served)) => served?,
            Ok(Err(panicked)) => warn!(error = %panicked, "the server ended in a panic"),
            Err(_) => {
                abort.abort();
                warn!("clients kept their connections past the drain; they were cut off");
            }
        }
        if timeout(SETTLED_WITHIN, self.instances.retire()).await.is_err() {
            warn!("some operations are still unsettled; what they left ends with its TTL");
        }
        Ok(())
    }

    /// Waits until nobody is connected, or no call has come for a while.
    async fn quiet(&self) {
        let (mut seen, mut since) = (self.instances.calls(), Instant::now());
        while !self.places.all_free() && since.elapsed() < QUIET {
            sleep(QUIET_LOOK).await;
            let calls = self.instances.calls();
            if calls != seen {
                (seen, since) = (calls, Instant::now());
            }
        }
    }
}

/// Counts what comes for our own service, whose requests are one message each;
/// the others have streams.
fn counted(
    request_budget: &RequestBudget,
    request: http::Request<Body>,
) -> http::Request<Body> {
    let path = request.uri().path().strip_prefix('/').unwrap_or_default();
    if path.starts_with(lock_store_server::SERVICE_NAME) {
        request.map(|body| Body::new(request_budget.count(body)))
    } else {
        request
    }
}

/// Names what this socket serves, and nothing else that the descriptors have.
fn reflection() -> tonic_reflection::server::Builder<'static> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .with_service_name(lock_store_server::SERVICE_NAME)
        .with_service_name(tonic_health::pb::health_server::SERVICE_NAME)
}

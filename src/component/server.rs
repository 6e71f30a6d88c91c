//! One backend on its socket, from listening to the end of the drain.

use std::{sync::Arc, time::Duration};

use leasehold_net::{
    config::{Config, Protocols},
    listener::Listener,
    quiet::quiet,
    server::Server,
    socket::Socket,
    status::ErrorDescription,
};
use leasehold_proto::components::lock_store_server::LockStoreServer;
use tokio::time::Instant;
use tonic_health::{ServingStatus, server::HealthReporter};
use tracing::{info, warn};

use super::{dispatch::Dispatch, instances::Instances, service::Service};

/// How many connections a socket serves at a time.
const CONNECTIONS_MAX: usize = 4096;
const HEADER_BYTES_MAX: u32 = 16 * 1024;
/// Room for the answers to some fifty calls.
const ANSWER_BYTES_HELD_MAX: usize = 8 * 1024;
/// How long a drain may take.
pub const DRAIN_MAX: Duration = Duration::from_secs(9);
/// How long it waits for answers once clients are silent. What is left is the time for settling.
const ANSWERED_WITHIN: Duration = Duration::from_secs(2);

/// Why serving could not begin.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The reflection service refused the descriptors: a defect of the build.
    #[error("reflection: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
}

/// A backend that is being served.
pub struct Component {
    instances: Arc<Instances>,
    health: HealthReporter,
    server: Server<Dispatch>,
}

impl Component {
    /// Starts to serve. Health, reflection and Ping answer from now on, calls as soon as
    /// their instance is initialised. Responses that are ready at the same time share a flush if
    /// the backend commits groups. Otherwise each is flushed at once, so that early callers can
    /// send their next request while later ones are still served.
    pub async fn start(
        socket: Socket,
        instances: Arc<Instances>,
        commits_groups: bool,
    ) -> Result<Self, ServeError> {
        let (health, health_service) = tonic_health::server::health_reporter();
        health.set_serving::<LockStoreServer<Service>>().await;
        let service = Service::new(Arc::clone(&instances));
        let server =
            Server::new(Dispatch::new(service, health_service)?, config(commits_groups));
        server.serve(Listener::Unix(socket));
        Ok(Self { instances, health, server })
    }

    /// Drains within 10 s: stops serving, and settles what is left. Grants stay with their
    /// holders.
    pub async fn drain(self) {
        let until = Instant::now() + DRAIN_MAX;
        self.stop_serving().await;
        self.settle(until).await;
    }

    /// Refuses new locks and tries, and ends waits with SHUTTING_DOWN. Renewals and unlocks are
    /// served for as long as they keep coming, and then the socket is removed.
    pub async fn stop_serving(&self) {
        self.health.set_not_serving::<LockStoreServer<Service>>().await;
        self.health.set_service_status("", ServingStatus::NotServing).await;
        self.instances.drain();
        if !quiet(|| self.server.is_idle(), || self.instances.calls()).await {
            info!("clients keep calling; their connections end now");
        }
        if !self.server.close(Instant::now() + ANSWERED_WITHIN).await {
            warn!("clients kept their connections past the drain; they are cut off");
        }
    }

    /// Settles what is left, and closes the stores.
    pub async fn settle(&self, until: Instant) {
        self.instances.retire_by(until).await;
    }
}

fn config(commits_groups: bool) -> Config {
    Config {
        protocols: Protocols::Http2,
        connections_max: CONNECTIONS_MAX,
        header_bytes_max: HEADER_BYTES_MAX,
        held_bytes_max: if commits_groups { ANSWER_BYTES_HELD_MAX } else { 0 },
        failed: |error| tonic::Status::from(ErrorDescription::from(error)).into_http(),
    }
}

#[cfg(test)]
mod tests {
    use leasehold_lock::LockError;
    use tonic::{Code, Status};
    use tonic_types::StatusExt as _;

    use super::*;

    #[test]
    fn a_panic_is_an_internal_error() {
        let response = (config(false).failed)(LockError::Internal);
        let status = Status::from_header_map(response.headers()).unwrap();
        assert_eq!(status.code(), Code::Internal);
        assert_eq!(status.get_details_error_info().unwrap().reason, "INTERNAL");
    }
}

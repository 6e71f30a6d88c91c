//! The sidecar as a whole: listen, serve, drain.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    response::{IntoResponse as _, Response},
};
use futures_util::future::join_all;
use leasehold_held::{Engine, EngineOptions};
use leasehold_lock::LockError;
use leasehold_net::{
    config::{Config, Protocols},
    listener::{ListenError, Listener},
    request_budget::RequestBudget,
    server::Server,
};
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
    time::{Instant, timeout_at},
};
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tracing::{info, warn};

use super::{
    api::{
        alpha1::Alpha1,
        alpha2::Locks,
        error::ApiError,
        metadata::{Attributes, Metadata},
        routes::{self, Services},
    },
    app::callback,
    daprd::passthrough::Passthrough,
    failed_unlocks::{self, Reports},
    identity::Identity,
    listen::Listeners,
    options::Options,
    stores::Stores,
};

/// How many connections an API takes at a time.
const CONNECTIONS_MAX: usize = 16_384;
const HEADER_BYTES_MAX: u32 = 64 * 1024;

/// The minimum time for closing after the drain.
const CLOSE_MIN: Duration = Duration::from_secs(1);

/// The parts that the command gives to the sidecar.
#[derive(Debug)]
pub struct Hooks {
    /// Passes on to daprd's gRPC API, if one is configured.
    pub grpc: Option<Passthrough>,
    /// Passes on to daprd's HTTP API, if one is configured.
    pub http: Option<Passthrough>,
    /// Whether the app is healthy; always true without health checks.
    pub healthy: watch::Receiver<bool>,
    /// The app's reports of failed unlocks, if it can send them.
    pub failed_unlocks: Option<mpsc::Receiver<Reports>>,
}

impl Default for Hooks {
    fn default() -> Self {
        Self { grpc: None, http: None, healthy: watch::channel(true).1, failed_unlocks: None }
    }
}

/// A running sidecar.
pub struct Sidecar {
    stores: Stores,
    engine: Engine,
    grpc: Server<Router>,
    http: Server<Router>,
    grpc_addresses: Vec<SocketAddr>,
    http_addresses: Vec<SocketAddr>,
    /// Tasks that end with the sidecar.
    tasks: Vec<JoinHandle<()>>,
    drain_max: Duration,
}

impl Sidecar {
    /// Opens the listeners and begins to serve. Stores may be added at any time.
    pub async fn start(
        options: Options,
        stores: Stores,
        hooks: Hooks,
    ) -> Result<Self, ListenError> {
        let listeners = Listeners::open(&options).await?;
        let (notices, queue) = mpsc::channel(callback::NOTICES_MAX);
        let callbacks = tokio::spawn(callback::run(queue, options.app.clone()));
        let limits = EngineOptions { held_max: options.held_max, ..EngineOptions::default() };
        let engine = Engine::start(limits, hooks.healthy, notices);
        let app_id: Arc<str> = options.app_id.into();
        let identity = Identity::new(Arc::clone(&app_id), &options.instance);
        let locks = Locks::new(stores.clone(), engine.clone(), identity.clone())
            .with_max_hold_default(options.max_hold_default);
        let releasing = hooks
            .failed_unlocks
            .map(|queue| tokio::spawn(failed_unlocks::run(queue, locks.clone())));
        let services = Services {
            alpha1: Alpha1::new(stores.clone(), engine.clone(), identity),
            locks,
            metadata: Metadata {
                app_id,
                stores: stores.clone(),
                attributes: Attributes::default(),
            },
            token: options.token,
            reach: listeners.reach(),
            request_budget: RequestBudget::default(),
        };
        let grpc = Server::new(
            // Prepares the routes once, instead of for each call.
            routes::grpc(services.clone(), hooks.grpc).with_state(()),
            config(Protocols::Http2, |error| Status::from(ApiError::Lock(error)).into_http()),
        );
        let http = Server::new(
            routes::http(services, hooks.http).with_state(()),
            config(Protocols::Http1AndHttp2, |error| ApiError::Lock(error).into_response()),
        );
        Ok(Self {
            grpc_addresses: serve(&grpc, listeners.grpc),
            http_addresses: serve(&http, listeners.http),
            stores,
            engine,
            grpc,
            http,
            tasks: releasing.into_iter().chain([callbacks]).collect(),
            drain_max: options.drain_max,
        })
    }

    /// The addresses of the gRPC API; empty on a Unix socket.
    #[must_use]
    pub fn grpc_addresses(&self) -> &[SocketAddr] {
        &self.grpc_addresses
    }

    /// The addresses of the HTTP API; empty on a Unix socket.
    #[must_use]
    pub fn http_addresses(&self) -> &[SocketAddr] {
        &self.http_addresses
    }

    /// The engine that renews held locks.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Serves until `stop`, then drains: acquisitions are refused, waits and streams end, and
    /// renewals and unlocks are served until all calls in flight are answered. Locks without a
    /// stream stay with their holders.
    pub async fn run(self, stop: CancellationToken) {
        stop.cancelled().await;
        self.stores.drain();
        self.engine.drain();
        let deadline = Instant::now() + self.drain_max;
        tokio::join!(close(&self.grpc, deadline), close(&self.http, deadline));
        if timeout_at(deadline.max(Instant::now() + CLOSE_MIN), self.engine.close())
            .await
            .is_err()
        {
            let locks = self.engine.releasing();
            warn!(locks, "locks whose stream ended are left to their TTL");
        }
        let locks = self.engine.held();
        if locks > 0 {
            info!(locks, "locks without a stream are left to their TTL");
        }
        let until = deadline.max(Instant::now() + CLOSE_MIN);
        let retiring = self.stores.all().into_iter().map(|named| async move {
            let (name, store) = (named.name(), named.store());
            if timeout_at(until, store.clone().retire()).await.is_err() {
                let operations = store.unsettled();
                warn!(
                    store = %name,
                    operations,
                    "some operations are still unsettled; what they left ends with its TTL"
                );
            }
        });
        join_all(retiring).await;
        for task in self.tasks {
            task.abort();
        }
    }
}

fn config(protocols: Protocols, failed: fn(LockError) -> Response) -> Config {
    Config {
        protocols,
        connections_max: CONNECTIONS_MAX,
        header_bytes_max: HEADER_BYTES_MAX,
        held_bytes_max: 0,
        failed,
    }
}

/// Serves the listeners. Returns the addresses of ports.
fn serve(server: &Server<Router>, listeners: Vec<Listener>) -> Vec<SocketAddr> {
    let addresses = listeners.iter().filter_map(Listener::address).collect();
    listeners.into_iter().for_each(|listener| server.serve(listener));
    addresses
}

async fn close(server: &Server<Router>, deadline: Instant) {
    if !server.close(deadline).await {
        warn!("calls are left unanswered at the end of the drain");
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use http::StatusCode;
    use http_body_util::BodyExt as _;
    use tonic::Code;

    use super::*;

    #[tokio::test]
    async fn a_panic_is_an_internal_error_over_http() {
        let response = ApiError::Lock(LockError::Internal).into_response();
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body = std::str::from_utf8(&body).unwrap();
        assert!(body.contains("\"ERR_INTERNAL\""), "{body}");
    }

    #[test]
    fn a_panic_is_an_internal_error_over_grpc() {
        let response = Status::from(ApiError::Lock(LockError::Internal)).into_http::<Body>();
        let status = Status::from_header_map(response.headers()).unwrap();
        assert_eq!(status.code(), Code::Internal);
    }
}

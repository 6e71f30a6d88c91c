//! The sidecar as a whole: bind, serve, drain.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use futures_util::future::join_all;
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
    time::{Instant, timeout_at},
};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{
    Fallback,
    alpha1::Alpha1,
    alpha2::Locks,
    app::{self, Services},
    browsers::{Guard, Reach},
    callback,
    listen::{self, ListenError, Listener},
    metadata::Metadata,
    options::{Listen, Options},
    server::{Server, Speaks},
    stores::Stores,
};
use crate::{
    edge::request_budget::RequestBudget,
    held::{Engine, EngineOptions},
};

/// What is left to do after the drain has at least this long.
const CLOSE_MIN: Duration = Duration::from_secs(1);

/// What others provide.
pub struct Hooks {
    /// The way to daprd's gRPC API, if one is configured.
    pub grpc: Option<Fallback>,
    /// The way to daprd's HTTP API, if one is configured.
    pub http: Option<Fallback>,
    /// Whether the app is healthy; always true without health checks.
    pub healthy: watch::Receiver<bool>,
}

impl Default for Hooks {
    fn default() -> Self {
        Self { grpc: None, http: None, healthy: watch::channel(true).1 }
    }
}

impl std::fmt::Debug for Hooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hooks")
            .field("grpc", &self.grpc.is_some())
            .field("http", &self.http.is_some())
            .finish_non_exhaustive()
    }
}

/// A sidecar that listens and serves.
pub struct Sidecar {
    stores: Stores,
    engine: Engine,
    grpc: Server,
    http: Server,
    grpc_addresses: Vec<SocketAddr>,
    http_addresses: Vec<SocketAddr>,
    callbacks: JoinHandle<()>,
    drain_max: Duration,
}

impl std::fmt::Debug for Sidecar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sidecar")
            .field("grpc", &self.grpc_addresses)
            .field("http", &self.http_addresses)
            .finish_non_exhaustive()
    }
}

impl Sidecar {
    /// Binds and begins to serve. `stores` may change meanwhile.
    pub async fn start(
        options: Options,
        stores: Stores,
        hooks: Hooks,
    ) -> Result<Self, ListenError> {
        let (grpc_listeners, http_listeners) = bind(&options).await?;
        let (notices, queue) = mpsc::channel(callback::NOTICES_MAX);
        let callbacks = tokio::spawn(callback::run(queue, options.app.clone()));
        let limits = EngineOptions { held_max: options.held_max, ..EngineOptions::default() };
        let engine = Engine::start(limits, hooks.healthy, notices);
        let app_id: Arc<str> = options.app_id.into();
        let services = Services {
            alpha1: Alpha1::new(stores.clone(), engine.clone(), Arc::clone(&app_id)),
            locks: Locks::new(stores.clone(), engine.clone(), Arc::clone(&app_id))
                .with_max_hold_default(options.max_hold_default),
            metadata: Metadata { app_id, stores: stores.clone() },
            token: options.token,
            guard: Guard::new(options.allowed, reach(&grpc_listeners, &http_listeners)?),
            request_budget: RequestBudget::new(),
        };
        let grpc = Server::new(app::grpc(services.clone(), hooks.grpc), Speaks::Grpc);
        let http = Server::new(app::http(services, hooks.http), Speaks::Http);
        Ok(Self {
            grpc_addresses: serve(&grpc, grpc_listeners)?,
            http_addresses: serve(&http, http_listeners)?,
            stores,
            engine,
            grpc,
            http,
            callbacks,
            drain_max: options.drain_max,
        })
    }

    /// The addresses of the gRPC API, none where it is on a Unix socket.
    #[must_use]
    pub fn grpc_addresses(&self) -> &[SocketAddr] {
        &self.grpc_addresses
    }

    /// The addresses of the HTTP API, none where it is on a Unix socket.
    #[must_use]
    pub fn http_addresses(&self) -> &[SocketAddr] {
        &self.http_addresses
    }

    /// What renews.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Serves until `stop`, then drains: nothing more is acquired, waits and
    /// streams end, renewals and unlocks are served until all calls in flight
    /// are answered. Locks without a stream stay with their holders.
    pub async fn run(self, stop: CancellationToken) {
        stop.cancelled().await;
        self.stores.drain();
        self.engine.drain();
        let deadline = Instant::now() + self.drain_max;
        tokio::join!(self.grpc.close(deadline), self.http.close(deadline));
        if timeout_at(deadline.max(Instant::now() + CLOSE_MIN), self.engine.close())
            .await
            .is_err()
        {
            warn!("locks whose stream ended are left to their TTL");
        }
        let stores = self.stores.all_and_earlier();
        let retired = join_all(stores.iter().map(|store| store.retire()));
        if timeout_at(deadline.max(Instant::now() + CLOSE_MIN), retired).await.is_err() {
            warn!("a store did not close in time");
        }
        self.callbacks.abort();
    }
}

async fn bind(options: &Options) -> Result<(Vec<Listener>, Vec<Listener>), ListenError> {
    Ok(match &options.listen {
        Listen::Ports { addresses, grpc, http } => {
            (listen::tcp(addresses, *grpc).await?, listen::tcp(addresses, *http).await?)
        }
        Listen::Sockets(folder) => {
            let path = |api| folder.join(format!("dapr-{}-{api}.socket", options.app_id));
            (vec![listen::unix(&path("grpc")).await?], vec![listen::unix(&path("http")).await?])
        }
    })
}

/// Who can reach them: as far as the farthest-reaching does.
fn reach(grpc: &[Listener], http: &[Listener]) -> Result<Reach, ListenError> {
    let mut reach = Reach::Processes;
    for listener in grpc.iter().chain(http) {
        let Listener::Tcp(listener) = listener else { continue };
        let address = listener.local_addr().map_err(ListenError::Address)?.ip();
        if !address.to_canonical().is_loopback() {
            return Ok(Reach::Network);
        }
        reach = Reach::Machine;
    }
    Ok(reach)
}

fn serve(server: &Server, listeners: Vec<Listener>) -> Result<Vec<SocketAddr>, ListenError> {
    let mut addresses = Vec::new();
    for listener in listeners {
        if let Listener::Tcp(listener) = &listener {
            addresses.push(listener.local_addr().map_err(ListenError::Address)?);
        }
        server.serve(listener);
    }
    Ok(addresses)
}

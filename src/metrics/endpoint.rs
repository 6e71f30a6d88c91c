//! Serves `/metrics`, `/livez` and `/readyz`, and nothing else.

use std::{
    net::SocketAddr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use axum::{
    Router,
    extract::State,
    response::{IntoResponse as _, Response},
    routing::get,
};
use http::{StatusCode, header};
use leasehold_net::{
    config::{Config, Protocols},
    listener::{ListenError, Listener},
    server::Server,
};
use tokio::{sync::Semaphore, task::spawn_blocking};
use tracing::{error, info};

use super::Metrics;

/// How many connections are served at a time.
const CONNECTIONS_MAX: usize = 64;
const HEADER_BYTES_MAX: u32 = 16 * 1024;
const FLAGS: &str =
    "--metrics-port (a daprd beside it takes 9090, unless it has another --metrics-port)";
const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The metrics and probes of a process. They end when this is dropped.
pub struct Endpoint {
    probes: Arc<Probes>,
    _server: Server<Router>,
}

struct Probes {
    metrics: Metrics,
    /// Whether each store was opened once. Absent while the process starts.
    is_ready: OnceLock<Box<dyn Fn() -> bool + Send + Sync>>,
    is_draining: AtomicBool,
    /// One text at a time is made.
    turn: Semaphore,
}

impl Endpoint {
    /// Begins to serve. The process is alive, and not ready yet.
    pub async fn listen(address: SocketAddr, metrics: Metrics) -> Result<Self, ListenError> {
        let listener = Listener::bind(address, FLAGS).await?;
        if let Some(address) = listener.address() {
            info!(%address, "listening for metrics and probes");
        }
        let probes = Arc::new(Probes {
            metrics,
            is_ready: OnceLock::new(),
            is_draining: AtomicBool::new(false),
            turn: Semaphore::new(1),
        });
        let config = Config {
            protocols: Protocols::Http1AndHttp2,
            connections_max: CONNECTIONS_MAX,
            header_bytes_max: HEADER_BYTES_MAX,
            held_bytes_max: 0,
            failed: |_| StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        };
        let server = Server::new(routes(Arc::clone(&probes)), config);
        server.serve(listener);
        Ok(Self { probes, _server: server })
    }

    /// The process serves from now on. It is ready once `is_ready` returns true.
    pub fn started(&self, is_ready: impl Fn() -> bool + Send + Sync + 'static) {
        let _ = self.probes.is_ready.set(Box::new(is_ready));
    }

    /// The process drains from now on, and is no longer ready.
    pub fn drain(&self) {
        self.probes.is_draining.store(true, Ordering::Relaxed);
        self.probes.metrics.drain();
    }
}

impl Probes {
    fn not_ready(&self) -> Option<&'static str> {
        match self.is_ready.get() {
            _ if self.is_draining.load(Ordering::Relaxed) => Some("draining\n"),
            None => Some("starting\n"),
            Some(is_ready) if !is_ready() => Some("a store was not opened yet\n"),
            Some(_) => None,
        }
    }

    async fn text(self: Arc<Self>) -> Response {
        let _turn = self.turn.acquire().await;
        let metrics = self.metrics.clone();
        // It takes milliseconds if there are many stores.
        let text = spawn_blocking(move || metrics.text().map_err(|error| error.to_string()));
        match text.await.unwrap_or_else(|error| Err(error.to_string())) {
            Ok(text) => ([(header::CONTENT_TYPE, TEXT_FORMAT)], text).into_response(),
            Err(why) => {
                error!(why, "metrics could not be written");
                StatusCode::INTERNAL_SERVER_ERROR.into_response()
            }
        }
    }
}

fn routes(probes: Arc<Probes>) -> Router {
    Router::new()
        .route("/metrics", get(|State(probes): State<Arc<Probes>>| probes.text()))
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(readyz))
        .with_state(probes)
}

async fn readyz(State(probes): State<Arc<Probes>>) -> (StatusCode, &'static str) {
    match probes.not_ready() {
        None => (StatusCode::OK, "ok\n"),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, why),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use http::Request;
    use http_body_util::BodyExt as _;
    use tower::ServiceExt as _;

    use super::*;
    use crate::Role;

    async fn endpoint() -> Endpoint {
        let metrics = Metrics::new(Role::Stores, || 0).unwrap();
        Endpoint::listen(SocketAddr::from(([127, 0, 0, 1], 0)), metrics).await.unwrap()
    }

    async fn get(endpoint: &Endpoint, path: &str) -> (u16, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = routes(Arc::clone(&endpoint.probes)).oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn a_process_is_ready_between_its_start_and_its_drain() {
        let endpoint = endpoint().await;
        assert_eq!(get(&endpoint, "/readyz").await, (503, "starting\n".to_owned()));
        let opened = Arc::new(AtomicBool::new(false));
        let is_opened = Arc::clone(&opened);
        endpoint.started(move || is_opened.load(Ordering::Relaxed));
        assert_eq!(get(&endpoint, "/readyz").await.0, 503);
        opened.store(true, Ordering::Relaxed);
        assert_eq!(get(&endpoint, "/readyz").await, (200, "ok\n".to_owned()));
        endpoint.drain();
        assert_eq!(get(&endpoint, "/readyz").await, (503, "draining\n".to_owned()));
        assert_eq!(get(&endpoint, "/livez").await.0, 200);
        assert!(get(&endpoint, "/metrics").await.1.contains("\nleasehold_draining 1\n"));
    }

    #[tokio::test]
    async fn nothing_else_is_served() {
        for path in ["/", "/healthz", "/v1.0/metadata", "/metrics/"] {
            assert_eq!(get(&endpoint().await, path).await.0, 404, "{path}");
        }
    }

    #[tokio::test]
    async fn a_taken_port_names_what_may_have_it() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let metrics = Metrics::new(Role::Stores, || 0).unwrap();
        let refused = Endpoint::listen(taken.local_addr().unwrap(), metrics).await;
        let error = refused.err().unwrap().to_string();
        assert!(error.contains("--metrics-port") && error.contains("9090"), "{error}");
    }
}

//! The two HTTP clients that reach daprd, and their limits.

use std::{sync::Arc, time::Duration};

use axum::body::Body;
use http::Uri;
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use leasehold_net::config::{CONNECTION_WINDOW_BYTES, STREAM_WINDOW_BYTES};
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use tokio::time::timeout;
use tower::{
    BoxError, Service, ServiceExt as _,
    util::{BoxCloneSyncService, service_fn},
};

use super::Endpoint;
use crate::usage::UsageError;

/// How long a connection may take to be made, name look-up and TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// The interval of pings while calls wait for daprd, and how long the answer may take. daprd
/// closes an HTTP/2 connection with pings that are less than 8 s apart.
pub(super) const PING_INTERVAL: Duration = Duration::from_secs(10);
pub(super) const PING_TIMEOUT: Duration = Duration::from_secs(5);
/// Lets the system notice a host that vanished.
const TCP_KEEP_ALIVE: Duration = Duration::from_secs(30);
/// How long what was sent may be unacknowledged by the other host.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(15);
const IDLE_CONNECTIONS_MAX: usize = 128;
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// A gRPC trailer may carry error details; 16 KiB, the default, is too little.
const HEADER_LIST_BYTES_MAX: u32 = 256 * 1024;
const HTTP1_BUFFER_BYTES_MAX: usize = 256 * 1024;
const SEND_BUFFER_BYTES_MAX: usize = 256 * 1024;

type Connector = HttpsConnector<HttpConnector>;
type Connection = <Connector as Service<Uri>>::Response;
/// A client that streams bodies.
pub(crate) type PassingClient = Client<BoxCloneSyncService<Uri, Connection, BoxError>, Body>;

/// A client that speaks HTTP/2 from the first byte, over one connection.
pub(super) fn http2(endpoint: &Endpoint) -> Result<PassingClient, UsageError> {
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(tls(endpoint)?)
        .https_or_http()
        .enable_http2()
        .wrap_connector(tcp());
    Ok(Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_TIMEOUT)
        .http2_only(true)
        .http2_initial_stream_window_size(STREAM_WINDOW_BYTES)
        .http2_initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .http2_max_header_list_size(HEADER_LIST_BYTES_MAX)
        .http2_max_send_buf_size(SEND_BUFFER_BYTES_MAX)
        .http2_keep_alive_interval(PING_INTERVAL)
        .http2_keep_alive_timeout(PING_TIMEOUT)
        // h2 counts answers that arrive after their call was cancelled as errors.
        .http2_max_local_error_reset_streams(None)
        .build(bounded(connector)))
}

/// A client that speaks HTTP/1.1 over kept connections.
pub(crate) fn http1(endpoint: &Endpoint) -> Result<PassingClient, UsageError> {
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(tls(endpoint)?)
        .https_or_http()
        .enable_http1()
        .wrap_connector(tcp());
    Ok(Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
        .http1_max_buf_size(HTTP1_BUFFER_BYTES_MAX)
        .build(bounded(connector)))
}

fn tcp() -> HttpConnector {
    let mut tcp = HttpConnector::new();
    // Other schemes are handled by the TLS connector.
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(TCP_KEEP_ALIVE));
    tcp.set_tcp_user_timeout(Some(TCP_USER_TIMEOUT));
    tcp
}

/// Trusts the system's certificates. For plain text they are not read, so that
/// it works on a machine without certificates.
fn tls(endpoint: &Endpoint) -> Result<ClientConfig, UsageError> {
    let refuse = |error: &dyn std::fmt::Display| {
        endpoint.refuse(&format!("needs TLS, which could not be set up: {error}"))
    };
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| refuse(&error))?;
    let config = if endpoint.is_tls() {
        config.with_native_roots().map_err(|error| refuse(&error))?
    } else {
        config.with_root_certificates(RootCertStore::empty())
    };
    Ok(config.with_no_client_auth())
}

/// Limits the time to connect, look-up and TLS included.
fn bounded(connector: Connector) -> BoxCloneSyncService<Uri, Connection, BoxError> {
    BoxCloneSyncService::new(service_fn(move |uri| {
        let connecting = connector.clone().oneshot(uri);
        async move {
            timeout(CONNECT_TIMEOUT, connecting).await.unwrap_or_else(|_| {
                Err(format!("no connection within {CONNECT_TIMEOUT:?}").into())
            })
        }
    }))
}

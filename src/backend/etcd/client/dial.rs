//! A channel to one endpoint that connects once and never reconnects.
//!
//! A channel that reconnects by itself would hide that the member was restarted, or restored
//! from a snapshot. Here the next request fails, and a connection with another number takes
//! its place.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use etcd_client::{Channel, Error, TlsOptions};
use hyper_util::{client::legacy::connect::HttpConnector, rt::TokioIo};
use tonic::transport::Endpoint;
use tower::{BoxError, ServiceExt as _, service_fn};

use crate::cork::Corked;

/// How long an endpoint may take to connect.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_millis(1_500);
/// Not below etcd's `--grpc-keepalive-min-time` (5 s), or it hangs up.
const PING_INTERVAL: Duration = Duration::from_secs(6);
const PING_TIMEOUT: Duration = Duration::from_secs(3);
/// Room for a batch of some hundred writes: one HTTP/2 frame of at most 16 KiB with its
/// header. A longer batch is written two frames at a time.
const REQUEST_BYTES_HELD_MAX: usize = 32 * 1024;

/// A channel that connects once, with its first request.
pub(crate) fn dial(url: &str, tls: Option<&TlsOptions>) -> Result<Channel, Error> {
    let mut endpoint = Endpoint::from_shared(url.to_owned())?
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .keep_alive_while_idle(true);
    if let Some(tls) = tls {
        endpoint = endpoint.tls_config(tls.clone())?;
    }
    let mut http = HttpConnector::new();
    // The endpoint adds TLS. rustls does not flush the alert when we end a handshake, so
    // etcd does not learn why; our own error says it.
    http.enforce_http(false);
    http.set_nodelay(true);
    let dialled = Arc::new(AtomicBool::new(false));
    let once = service_fn(move |uri| {
        let (http, again) = (http.clone(), dialled.swap(true, Ordering::Relaxed));
        async move {
            if again {
                let lost =
                    io::Error::new(io::ErrorKind::NotConnected, "the connection was lost");
                return Err(BoxError::from(lost));
            }
            let stream = http.oneshot(uri).await.map_err(BoxError::from)?;
            Ok(TokioIo::new(Corked::new(stream.into_inner(), REQUEST_BYTES_HELD_MAX)))
        }
    });
    Ok(Channel::Tonic(endpoint.connect_with_connector_lazy(once)))
}

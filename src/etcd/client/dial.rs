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
use leasehold_util::cork::Corked;
use tonic::transport::Endpoint;
use tower::{BoxError, ServiceExt as _, service_fn};

/// How long an endpoint may take to connect.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_millis(1_500);
/// Not below etcd's `--grpc-keepalive-min-time` (5 s): etcd would close the connection, as it
/// does after three pings without a call under way.
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
        .keep_alive_while_idle(false)
        // Each answer to a call that was given up counts, and at the limit the connection ends.
        // The limit is there for peers that misbehave.
        .http2_max_local_error_reset_streams(None);
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

#[cfg(test)]
mod tests {
    use etcd_client::Client;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
        time::timeout,
    };

    use super::*;

    const HEADERS: u8 = 1;
    const SETTINGS: u8 = 4;
    const PING: u8 = 6;

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_a_call_is_not_pinged() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(&[0, 0, 0, SETTINGS, 0, 0, 0, 0, 0]).await.unwrap();
            let (mut preface, mut head, mut kinds) = ([0; 24], [0; 9], Vec::new());
            stream.read_exact(&mut preface).await.unwrap();
            while let Ok(Ok(_)) =
                timeout(Duration::from_secs(60), stream.read_exact(&mut head)).await
            {
                let [a, b, c, kind, ..] = head;
                let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
                stream.read_exact(&mut payload).await.unwrap();
                if kind == HEADERS {
                    // The status 200 in one byte, and the end of the stream.
                    let answer = [0, 0, 1, HEADERS, 5, 0, 0, 0, 1, 0x88];
                    stream.write_all(&answer).await.unwrap();
                }
                kinds.push(kind);
            }
            kinds
        });
        let client = Client::from_channel(dial(&url, None).unwrap(), None).await.unwrap();
        client.kv_client().get("key", None).await.unwrap_err();
        let kinds = server.await.unwrap();
        assert!(kinds.contains(&HEADERS) && !kinds.contains(&PING), "{kinds:?}");
    }
}

//! A client that goes away is noticed, even if it has sent more bytes.

use std::path::PathBuf;

use leasehold_lock::Settings;
use leasehold_sidecar::{Hooks, Options, Sidecar, options::Listen, stores::Stores};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpStream, UnixStream},
    task::AbortHandle,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::harness::{APP, PATIENCE, STORE, memory_with, named, options};

/// Bytes that a client may have sent after its request, which are not read
/// before the request is answered.
const STRAY: [&str; 3] = ["\r\n", "x", "GET /v1.0/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"];

trait Wire: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Wire for T {}

/// A sidecar over a store that allows one waiter for each resource, so that a
/// second waiter learns whether there is a first.
struct Served {
    endpoint: Endpoint,
    served: AbortHandle,
}

enum Endpoint {
    Tcp(std::net::SocketAddr),
    Unix(PathBuf, #[allow(dead_code, reason = "kept")] tempfile::TempDir),
}

impl Served {
    async fn start(on_unix: bool) -> Self {
        let stores = Stores::default();
        let settings = Settings { waiters_per_resource_max: 1, ..Settings::default() };
        let (_, store) = memory_with(settings);
        stores.insert(named(STORE, "appid", APP, store));
        let folder = tempfile::tempdir().unwrap();
        let mut options: Options = options();
        if on_unix {
            options.listen = Listen::Sockets(folder.path().to_owned());
        }
        let sidecar = Sidecar::start(options, stores, Hooks::default()).await.unwrap();
        let endpoint = match sidecar.http_addresses().first() {
            Some(address) => Endpoint::Tcp(*address),
            None => {
                Endpoint::Unix(folder.path().join(format!("dapr-{APP}-http.socket")), folder)
            }
        };
        let served = tokio::spawn(sidecar.run(CancellationToken::new())).abort_handle();
        Self { endpoint, served }
    }

    async fn connect(&self) -> Box<dyn Wire> {
        match &self.endpoint {
            Endpoint::Tcp(address) => Box::new(TcpStream::connect(address).await.unwrap()),
            Endpoint::Unix(path, _) => Box::new(UnixStream::connect(path).await.unwrap()),
        }
    }

    /// One call on a new connection; returns the answer's status.
    async fn call(&self, body: &str) -> u16 {
        let mut wire = self.connect().await;
        wire.write_all(request("connection: close", body).as_bytes()).await.unwrap();
        let mut received = String::new();
        timeout(PATIENCE, wire.read_to_string(&mut received)).await.unwrap().unwrap();
        received.split(' ').nth(1).unwrap().parse().unwrap()
    }

    /// Polls until the call has this answer.
    async fn answers(&self, body: &str, status: u16) {
        let give_up = Instant::now() + PATIENCE;
        loop {
            let answered = self.call(body).await;
            if answered == status {
                return;
            }
            assert!(Instant::now() < give_up, "{body}: {answered} instead of {status}");
            sleep(std::time::Duration::from_millis(5)).await;
        }
    }

    async fn has_a_waiter(&self, has_one: bool) {
        self.answers(r#"{"wait":"1ms"}"#, if has_one { 429 } else { 408 }).await;
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.served.abort();
    }
}

fn request(header: &str, body: &str) -> String {
    format!(
        "POST /v1.0-alpha2/lock/{STORE}/r HTTP/1.1\r\nHost: localhost\r\n{header}\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

async fn read_until(wire: &mut dyn Wire, received: &mut String, part: &str) {
    let reading = async {
        while !received.contains(part) {
            let mut bytes = [0; 1024];
            let count = wire.read(&mut bytes).await.unwrap();
            assert!(count > 0, "closed after {received}");
            received.push_str(std::str::from_utf8(&bytes[..count]).unwrap());
        }
    };
    timeout(PATIENCE, reading).await.unwrap_or_else(|_| panic!("{part:?} was not received"));
}

async fn a_waiter_that_leaves_is_noticed(on_unix: bool) {
    let sidecar = Served::start(on_unix).await;
    assert_eq!(sidecar.call("{}").await, 200);
    for stray in STRAY {
        let mut waiter = sidecar.connect().await;
        let waiting = request("accept: application/json", "{}") + stray;
        waiter.write_all(waiting.as_bytes()).await.unwrap();
        sidecar.has_a_waiter(true).await;
        drop(waiter);
        sidecar.has_a_waiter(false).await;
    }
}

/// Trap: sidecar 54
#[tokio::test]
async fn bytes_behind_a_request_do_not_hide_that_its_client_has_left() {
    a_waiter_that_leaves_is_noticed(false).await;
}

/// Trap: sidecar 54
#[tokio::test]
async fn bytes_behind_a_request_on_a_unix_socket_do_not_hide_it_either() {
    a_waiter_that_leaves_is_noticed(true).await;
}

/// Trap: sidecar 54
#[tokio::test]
async fn bytes_behind_a_stream_do_not_keep_its_lock() {
    let sidecar = Served::start(false).await;
    for stray in STRAY {
        let mut client = sidecar.connect().await;
        let opened = request("accept: application/x-ndjson", "{}") + stray;
        client.write_all(opened.as_bytes()).await.unwrap();
        read_until(&mut *client, &mut String::new(), "lock-acquired").await;
        sidecar.answers(r#"{"immediate":true}"#, 409).await;
        drop(client);
        sidecar.answers(r#"{"immediate":true,"ttl":"1s","noRenewal":true}"#, 200).await;
        sidecar.answers(r#"{"immediate":true,"ttl":"1s","noRenewal":true}"#, 200).await;
    }
}

#[tokio::test]
async fn a_request_sent_ahead_is_answered_once_the_first_is() {
    let sidecar = Served::start(false).await;
    assert_eq!(sidecar.call(r#"{"ttl":"1s","noRenewal":true}"#).await, 200);
    let mut client = sidecar.connect().await;
    let ahead = request("accept: application/json", "{}") + STRAY[2];
    client.write_all(ahead.as_bytes()).await.unwrap();
    let mut received = String::new();
    read_until(&mut *client, &mut received, "lockID").await;
    read_until(&mut *client, &mut received, "HTTP/1.1 204").await;
}

//! An app that answers health probes, but no callbacks.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};
use tokio_util::task::AbortOnDropHandle;

/// An HTTP app on a free port; stopped when dropped.
pub(crate) struct App {
    address: SocketAddr,
    state: Arc<State>,
    _serving: AbortOnDropHandle<()>,
}

#[derive(Default)]
struct State {
    unhealthy: AtomicBool,
    calls: AtomicUsize,
}

impl App {
    /// Starts it, in good health.
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        let serving = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(answer(client, Arc::clone(&shared)));
            }
        });
        Self { address, state, _serving: AbortOnDropHandle::new(serving) }
    }

    /// The arguments of a sidecar for it.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let port = self.address.port().to_string();
        let arguments = [
            ["--app-port", &port],
            ["--app-health-probe-interval", "1"],
            ["--app-health-threshold", "1"],
        ];
        let health = "--enable-app-health-check".to_owned();
        arguments.concat().into_iter().map(ToOwned::to_owned).chain([health]).collect()
    }

    /// From now on its probes fail.
    pub(crate) fn turn_unhealthy(&self) {
        self.state.unhealthy.store(true, Ordering::SeqCst);
    }

    /// How often it was called back.
    pub(crate) fn calls(&self) -> usize {
        self.state.calls.load(Ordering::SeqCst)
    }
}

async fn answer(mut client: TcpStream, state: Arc<State>) {
    let (mut head, mut buffer) = (Vec::new(), [0; 1024]);
    loop {
        match client.read(&mut buffer).await {
            Ok(length @ 1..) => head.extend_from_slice(&buffer[..length]),
            _ => return,
        }
        if !head.windows(4).any(|four| four == b"\r\n\r\n") {
            continue;
        }
        if head.starts_with(b"POST /leasehold/lock-lost") {
            state.calls.fetch_add(1, Ordering::SeqCst);
            std::future::pending::<()>().await;
        }
        let status = if state.unhealthy.load(Ordering::SeqCst) { "500 Ill" } else { "200 OK" };
        let reply = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
        if client.write_all(reply.as_bytes()).await.is_err() {
            return;
        }
        head.clear();
    }
}

//! A wire that can be cut at the worst moment.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::{Notify, watch},
};

/// Stands between a store and its server.
pub(super) struct Proxy {
    address: String,
    faults: Arc<Faults>,
}

#[derive(Default)]
struct Faults {
    cut_next_reply: AtomicBool,
    hold_next_request: AtomicBool,
    deliver: Notify,
    delivered: Notify,
    is_stalled: watch::Sender<bool>,
}

impl Faults {
    async fn until_resumed(&self) {
        let _ = self.is_stalled.subscribe().wait_for(|stalled| !stalled).await;
    }
}

impl Proxy {
    /// One before `server`.
    pub(super) async fn before(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let faults = Arc::new(Faults::default());
        let shared = Arc::clone(&faults);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if let Ok(upstream) = TcpStream::connect(&server).await {
                    tokio::spawn(pass(client, upstream, Arc::clone(&shared)));
                }
            }
        });
        Self { address, faults }
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// The next reply is lost, and its connection with it: what was asked has
    /// happened by then.
    pub(super) fn cut_next_reply(&self) {
        self.faults.cut_next_reply.store(true, Ordering::SeqCst);
    }

    /// The next request is kept back, and its client cut off.
    pub(super) fn hold_next_request(&self) {
        self.faults.hold_next_request.store(true, Ordering::SeqCst);
    }

    /// Passes nothing on in either direction until it is resumed.
    pub(super) fn stall(&self) {
        self.faults.is_stalled.send_replace(true);
    }

    /// Passes on everything that came meanwhile.
    pub(super) fn resume(&self) {
        self.faults.is_stalled.send_replace(false);
    }

    /// Lets the server have what was kept back, and returns when it has
    /// answered or refused it.
    pub(super) async fn deliver(&self) {
        self.faults.deliver.notify_one();
        self.faults.delivered.notified().await;
    }
}

async fn pass(mut client: TcpStream, mut server: TcpStream, faults: Arc<Faults>) {
    let (mut request, mut reply) = (vec![0; 4096], vec![0; 4096]);
    loop {
        tokio::select! {
            length = client.read(&mut request) => {
                let Ok(length @ 1..) = length else { return };
                faults.until_resumed().await;
                if faults.hold_next_request.swap(false, Ordering::SeqCst) {
                    drop(client);
                    faults.deliver.notified().await;
                    let _ = server.write_all(&request[..length]).await;
                    let _ = server.read(&mut reply).await;
                    faults.delivered.notify_one();
                    return;
                }
                if server.write_all(&request[..length]).await.is_err() {
                    return;
                }
            }
            length = server.read(&mut reply) => {
                let Ok(length @ 1..) = length else { return };
                faults.until_resumed().await;
                if faults.cut_next_reply.swap(false, Ordering::SeqCst)
                    || client.write_all(&reply[..length]).await.is_err()
                {
                    return;
                }
            }
        }
    }
}

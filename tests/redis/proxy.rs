//! A wire that can be cut at the worst moment.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::{Notify, watch},
    time::sleep,
};

/// Stands between a store and its server.
pub(super) struct Proxy {
    address: String,
    faults: Arc<Faults>,
}

#[derive(Default)]
struct Faults {
    cut_next_reply: AtomicBool,
    /// What a request contains whose reply is to be lost.
    cut_reply_to: Mutex<Option<Vec<u8>>>,
    /// What the next request contains that is to be kept back.
    hold_request: Mutex<Option<Vec<u8>>>,
    /// Whether new connections are closed at once.
    refuse: AtomicBool,
    cut: Notify,
    deliver: Notify,
    delivered: Notify,
    is_stalled: watch::Sender<bool>,
    reply_delay_ms: AtomicU64,
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
                if shared.refuse.load(Ordering::SeqCst) {
                    continue;
                }
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
        self.hold_next_request_with("");
    }

    /// The next request that contains `part` is kept back, and its client cut
    /// off.
    pub(super) fn hold_next_request_with(&self, part: &str) {
        *self.faults.hold_request.lock().unwrap() = Some(part.into());
    }

    /// The reply to the next request that contains `part` is lost, and its
    /// connection with it.
    pub(super) fn cut_reply_to(&self, part: &str) {
        *self.faults.cut_reply_to.lock().unwrap() = Some(part.into());
    }

    /// Whether new connections are closed at once; those there are are cut.
    pub(super) fn refuse(&self, refuse: bool) {
        self.faults.refuse.store(refuse, Ordering::SeqCst);
        self.faults.cut.notify_waiters();
    }

    /// Holds each read of replies back for so long.
    pub(super) fn delay_replies(&self, delay: Duration) {
        let delay_ms = u64::try_from(delay.as_millis()).unwrap();
        self.faults.reply_delay_ms.store(delay_ms, Ordering::SeqCst);
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

impl Faults {
    async fn until_resumed(&self) {
        let _ = self.is_stalled.subscribe().wait_for(|stalled| !stalled).await;
    }

    /// Whether this is the request that is awaited: then no other is.
    fn meets(awaited: &Mutex<Option<Vec<u8>>>, request: &[u8]) -> bool {
        let mut awaited = awaited.lock().unwrap();
        let contains = |part: &Vec<u8>| {
            part.is_empty() || request.windows(part.len()).any(|window| window == part)
        };
        awaited.take_if(|part| contains(part)).is_some()
    }
}

async fn pass(mut client: TcpStream, mut server: TcpStream, faults: Arc<Faults>) {
    let (mut request, mut reply) = (vec![0; 4096], vec![0; 4096]);
    let cut = faults.cut.notified();
    tokio::pin!(cut);
    loop {
        tokio::select! {
            () = &mut cut => return,
            length = client.read(&mut request) => {
                let Ok(length @ 1..) = length else { return };
                faults.until_resumed().await;
                if Faults::meets(&faults.cut_reply_to, &request[..length]) {
                    faults.cut_next_reply.store(true, Ordering::SeqCst);
                }
                if Faults::meets(&faults.hold_request, &request[..length]) {
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
                let delay_ms = faults.reply_delay_ms.load(Ordering::SeqCst);
                sleep(Duration::from_millis(delay_ms)).await;
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

//! A TCP proxy that loses what it is told to lose.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::{mpsc, watch},
    task::JoinHandle,
    time::sleep,
};

/// Stands before a server; its connections end when it is dropped.
pub(crate) struct Proxy {
    /// Where it listens, as `127.0.0.1:port`.
    pub(crate) address: String,
    faults: Arc<Faults>,
    accepting: JoinHandle<()>,
}

struct Faults {
    /// Replies are read and thrown away.
    swallow: AtomicBool,
    /// How long replies are held back, in milliseconds.
    delay_ms: AtomicU64,
    /// New connections are closed at once.
    refuse: AtomicBool,
    /// Connections up to this number hold requests back.
    held: watch::Sender<u64>,
    /// Raised to end all connections there are.
    cut: watch::Sender<u64>,
    /// Bytes that came from the server.
    replied_bytes: AtomicU64,
    /// Connections that were let in.
    connections: AtomicU64,
}

impl Proxy {
    /// A proxy before `server`, given as a URL or as host:port.
    pub(crate) async fn start(server: &str) -> Self {
        let server = server.rsplit("://").next().unwrap().to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let faults = Arc::new(Faults {
            swallow: AtomicBool::new(false),
            delay_ms: AtomicU64::new(0),
            refuse: AtomicBool::new(false),
            held: watch::Sender::new(0),
            cut: watch::Sender::new(0),
            replied_bytes: AtomicU64::new(0),
            connections: AtomicU64::new(0),
        });
        let accepting = tokio::spawn({
            let faults = Arc::clone(&faults);
            async move {
                while let Ok((client, _)) = listener.accept().await {
                    if faults.refuse.load(Ordering::SeqCst) {
                        continue;
                    }
                    let number = 1 + faults.connections.fetch_add(1, Ordering::SeqCst);
                    tokio::spawn(serve(client, number, server.clone(), Arc::clone(&faults)));
                }
            }
        });
        Self { address, faults, accepting }
    }

    /// From now on replies are lost, and requests still arrive.
    pub(crate) fn swallow_replies(&self, swallow: bool) {
        self.faults.swallow.store(swallow, Ordering::SeqCst);
    }

    /// Holds back what is sent over the connections there are, until it is called with
    /// `false`: the server gets it then, also if the client has gone meanwhile.
    #[allow(dead_code, reason = "not every test that includes this needs it")]
    pub(crate) fn hold_requests(&self, hold: bool) {
        self.faults.held.send_replace(if hold { self.connections() } else { 0 });
    }

    /// From now on each read of replies is passed on only after `delay`.
    #[allow(dead_code, reason = "not every test that includes this needs it")]
    pub(crate) fn delay_replies(&self, delay: Duration) {
        let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        self.faults.delay_ms.store(delay_ms, Ordering::SeqCst);
    }

    /// From now on nobody gets a new connection.
    pub(crate) fn refuse(&self, refuse: bool) {
        self.faults.refuse.store(refuse, Ordering::SeqCst);
    }

    /// Ends the connections there are.
    pub(crate) fn cut(&self) {
        self.faults.cut.send_modify(|cuts| *cuts += 1);
    }

    /// How many connections were let in.
    pub(crate) fn connections(&self) -> u64 {
        self.faults.connections.load(Ordering::SeqCst)
    }

    /// Bytes that the server has sent.
    pub(crate) fn replied_bytes(&self) -> u64 {
        self.faults.replied_bytes.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

async fn serve(client: TcpStream, number: u64, server: String, faults: Arc<Faults>) {
    let mut cut = faults.cut.subscribe();
    let Ok(server) = TcpStream::connect(server).await else { return };
    let (_, _) = (client.set_nodelay(true), server.set_nodelay(true));
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let mut held = faults.held.subscribe();
    // Each read is kept apart, as it came, also while requests are held back.
    let (chunks, mut to_send) = mpsc::channel::<Vec<u8>>(1_024);
    let reading = async move {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(bytes @ 1..) = from_client.read(&mut buffer).await {
            if chunks.send(buffer[..bytes].to_vec()).await.is_err() {
                break;
            }
        }
    };
    let sending = async {
        while let Some(chunk) = to_send.recv().await {
            let was_held = *held.borrow_and_update() >= number;
            if held.wait_for(|held| *held < number).await.is_err()
                || to_server.write_all(&chunk).await.is_err()
            {
                break;
            }
            if was_held {
                // The server begins with it before it learns of the client's end.
                sleep(Duration::from_secs(1)).await;
            }
        }
    };
    let requests = async { tokio::join!(reading, sending) };
    let replies = async {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(bytes) = from_server.read(&mut buffer).await {
            faults.replied_bytes.fetch_add(bytes as u64, Ordering::SeqCst);
            if bytes == 0 {
                break;
            }
            let delay_ms = faults.delay_ms.load(Ordering::SeqCst);
            if delay_ms > 0 {
                sleep(Duration::from_millis(delay_ms)).await;
            }
            if !faults.swallow.load(Ordering::SeqCst)
                && to_client.write_all(&buffer[..bytes]).await.is_err()
            {
                break;
            }
        }
    };
    tokio::select! {
        _ = requests => {}
        () = replies => {}
        _ = cut.changed() => {}
    }
}

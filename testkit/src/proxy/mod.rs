//! A TCP proxy with the faults of networks.
//!
//! Lasting behaviour is a [`Conduct`]. Single events are calls: [`Proxy::cut`],
//! [`Proxy::reset`], [`Proxy::vanish`], [`Proxy::lose_reply_to`], [`Proxy::hold_request`].

mod conduct;
mod connection;

use std::{
    fmt::Display,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    net::TcpListener,
    sync::{Notify, Semaphore, watch},
    time::sleep,
};
use tokio_util::task::AbortOnDropHandle;

use conduct::Fate;
pub use conduct::{Admission, Conduct, Flow};

/// Connections beyond this number wait to be accepted.
const CONNECTIONS_MAX: usize = 1024;

/// Reads the origin of a connection from its first bytes, once there are enough.
pub type Origin = fn(&[u8]) -> Option<String>;

/// A proxy before a server; its connections end when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    address: String,
    control: Arc<Control>,
    _accepting: AbortOnDropHandle<()>,
}

#[derive(Debug)]
struct Control {
    server: Mutex<String>,
    origin: Option<Origin>,
    /// Whether a connection that one side resets is reset on the other side too, instead of
    /// closed.
    passes_resets: bool,
    conduct: watch::Sender<Conduct>,
    cuts: watch::Sender<u64>,
    resets: watch::Sender<u64>,
    connections: watch::Sender<Connections>,
    ended: watch::Sender<bool>,
    requested_bytes: AtomicU64,
    replied_bytes: AtomicU64,
    /// A part of the next request that gets a special fate, and that fate.
    awaited: Mutex<Option<(Vec<u8>, Fate)>>,
    deliver: Notify,
    delivered: Notify,
}

/// The connections to the server.
#[derive(Debug, Default)]
struct Connections {
    open: usize,
    /// How many there have been.
    admitted: u64,
    /// Vanished connections that the client has not given up yet.
    silent: usize,
    /// How many `vanish` calls have been made.
    vanished: u64,
}

impl Proxy {
    /// A proxy before `server` (`host:port`, or a URL), on a free port.
    pub async fn start(server: impl Display) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self::over(listener, &server, None, false).unwrap()
    }

    /// A proxy before `server` that passes resets on, on a free port: for a server that
    /// distinguishes resets from closes.
    pub async fn start_passing_resets(server: impl Display) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self::over(listener, &server, None, true).unwrap()
    }

    /// A proxy before `server` at a given address, which distinguishes connections
    /// by `origin`.
    pub async fn start_with_origins(
        server: impl Display,
        at: SocketAddr,
        origin: Origin,
    ) -> std::io::Result<Self> {
        Self::over(TcpListener::bind(at).await?, &server, Some(origin), false)
    }

    fn over(
        listener: TcpListener,
        server: &impl Display,
        origin: Option<Origin>,
        passes_resets: bool,
    ) -> std::io::Result<Self> {
        let address = listener.local_addr()?.to_string();
        let control = Arc::new(Control {
            server: Mutex::new(host(server)),
            origin,
            passes_resets,
            conduct: watch::Sender::default(),
            cuts: watch::Sender::default(),
            resets: watch::Sender::default(),
            connections: watch::Sender::default(),
            ended: watch::Sender::default(),
            requested_bytes: AtomicU64::new(0),
            replied_bytes: AtomicU64::new(0),
            awaited: Mutex::new(None),
            deliver: Notify::new(),
            delivered: Notify::new(),
        });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&control)));
        Ok(Self { address, control, _accepting: AbortOnDropHandle::new(accepting) })
    }

    /// Where it listens, as `host:port`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Sets its behaviour from now on.
    pub fn set(&self, conduct: Conduct) {
        self.control.conduct.send_replace(conduct);
    }

    /// From now on everything passes; connections that have lost bytes end.
    pub fn heal(&self) {
        self.set(Conduct::default());
    }

    /// Sets whether new connections are closed at once.
    pub fn refuse(&self, refuse: bool) {
        let admission = if refuse { Admission::Refuse } else { Admission::Pass };
        self.control.conduct.send_modify(|conduct| conduct.admission = admission);
    }

    /// Sets whether replies are lost. A connection that has lost one ends
    /// afterwards.
    pub fn swallow_replies(&self, swallow: bool) {
        self.set_replies(if swallow { Flow::Swallow } else { Flow::Pass });
    }

    /// From now on, delays each piece of replies.
    pub fn delay_replies(&self, by: Duration) {
        self.set_replies(if by.is_zero() { Flow::Pass } else { Flow::Delay(by) });
    }

    fn set_replies(&self, flow: Flow) {
        self.control.conduct.send_modify(|conduct| conduct.replies = flow);
    }

    /// Ends the open connections.
    pub fn cut(&self) {
        self.control.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Resets the open connections, on both sides.
    pub fn reset(&self) {
        self.control.resets.send_modify(|resets| *resets += 1);
    }

    /// Silences the open connections for ever, as if the peer had lost power: neither
    /// side sees an end.
    pub fn vanish(&self) {
        self.control.connections.send_modify(|connections| {
            connections.silent += std::mem::take(&mut connections.open);
            connections.vanished += 1;
        });
    }

    /// Lets the next request that contains `part` (any request if it is empty) reach the
    /// server, and cuts its connection when the server replies.
    pub fn lose_reply_to(&self, part: &str) {
        *self.control.awaited.lock() = Some((part.into(), Fate::LoseReply));
    }

    /// Holds the next request that contains `part` (any request if it is empty)
    /// until [`deliver`](Self::deliver), and disconnects its client.
    pub fn hold_request(&self, part: &str) {
        *self.control.awaited.lock() = Some((part.into(), Fate::Hold));
    }

    /// Sends the held request to the server, and returns once it has replied or
    /// refused it.
    pub async fn deliver(&self) {
        self.control.deliver.notify_one();
        self.control.delivered.notified().await;
    }

    /// Directs new connections to this server; open ones stay with theirs.
    pub fn lead_to(&self, server: impl Display) {
        *self.control.server.lock() = host(&server);
    }

    /// The number of connections to the server.
    pub fn connections(&self) -> usize {
        self.control.connections.borrow().open
    }

    /// The number of connections to the server so far.
    pub fn admitted(&self) -> u64 {
        self.control.connections.borrow().admitted
    }

    /// Bytes that clients have sent, as far as they were read: those that a fault holds were not.
    pub fn requested_bytes(&self) -> u64 {
        self.control.requested_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that the server has sent.
    pub fn replied_bytes(&self) -> u64 {
        self.control.replied_bytes.load(Ordering::Relaxed)
    }

    /// Waits until the clients have given up every connection that vanished.
    pub async fn given_up(&self) {
        let mut connections = self.control.connections.subscribe();
        // It can only fail once there is no proxy.
        let _ = connections.wait_for(|connections| connections.silent == 0).await;
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.control.ended.send_replace(true);
    }
}

impl Control {
    fn requested(&self, bytes: usize) {
        self.requested_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// The fate of this request. No other is awaited afterwards.
    fn fate(&self, request: &[u8]) -> Option<Fate> {
        let mut awaited = self.awaited.lock();
        let (part, fate) = awaited.as_ref()?;
        let meets = part.is_empty() || request.windows(part.len()).any(|it| it == part);
        let fate = meets.then_some(*fate)?;
        *awaited = None;
        Some(fate)
    }
}

/// `host:port` of a server that may be given as a URL.
fn host(server: &impl Display) -> String {
    let server = server.to_string();
    server.split_once("://").map_or(server.as_str(), |(_, host)| host).to_owned()
}

async fn accept(listener: TcpListener, control: Arc<Control>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let Ok((client, _)) = listener.accept().await else {
            // Out of descriptors: wait until some are closed.
            sleep(Duration::from_millis(10)).await;
            continue;
        };
        let control = Arc::clone(&control);
        tokio::spawn(async move {
            let mut ended = control.ended.subscribe();
            tokio::select! {
                () = connection::serve(client, &control) => {}
                _ = ended.wait_for(|ended| *ended) => {}
            }
            drop(place);
        });
    }
}

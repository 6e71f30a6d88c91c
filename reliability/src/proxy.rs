//! A TCP proxy that does to a connection what networks do.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{Semaphore, watch},
    time::{sleep, timeout},
};
use tokio_util::task::AbortOnDropHandle;

/// More connections than this at once wait to be accepted.
const CONNECTIONS_MAX: usize = 1024;
const CHUNK: usize = 32 * 1024;
/// Within what time a connection must say whose it is.
const ORIGIN_TIMEOUT: Duration = Duration::from_secs(2);

/// What happens to one direction's bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flow {
    /// They pass.
    #[default]
    Pass,
    /// Each piece is late by so much.
    Delay(Duration),
    /// They are kept back, and arrive once this is over: what a partition
    /// does, as long as TCP goes on trying.
    Stall,
    /// They are lost. The connection ends once this is over.
    Swallow,
    /// So many more pass, then the connection is cut.
    CutAfter(u64),
}

/// What happens to a new connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Admission {
    /// It reaches the server.
    #[default]
    Pass,
    /// It is closed at once.
    Refuse,
    /// It is accepted, and reaches the server once this is over.
    Stall,
    /// It is accepted and never answered; closed once this is over.
    HalfOpen,
}

/// How a proxy behaves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conduct {
    /// Towards the server.
    pub requests: Flow,
    /// From the server.
    pub replies: Flow,
    /// New connections.
    pub admission: Admission,
    /// Connections of these origins are kept back in both directions.
    pub shunned: Vec<String>,
}

impl Conduct {
    /// Both directions, and new connections, are kept back.
    pub fn partition() -> Self {
        Self {
            requests: Flow::Stall,
            replies: Flow::Stall,
            admission: Admission::Stall,
            shunned: Vec::new(),
        }
    }
}

/// Reads from a connection's first bytes whose it is.
pub type Origin = fn(&[u8]) -> Option<String>;

/// Stands before a server; its connections end when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    control: Arc<Control>,
    _accepting: AbortOnDropHandle<()>,
}

#[derive(Debug)]
struct Control {
    server: Mutex<SocketAddr>,
    origin: Option<Origin>,
    conduct: watch::Sender<Conduct>,
    cuts: watch::Sender<u64>,
    connections: watch::Sender<Connections>,
    ended: watch::Sender<bool>,
}

impl Proxy {
    /// A proxy before `server`, on a free port.
    pub async fn start(server: SocketAddr) -> std::io::Result<Self> {
        Self::over(TcpListener::bind("127.0.0.1:0").await?, server, None)
    }

    /// A proxy before `server` that tells connections apart by `origin`.
    pub async fn start_telling(
        server: SocketAddr,
        at: SocketAddr,
        origin: Origin,
    ) -> std::io::Result<Self> {
        Self::over(TcpListener::bind(at).await?, server, Some(origin))
    }

    fn over(
        listener: TcpListener,
        server: SocketAddr,
        origin: Option<Origin>,
    ) -> std::io::Result<Self> {
        let address = listener.local_addr()?;
        let control = Arc::new(Control {
            server: Mutex::new(server),
            origin,
            conduct: watch::Sender::default(),
            cuts: watch::Sender::default(),
            connections: watch::Sender::default(),
            ended: watch::Sender::default(),
        });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&control)));
        Ok(Self { address, control, _accepting: AbortOnDropHandle::new(accepting) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on it behaves like this.
    pub fn set(&self, conduct: Conduct) {
        self.control.conduct.send_replace(conduct);
    }

    /// From now on everything passes; connections that have lost bytes end.
    pub fn heal(&self) {
        self.set(Conduct::default());
    }

    /// Ends the connections that there are.
    pub fn cut(&self) {
        self.control.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// The connections that there are fall silent for ever, as if the peer had
    /// lost its power: no end is ever told to either side.
    pub fn vanish(&self) {
        self.control.connections.send_modify(|connections| {
            connections.silent += std::mem::take(&mut connections.open);
            connections.vanished += 1;
        });
    }

    /// From now on new connections reach this server; those that there are stay
    /// with theirs.
    pub fn lead_to(&self, server: SocketAddr) {
        *self.control.server.lock() = server;
    }

    /// How many connections to the server there are.
    pub fn connections(&self) -> usize {
        self.control.connections.borrow().open
    }

    /// Waits until the clients have given up every connection that vanished.
    pub async fn given_up(&self) {
        let mut connections = self.control.connections.subscribe();
        // It can only fail once there is no proxy.
        let _ = connections.wait_for(|connections| connections.silent == 0).await;
    }
}

/// The connections to the server.
#[derive(Debug, Default)]
struct Connections {
    open: usize,
    /// Those that vanished, and that the client has not given up yet.
    silent: usize,
    /// How often those that there were have vanished.
    vanished: u64,
}

/// A connection, counted until it is dropped.
struct Counted<'a> {
    connections: &'a watch::Sender<Connections>,
    /// How often others had vanished when it was opened.
    opened_after: u64,
}

impl<'a> Counted<'a> {
    fn new(connections: &'a watch::Sender<Connections>) -> Self {
        let mut opened_after = 0;
        connections.send_modify(|connections| {
            connections.open += 1;
            opened_after = connections.vanished;
        });
        Self { connections, opened_after }
    }

    async fn vanishes(&self) {
        let mut connections = self.connections.subscribe();
        let gone = |connections: &Connections| connections.vanished > self.opened_after;
        let _ = connections.wait_for(gone).await;
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.connections.send_modify(|connections| {
            if connections.vanished > self.opened_after {
                connections.silent -= 1;
            } else {
                connections.open -= 1;
            }
        });
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.control.ended.send_replace(true);
    }
}

async fn accept(listener: TcpListener, control: Arc<Control>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let Ok((client, _)) = listener.accept().await else {
            // Out of descriptors: let some end.
            sleep(Duration::from_millis(10)).await;
            continue;
        };
        let control = Arc::clone(&control);
        tokio::spawn(async move {
            let mut ended = control.ended.subscribe();
            tokio::select! {
                () = serve(client, &control) => {}
                _ = ended.wait_for(|ended| *ended) => {}
            }
            drop(place);
        });
    }
}

async fn serve(mut client: TcpStream, control: &Control) {
    let mut conduct = control.conduct.subscribe();
    let mut cuts = control.cuts.subscribe();
    let admission = conduct.borrow_and_update().admission;
    match admission {
        Admission::Pass => {}
        Admission::Refuse => return,
        Admission::Stall => {
            if conduct.wait_for(|now| now.admission != Admission::Stall).await.is_err() {
                return;
            }
        }
        Admission::HalfOpen => {
            tokio::select! {
                _ = conduct.wait_for(|now| now.admission != Admission::HalfOpen) => {}
                () = read_to_end(&mut client) => {}
            }
            return;
        }
    }
    let (origin, first) = match control.origin {
        None => (None, Vec::new()),
        Some(origin) => {
            let Some(first) = head(&mut client).await else { return };
            (origin(&first), first)
        }
    };
    let address = *control.server.lock();
    let Ok(server) = TcpStream::connect(address).await else { return };
    let counted = Counted::new(&control.connections);
    let (_, _) = (client.set_nodelay(true), server.set_nodelay(true));
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let requests = Pump { origin: origin.clone(), side: |conduct| conduct.requests };
    let replies = Pump { origin, side: |conduct| conduct.replies };
    let vanishes = tokio::select! {
        () = requests.run(first, &mut from_client, &mut to_server, conduct.clone()) => false,
        () = replies.run(Vec::new(), &mut from_server, &mut to_client, conduct) => false,
        _ = cuts.changed() => false,
        () = counted.vanishes() => true,
    };
    if vanishes {
        // Both ends stay open until the client gives up by itself.
        let mut scrap = vec![0; CHUNK];
        while let Ok(1..) = from_client.read(&mut scrap).await {}
    }
}

/// One direction of one connection.
struct Pump {
    origin: Option<String>,
    side: fn(&Conduct) -> Flow,
}

impl Pump {
    async fn run(
        &self,
        first: Vec<u8>,
        from: &mut OwnedReadHalf,
        to: &mut OwnedWriteHalf,
        mut conduct: watch::Receiver<Conduct>,
    ) {
        let mut buffer = vec![0; CHUNK];
        let mut pending = first;
        let mut flow = self.flow(&conduct.borrow_and_update());
        let (mut spoiled, mut left) = (false, budget(flow));
        loop {
            if spoiled && flow != Flow::Swallow {
                return;
            }
            if flow != Flow::Stall && !pending.is_empty() {
                let bytes = std::mem::take(&mut pending);
                match flow {
                    Flow::Swallow => spoiled = true,
                    Flow::CutAfter(_) => {
                        let pass = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                        left -= pass as u64;
                        if to.write_all(&bytes[..pass]).await.is_err() || left == 0 {
                            return;
                        }
                    }
                    Flow::Delay(by) => {
                        sleep(by).await;
                        if to.write_all(&bytes).await.is_err() {
                            return;
                        }
                    }
                    Flow::Pass | Flow::Stall => {
                        if to.write_all(&bytes).await.is_err() {
                            return;
                        }
                    }
                }
            }
            tokio::select! {
                biased;
                changed = conduct.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    flow = self.flow(&conduct.borrow_and_update());
                    left = budget(flow);
                }
                read = from.read(&mut buffer), if flow != Flow::Stall => match read {
                    Ok(length @ 1..) => pending.extend_from_slice(&buffer[..length]),
                    // An end is lost like any other news.
                    _ if flow == Flow::Swallow => {
                        let silent = |now: &Conduct| self.flow(now) == Flow::Swallow;
                        let _ = conduct.wait_for(|now| !silent(now)).await;
                        return;
                    }
                    _ => return,
                },
            }
        }
    }

    fn flow(&self, conduct: &Conduct) -> Flow {
        match &self.origin {
            Some(origin) if conduct.shunned.contains(origin) => Flow::Stall,
            _ => (self.side)(conduct),
        }
    }
}

fn budget(flow: Flow) -> u64 {
    if let Flow::CutAfter(bytes) = flow { bytes } else { u64::MAX }
}

/// The first bytes, up to the end of an HTTP head.
async fn head(client: &mut TcpStream) -> Option<Vec<u8>> {
    let (mut head, mut buffer) = (Vec::new(), [0; 4096]);
    let read = async {
        while head.len() < CHUNK && !head.windows(4).any(|four| four == b"\r\n\r\n") {
            match client.read(&mut buffer).await {
                Ok(length @ 1..) => head.extend_from_slice(&buffer[..length]),
                _ => return,
            }
        }
    };
    let _ = timeout(ORIGIN_TIMEOUT, read).await;
    (!head.is_empty()).then_some(head)
}

async fn read_to_end(client: &mut TcpStream) {
    let mut scrap = [0; 4096];
    while let Ok(1..) = client.read(&mut scrap).await {}
}

//! One connection through a proxy.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    time::{sleep, timeout},
};

use super::{
    Connections, Control, Origin,
    conduct::{Admission, Conduct, Fate, Flow},
};

const CHUNK: usize = 32 * 1024;
/// How long a connection may take to identify its origin.
const ORIGIN_TIMEOUT: Duration = Duration::from_secs(2);

/// A connection, counted until it is dropped.
struct Counted<'a> {
    connections: &'a watch::Sender<Connections>,
    /// How many `vanish` calls had been made when it was opened.
    opened_after: u64,
}

impl<'a> Counted<'a> {
    fn new(connections: &'a watch::Sender<Connections>) -> Self {
        let mut opened_after = 0;
        connections.send_modify(|connections| {
            connections.open += 1;
            connections.admitted += 1;
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

/// Passes one connection's bytes on, until either side ends it.
pub(super) async fn serve(mut client: TcpStream, control: &Control) {
    let mut conduct = control.conduct.subscribe();
    let mut cuts = control.cuts.subscribe();
    let mut resets = control.resets.subscribe();
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
                () = read_to_end(&mut client, control) => {}
            }
            return;
        }
    }
    let (origin, first) = match control.origin {
        None => (None, Vec::new()),
        Some(origin) => {
            let Some(first) = head(&mut client, origin).await else { return };
            control.requested(first.len());
            (origin(&first), first)
        }
    };
    let address = control.server.lock().clone();
    let Ok(server) = TcpStream::connect(address).await else { return };
    let counted = Counted::new(&control.connections);
    let (_, _) = (client.set_nodelay(true), server.set_nodelay(true));
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let loses_reply = AtomicBool::new(false);
    let origin = origin.as_deref();
    let requests = Pump { control, origin, loses_reply: &loses_reply, of_replies: false };
    let replies = Pump { of_replies: true, ..requests };
    let end = tokio::select! {
        end = requests.run(first, &mut from_client, &mut to_server, conduct.clone()) => end,
        end = replies.run(Vec::new(), &mut from_server, &mut to_client, conduct) => end,
        _ = cuts.changed() => End::Cut,
        _ = resets.changed() => End::Reset,
        () = counted.vanishes() => End::Vanished,
    };
    match end {
        End::Cut => {}
        End::Reset => {
            let sides: [&TcpStream; 2] = [from_client.as_ref(), from_server.as_ref()];
            for side in sides {
                // This fails for a side that is closed already.
                let _ = side.set_zero_linger();
            }
            // Dropping these would close their sides in an orderly way first.
            to_client.forget();
            to_server.forget();
        }
        End::Vanished => {
            // Both ends stay open until the client gives up.
            let mut scrap = vec![0; CHUNK];
            while let Ok(1..) = from_client.read(&mut scrap).await {}
        }
        End::Held(request) => {
            drop((from_client, to_client));
            control.deliver.notified().await;
            let _ = to_server.write_all(&request).await;
            let _ = from_server.read(&mut [0; 4096]).await;
            control.delivered.notify_one();
        }
    }
}

/// How the passing of bytes ends.
enum End {
    Cut,
    /// Both sides are reset.
    Reset,
    Vanished,
    /// The client is disconnected, and the server receives this request later.
    Held(Vec<u8>),
}

/// One direction of one connection.
#[derive(Clone, Copy)]
struct Pump<'a> {
    control: &'a Control,
    origin: Option<&'a str>,
    /// Whether the connection is cut when the server replies.
    loses_reply: &'a AtomicBool,
    of_replies: bool,
}

impl Pump<'_> {
    async fn run(
        &self,
        first: Vec<u8>,
        from: &mut OwnedReadHalf,
        to: &mut OwnedWriteHalf,
        mut conduct: watch::Receiver<Conduct>,
    ) -> End {
        let mut buffer = vec![0; CHUNK];
        let mut pending = first;
        let mut flow = self.flow(&conduct.borrow_and_update());
        let (mut spoiled, mut left) = (false, flow.budget());
        loop {
            if spoiled && flow != Flow::Swallow {
                return End::Cut;
            }
            if flow != Flow::Stall && !pending.is_empty() {
                let bytes = std::mem::take(&mut pending);
                if self.of_replies && self.loses_reply.load(Ordering::Relaxed) {
                    return End::Cut;
                }
                let fate = if self.of_replies { None } else { self.control.fate(&bytes) };
                match fate {
                    None => {}
                    Some(Fate::LoseReply) => self.loses_reply.store(true, Ordering::Relaxed),
                    Some(Fate::Hold) => return End::Held(bytes),
                }
                match flow {
                    Flow::Swallow => spoiled = true,
                    Flow::CutAfter(_) => {
                        let pass = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                        left -= pass as u64;
                        if to.write_all(&bytes[..pass]).await.is_err() || left == 0 {
                            return End::Cut;
                        }
                    }
                    Flow::Delay(by) => {
                        sleep(by).await;
                        if to.write_all(&bytes).await.is_err() {
                            return End::Cut;
                        }
                    }
                    Flow::Pass | Flow::Stall => {
                        if to.write_all(&bytes).await.is_err() {
                            return End::Cut;
                        }
                    }
                }
            }
            tokio::select! {
                biased;
                changed = conduct.changed() => {
                    if changed.is_err() {
                        return End::Cut;
                    }
                    flow = self.flow(&conduct.borrow_and_update());
                    left = flow.budget();
                }
                read = from.read(&mut buffer), if flow != Flow::Stall => match read {
                    Ok(length @ 1..) => {
                        pending.extend_from_slice(&buffer[..length]);
                        if self.of_replies {
                            let replied = &self.control.replied_bytes;
                            replied.fetch_add(length as u64, Ordering::Relaxed);
                        } else {
                            self.control.requested(length);
                        }
                    }
                    // The end of the stream is lost, too.
                    _ if flow == Flow::Swallow => {
                        let silent = |now: &Conduct| self.flow(now) == Flow::Swallow;
                        let _ = conduct.wait_for(|now| !silent(now)).await;
                        return End::Cut;
                    }
                    Err(_) if self.control.passes_resets => return End::Reset,
                    _ => return End::Cut,
                },
            }
        }
    }

    fn flow(&self, conduct: &Conduct) -> Flow {
        let shunned = self
            .origin
            .is_some_and(|origin| conduct.shunned.iter().any(|shunned| shunned == origin));
        match (shunned, self.of_replies) {
            (true, _) => Flow::Stall,
            (false, true) => conduct.replies,
            (false, false) => conduct.requests,
        }
    }
}

/// The first bytes, up to the end of an HTTP head.
async fn head(client: &mut TcpStream, origin: Origin) -> Option<Vec<u8>> {
    let (mut head, mut buffer) = (Vec::new(), [0; 4096]);
    let read = async {
        let ends = |head: &[u8]| head.windows(4).any(|four| four == b"\r\n\r\n");
        while head.len() < CHUNK && !ends(&head) && origin(&head).is_none() {
            match client.read(&mut buffer).await {
                Ok(length @ 1..) => head.extend_from_slice(&buffer[..length]),
                _ => return,
            }
        }
    };
    let _ = timeout(ORIGIN_TIMEOUT, read).await;
    (!head.is_empty()).then_some(head)
}

async fn read_to_end(client: &mut TcpStream, control: &Control) {
    let mut scrap = [0; 4096];
    while let Ok(length @ 1..) = client.read(&mut scrap).await {
        control.requested(length);
    }
}

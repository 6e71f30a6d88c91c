//! The shared state of a watch stream's task and the handles on its watches.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::sync::{mpsc, watch};

use crate::{client::link::Link, etcd::Etcd, queue::waiters::Queue};

/// Requests that may wait for the task of a stream: more than there may be waiters.
const ASKS_MAX: usize = 1_000_000;

/// What all streams share.
pub(super) struct Shared {
    pub(super) etcd: Arc<Etcd>,
    /// Whether etcd refused a watch since the last stream was opened.
    pub(super) refused: AtomicBool,
}

impl Shared {
    pub(super) fn new(etcd: Arc<Etcd>) -> Self {
        Self { etcd, refused: AtomicBool::new(false) }
    }
}

/// One stream.
pub(super) struct Stream {
    pub(super) link: Arc<Link>,
    asks: mpsc::Sender<Ask>,
    retired: Arc<AtomicBool>,
}

/// The task's side of a stream.
pub(super) struct Asked {
    pub(super) link: Arc<Link>,
    pub(super) asks: mpsc::Receiver<Ask>,
    /// Whether the stream takes no more watches.
    pub(super) retired: Arc<AtomicBool>,
}

/// A request to the task of a stream.
pub(super) enum Ask {
    /// To create a watch.
    Create(Wanted),
    /// To cancel a watch, whose handle was dropped.
    Cancel(i64),
}

impl Ask {
    /// The watch that is to be created.
    pub(super) fn wanted(self) -> Option<Wanted> {
        match self {
            Self::Create(wanted) => Some(wanted),
            Self::Cancel(_) => None,
        }
    }
}

/// A watch that is to be created.
pub(super) struct Wanted {
    pub(super) id: i64,
    pub(super) queue: Arc<Queue>,
    pub(super) status: watch::Sender<Status>,
}

/// The state of a watch.
#[derive(Clone, Debug)]
pub(super) enum Status {
    /// etcd has not answered yet.
    Asked,
    /// etcd has created it.
    Created,
    /// There will be no more events.
    Ended(End),
}

/// Why a watch ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::queue) enum End {
    /// etcd cancelled it, or its stream ended; another watch may well succeed.
    Cancelled,
    /// etcd refused it, or is unavailable.
    Failed(Arc<str>),
}

/// A watch of one queue's keys; cancelled when dropped.
pub(in crate::queue) struct Watch {
    id: i64,
    stream: Arc<Stream>,
    status: watch::Receiver<Status>,
}

impl Stream {
    /// A stream that is to be opened, and what its task has of it.
    pub(super) fn new(link: &Arc<Link>) -> (Self, Asked) {
        let (asks, asked) = mpsc::channel(ASKS_MAX);
        let retired = Arc::<AtomicBool>::default();
        let (link, retired_too) = (Arc::clone(link), Arc::clone(&retired));
        let asked = Asked { link: Arc::clone(&link), asks: asked, retired: retired_too };
        (Self { link, asks, retired }, asked)
    }

    /// Whether another watch over this connection may be asked for.
    pub(super) fn serves(&self, link: &Arc<Link>) -> bool {
        let is_open = !self.asks.is_closed() && !self.retired.load(Ordering::Relaxed);
        is_open && Arc::ptr_eq(&self.link, link)
    }

    /// Asks its task for something. A watch that cannot be asked for any more has ended.
    pub(super) fn ask(&self, ask: Ask) {
        let _ = self.asks.try_send(ask);
    }
}

impl Watch {
    pub(super) fn new(id: i64, stream: Arc<Stream>, status: watch::Receiver<Status>) -> Self {
        Self { id, stream, status }
    }

    /// Waits until etcd has created it.
    pub(in crate::queue) async fn created(&mut self) -> Result<(), End> {
        self.wait(|status| !matches!(status, Status::Asked)).await
    }

    /// Waits until it has ended.
    pub(in crate::queue) async fn ended(&mut self) -> End {
        match self.wait(|status| matches!(status, Status::Ended(_))).await {
            Err(end) => end,
            Ok(()) => End::Cancelled,
        }
    }

    async fn wait(&mut self, until: impl FnMut(&Status) -> bool) -> Result<(), End> {
        match self.status.wait_for(until).await.as_deref() {
            Ok(Status::Ended(end)) => Err(end.clone()),
            Ok(Status::Asked | Status::Created) => Ok(()),
            // The task of the stream is gone.
            Err(_) => Err(End::Cancelled),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stream.ask(Ask::Cancel(self.id));
    }
}

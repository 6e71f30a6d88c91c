//! What a watch stream's task shares with the handles on its watches.

use std::{
    collections::VecDeque,
    sync::{Arc, atomic::AtomicBool},
};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};

use crate::{client::link::Link, etcd::Etcd, queue::waiters::Queue};

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
    /// Wakes the task when there is something to do.
    pub(super) woken: Notify,
    todo: Mutex<Todo>,
}

/// What the stream's task has yet to do. Both lists are bounded by the number of queues.
#[derive(Default)]
struct Todo {
    /// Whether the stream takes no more watches.
    closed: bool,
    create: VecDeque<Wanted>,
    /// Watches whose handles were dropped.
    cancel: Vec<i64>,
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
    /// A stream that is to be opened, with its first watch.
    pub(super) fn new(link: Arc<Link>, first: Wanted) -> Self {
        let todo = Todo { create: VecDeque::from([first]), ..Todo::default() };
        Self { link, woken: Notify::new(), todo: Mutex::new(todo) }
    }

    /// Asks for another watch; gives it back if the stream takes no more.
    pub(super) fn want(&self, wanted: Wanted) -> Result<(), Wanted> {
        let mut todo = self.todo();
        if todo.closed {
            return Err(wanted);
        }
        todo.create.push_back(wanted);
        drop(todo);
        self.woken.notify_one();
        Ok(())
    }

    /// The next watch to create, if its handle still exists.
    pub(super) fn next_wanted(&self) -> Option<Wanted> {
        let mut todo = self.todo();
        std::iter::from_fn(|| todo.create.pop_front()).find(|wanted| !wanted.status.is_closed())
    }

    /// A watch whose handle was dropped since this was last asked.
    pub(super) fn next_dropped(&self) -> Option<i64> {
        self.todo().cancel.pop()
    }

    /// Takes no more watches, and gives back those that were not created.
    pub(super) fn close(&self) -> VecDeque<Wanted> {
        let mut todo = self.todo();
        todo.closed = true;
        std::mem::take(&mut todo.create)
    }

    /// Takes no more watches; `false` if some are still to be created.
    pub(super) fn close_if_idle(&self) -> bool {
        let mut todo = self.todo();
        todo.closed |= todo.create.is_empty();
        todo.closed
    }

    fn todo(&self) -> MutexGuard<'_, Todo> {
        self.todo.lock()
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
        self.stream.todo().cancel.push(self.id);
        self.stream.woken.notify_one();
    }
}

//! Watch streams: many watches share one.
//!
//! A stream of its own costs etcd some 60 KiB and several goroutines for each watch,
//! one that is shared a few hundred bytes. There is one stream for each connection;
//! a second one is opened only after etcd refused a watch on the first.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};

use crate::backend::etcd::{
    background::Background,
    client::{
        connection::{Connection, Link},
        reads::Looks,
    },
    keys::Keys,
    queue::{waiters::Queue, watch::serve},
};

/// The watch streams of one backend.
pub(crate) struct WatchStreams {
    pub(crate) keys: Keys,
    pub(crate) connection: Arc<Connection>,
    /// Reads of the queues' keys; apart from the others, which need not wait for them.
    pub(crate) lists: Arc<Looks>,
    /// Whether etcd refused a watch since the last stream was opened.
    pub(crate) refused: AtomicBool,
    background: Background,
    /// The stream that new watches go to.
    newest: Mutex<Option<Arc<Stream>>>,
    next_id: AtomicI64,
}

/// One stream, shared by its task and by the handles on its watches.
pub(crate) struct Stream {
    pub(crate) link: Arc<Link>,
    /// Tells the task that there is something to do.
    pub(crate) stirred: Notify,
    todo: Mutex<Todo>,
}

/// What the stream's task is yet to do. Both are bounded by the number of queues.
#[derive(Default)]
struct Todo {
    /// Whether the stream takes no more watches.
    closed: bool,
    create: VecDeque<Wanted>,
    /// Watches whose handles were dropped.
    cancel: Vec<i64>,
}

/// A watch that is to be created.
pub(crate) struct Wanted {
    pub(crate) id: i64,
    pub(crate) queue: Arc<Queue>,
    pub(crate) status: watch::Sender<Status>,
}

/// What is known of a watch.
#[derive(Clone, Debug)]
pub(crate) enum Status {
    /// etcd has not answered yet.
    Asked,
    /// etcd has created it.
    Created,
    /// There will be no more events.
    Ended(End),
}

/// Why a watch ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Nothing is known to prevent another one: etcd cancelled it, or its stream ended.
    Cancelled,
    /// etcd refused it, or is out of reach.
    Failed(Arc<str>),
}

/// A watch of one queue's keys; cancelled when dropped.
pub(crate) struct Watch {
    id: i64,
    stream: Arc<Stream>,
    status: watch::Receiver<Status>,
}

impl WatchStreams {
    /// Opens nothing yet; the tasks end with `background`.
    pub(crate) fn new(
        keys: Keys,
        connection: Arc<Connection>,
        lists: Arc<Looks>,
        background: &Background,
    ) -> Arc<Self> {
        Arc::new(Self {
            keys,
            connection,
            lists,
            refused: AtomicBool::new(false),
            background: background.clone(),
            newest: Mutex::default(),
            next_id: AtomicI64::new(1),
        })
    }

    /// Watches the keys of a queue over `link`, from the current revision on. The
    /// events go to the queue.
    pub(crate) fn watch(self: &Arc<Self>, link: &Arc<Link>, queue: &Arc<Queue>) -> Watch {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (status, told) = watch::channel(Status::Asked);
        queue.followed_by(id);
        let mut wanted = Wanted { id, queue: Arc::clone(queue), status };
        let mut newest = self.newest.lock();
        if let Some(stream) = &*newest
            && Arc::ptr_eq(&stream.link, link)
        {
            match stream.want(wanted) {
                Ok(()) => return Watch { id, stream: Arc::clone(stream), status: told },
                Err(back) => wanted = back,
            }
        }
        let todo = Todo { create: VecDeque::from([wanted]), ..Todo::default() };
        let stream = Arc::new(Stream {
            link: Arc::clone(link),
            stirred: Notify::new(),
            todo: Mutex::new(todo),
        });
        *newest = Some(Arc::clone(&stream));
        drop(newest);
        self.background.spawn(serve::run(Arc::clone(self), Arc::clone(&stream)));
        Watch { id, stream, status: told }
    }
}

impl Stream {
    /// The next watch to create whose handle still exists.
    pub(crate) fn next_wanted(&self) -> Option<Wanted> {
        let mut todo = self.todo();
        std::iter::from_fn(|| todo.create.pop_front()).find(|wanted| !wanted.status.is_closed())
    }

    /// A watch whose handle was dropped since this was last asked.
    pub(crate) fn next_dropped(&self) -> Option<i64> {
        self.todo().cancel.pop()
    }

    /// Takes no more watches, and gives back those that were not created.
    pub(crate) fn close(&self) -> VecDeque<Wanted> {
        let mut todo = self.todo();
        todo.closed = true;
        std::mem::take(&mut todo.create)
    }

    /// Takes no more watches; `false` if some are still to be created.
    pub(crate) fn close_if_idle(&self) -> bool {
        let mut todo = self.todo();
        todo.closed |= todo.create.is_empty();
        todo.closed
    }

    fn want(&self, wanted: Wanted) -> Result<(), Wanted> {
        let mut todo = self.todo();
        if todo.closed {
            return Err(wanted);
        }
        todo.create.push_back(wanted);
        drop(todo);
        self.stirred.notify_one();
        Ok(())
    }

    fn todo(&self) -> MutexGuard<'_, Todo> {
        self.todo.lock()
    }
}

impl Watch {
    /// Waits until etcd has created it.
    pub(crate) async fn created(&mut self) -> Result<(), End> {
        self.wait(|status| !matches!(status, Status::Asked)).await
    }

    /// Waits until it has ended.
    pub(crate) async fn ended(&mut self) -> End {
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
        self.stream.stirred.notify_one();
    }
}

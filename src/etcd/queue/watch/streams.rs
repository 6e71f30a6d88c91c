//! The watch streams of a backend: many watches share one.
//!
//! A stream costs etcd some 60 KiB and several goroutines, a watch on a shared stream a few
//! hundred bytes. There is one stream for each connection; a second one is opened only after
//! etcd refused a watch on the first.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::{
    client::link::Link,
    etcd::Etcd,
    queue::{
        waiters::Queue,
        watch::{
            serve,
            stream::{Ask, Shared, Status, Stream, Wanted, Watch},
        },
    },
};

/// See the module.
pub(crate) struct WatchStreams {
    shared: Arc<Shared>,
    /// The stream that new watches go to.
    newest: Mutex<Option<Arc<Stream>>>,
    next_id: AtomicI64,
}

impl WatchStreams {
    /// Opens nothing yet.
    pub(crate) fn new(etcd: Arc<Etcd>) -> Self {
        Self {
            shared: Arc::new(Shared::new(etcd)),
            newest: Mutex::default(),
            next_id: AtomicI64::new(1),
        }
    }

    /// Watches the keys of a queue over `link`, from the current revision on. The events go
    /// to the queue.
    pub(in crate::queue) fn watch(&self, link: &Arc<Link>, queue: &Arc<Queue>) -> Watch {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (status, observed) = watch::channel(Status::Asked);
        queue.followed_by(id);
        let wanted = Ask::Create(Wanted { id, queue: Arc::clone(queue), status });
        let mut newest = self.newest.lock();
        let open = newest.as_ref().filter(|stream| stream.serves(link));
        let stream = open.cloned().unwrap_or_else(|| {
            let (stream, asked) = Stream::new(link);
            let stream = Arc::new(stream);
            *newest = Some(Arc::clone(&stream));
            let serve = serve::run(Arc::clone(&self.shared), asked);
            self.shared.etcd.background.spawn(serve);
            stream
        });
        stream.ask(wanted);
        Watch::new(id, stream, observed)
    }
}

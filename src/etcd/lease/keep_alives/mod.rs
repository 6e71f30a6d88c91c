//! Keep-alives of all leases, over a few streams.
//!
//! etcd answers the keep-alives of one stream one after the other, and a follower asks its
//! leader about each. So there are several streams, each with few keep-alives in flight.
//! Waiting keep-alives are sent in the order in which they are needed. Of the streams that have
//! room, the one that was busy last is woken, so that a process with little to do uses few. Each
//! keep-alive wakes one, so a burst of them may open all.

mod queue;
mod stream;

use std::sync::Arc;

use tokio::{
    sync::oneshot,
    time::{Instant, sleep_until},
};

use self::{
    queue::{Ask, Kept, Queue},
    stream::Stream,
};
use crate::{
    background::Background,
    client::{connection::Connection, failure::Failure},
};

/// Streams. More would not get more through over a follower.
const STREAMS: usize = 8;

/// Keeps leases alive; a handle on the streams.
#[derive(Clone)]
pub(crate) struct KeepAlives(Arc<Queue>);

impl KeepAlives {
    /// Starts the streams; their tasks end with `background`.
    pub(crate) fn start(connection: &Arc<Connection>, background: &Background) -> Self {
        let queue = Arc::new(Queue::default());
        for _ in 0..STREAMS {
            let stream = Stream::new(Arc::clone(&queue), false);
            background.spawn(stream.run(Arc::clone(connection)));
        }
        Self(queue)
    }

    /// The same with one stream, for leases that last only some seconds. Their keep-alives do
    /// not wait behind others, and a silent endpoint is noticed early: all endpoints are tried
    /// then, and the first that answers takes the connection over.
    pub(crate) fn start_urgent(connection: &Arc<Connection>, background: &Background) -> Self {
        let queue = Arc::new(Queue::default());
        let stream = Stream::new(Arc::clone(&queue), true);
        background.spawn(stream.run(Arc::clone(connection)));
        Self(queue)
    }

    /// Keeps a lease alive; `None` if it has ended. If the answer is lost, the keep-alive is sent
    /// again until `until`. Of the waiting ones, the one with the earliest `needed_by` is sent
    /// first.
    pub(crate) async fn keep_alive(&self, id: i64, needed_by: Instant, until: Instant) -> Kept {
        let (answer, answered) = oneshot::channel();
        if !self.0.push(Ask { id, needed_by, answer }) {
            return Err(Failure::Unknown("too many leases are to be kept alive".into()));
        }
        tokio::select! {
            biased;
            kept = answered => {
                kept.unwrap_or_else(|_| Err(Failure::Unknown("the store is closed".into())))
            }
            () = sleep_until(until) => Err(self.0.hindrance()),
        }
    }
}

//! The keep-alives that are to be sent, in the order in which they are needed.

use std::{collections::BTreeMap, sync::Arc};

use leasehold_lock as lock;
use parking_lot::{Mutex, MutexGuard};
use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};

use crate::client::failure::Failure;

/// Streams. More would not get more through over a follower.
pub(super) const STREAMS: usize = 8;
/// Keep-alives that may wait to be sent: more than a process may hold grants.
const WAITING_MAX: usize = 200_000;

/// A lease that was kept alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeptAlive {
    /// Its TTL, starting again.
    pub(crate) ttl_s: u64,
    /// When the keep-alive was sent.
    pub(crate) sent: lock::Instant,
}

/// The answer to a keep-alive: `None` if the lease does not exist any more, and its keys are gone.
pub(super) type Kept = Result<Option<KeptAlive>, Failure>;

/// A lease that is to be kept alive.
pub(super) struct Ask {
    pub(super) id: i64,
    pub(super) needed_by: Instant,
    pub(super) answer: oneshot::Sender<Kept>,
}

/// The shared state of the streams and their callers.
#[derive(Default)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    /// Wakes each stream when there is something for it to send.
    woken: [Notify; STREAMS],
    /// Why the last keep-alive could not be sent: the error of those whose time runs out.
    hindrance: Mutex<Option<Arc<str>>>,
}

#[derive(Default)]
struct Waiting {
    /// By when each is needed, and its number.
    asks: BTreeMap<(Instant, u64), Ask>,
    next_number: u64,
    /// How many more keep-alives each stream has room for.
    room: [usize; STREAMS],
}

impl Queue {
    /// Queues a keep-alive and wakes the stream that is to send it; `false` if too many
    /// wait.
    pub(super) fn push(&self, ask: Ask) -> bool {
        let mut waiting = self.waiting();
        if waiting.asks.len() >= WAITING_MAX {
            waiting.asks.retain(|_, ask| !ask.answer.is_closed());
            if waiting.asks.len() >= WAITING_MAX {
                return false;
            }
        }
        let number = waiting.next_number;
        waiting.next_number += 1;
        waiting.asks.insert((ask.needed_by, number), ask);
        let first = waiting.room.iter().position(|room| *room > 0);
        drop(waiting);
        if let Some(woken) = first.and_then(|stream| self.woken.get(stream)) {
            woken.notify_one();
        }
        true
    }

    /// Notes that a stream has `room`, and takes the next keep-alive for it if it has any
    /// and no stream with a lower number has.
    pub(super) fn take(&self, stream: usize, room: usize) -> Option<Ask> {
        let mut waiting = self.waiting();
        let before_have_room = waiting.room.iter().take(stream).any(|room| *room > 0);
        let ask = loop {
            if room == 0 || before_have_room {
                break None;
            }
            match waiting.asks.pop_first() {
                Some((_, ask)) if ask.answer.is_closed() => {}
                first => break first.map(|(_, ask)| ask),
            }
        };
        if let Some(own) = waiting.room.get_mut(stream) {
            *own = room - usize::from(ask.is_some());
        }
        ask
    }

    /// Waits until there is something for a stream to send.
    pub(super) async fn woken(&self, stream: usize) {
        match self.woken.get(stream) {
            Some(woken) => woken.notified().await,
            None => std::future::pending().await,
        }
    }

    /// Why a keep-alive has no answer in time.
    pub(super) fn hindrance(&self) -> Failure {
        let hindrance = self.hindrance.lock().clone();
        let why =
            hindrance.unwrap_or_else(|| "etcd did not answer a keep-alive in time".into());
        Failure::Unknown(why)
    }

    /// Records why a keep-alive could not be sent; `None` when a stream works again.
    pub(super) fn hindered(&self, why: Option<Arc<str>>) {
        *self.hindrance.lock() = why;
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock()
    }
}

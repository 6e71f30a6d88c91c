//! The keep-alives that are to be sent, in the order in which they are needed.

use std::{collections::BTreeMap, sync::Arc};

use leasehold_lock as lock;
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};

use crate::client::failure::Failure;

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

/// What became of a keep-alive: `Ok(None)` if the lease does not exist any more, and its keys are
/// gone.
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
    /// Wakes a stream when there is something to send.
    pub(super) woken: Notify,
    /// Why the last keep-alive could not be sent: the error of those whose time runs out.
    hindrance: Mutex<Option<Arc<str>>>,
}

#[derive(Default)]
struct Waiting {
    /// By when each is needed, and its number.
    asks: BTreeMap<(Instant, u64), Ask>,
    next_number: u64,
}

impl Queue {
    /// Queues a keep-alive, and wakes the stream that was busy last; `false` if too many wait.
    pub(super) fn push(&self, ask: Ask) -> bool {
        let mut waiting = self.waiting.lock();
        if waiting.asks.len() >= WAITING_MAX {
            waiting.asks.retain(|_, ask| !ask.answer.is_closed());
            if waiting.asks.len() >= WAITING_MAX {
                return false;
            }
        }
        let number = waiting.next_number;
        waiting.next_number += 1;
        waiting.asks.insert((ask.needed_by, number), ask);
        drop(waiting);
        self.woken.notify_last();
        true
    }

    /// Takes the keep-alive that is needed first.
    pub(super) fn take(&self) -> Option<Ask> {
        let mut waiting = self.waiting.lock();
        while let Some((_, ask)) = waiting.asks.pop_first() {
            if !ask.answer.is_closed() {
                return Some(ask);
            }
        }
        None
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
}

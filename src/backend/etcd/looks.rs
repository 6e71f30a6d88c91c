//! Reads of holders' keys. Those that wait at the same time travel together, in one
//! read-only transaction, which costs etcd one confirmation of its leader for all.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use etcd_client::{KeyValue, TxnOp, TxnOpResponse};
use tokio::{
    sync::oneshot,
    task::yield_now,
    time::{Instant, sleep_until},
};

use super::{
    background::Background,
    connection::Connection,
    failure::{Failure, Refusal},
};

/// As many as there may be callers.
const WAITING_MAX: usize = 200_000;
/// Keys of one transaction, whatever `maxTxnOps` says: an answer must fit into a message.
const KEYS_MAX: usize = 1_000;
/// Transactions in flight.
const READING_MAX: usize = 2;

type Answer = Result<Option<KeyValue>, Failure>;

/// See the module.
pub(super) struct Looks {
    connection: Arc<Connection>,
    background: Background,
    state: Mutex<State>,
}

struct State {
    waiting: VecDeque<Look>,
    /// Transactions in flight.
    reading: usize,
    /// Keys in a transaction; halved when the server refuses that many.
    keys_max: usize,
}

struct Look {
    key: String,
    until: Instant,
    answer: oneshot::Sender<Answer>,
}

impl Looks {
    /// Reads of up to `keys_max` keys, by tasks that end with `background`.
    pub(super) fn new(
        connection: Arc<Connection>,
        keys_max: usize,
        background: &Background,
    ) -> Arc<Self> {
        let state = State {
            waiting: VecDeque::new(),
            reading: 0,
            keys_max: keys_max.clamp(1, KEYS_MAX),
        };
        Arc::new(Self { connection, background: background.clone(), state: Mutex::new(state) })
    }

    /// Reads a key, linearizably.
    pub(super) async fn look(self: &Arc<Self>, key: String, until: Instant) -> Answer {
        let (answer, answered) = oneshot::channel();
        self.push(Look { key, until, answer })?;
        tokio::select! {
            biased;
            answer = answered => {
                answer.unwrap_or_else(|_| Err(Failure::NotSent("the store is closed".into())))
            }
            () = sleep_until(until) => {
                Err(Failure::NotSent("etcd did not answer in time".into()))
            }
        }
    }

    fn push(self: &Arc<Self>, look: Look) -> Result<(), Failure> {
        let mut state = self.state();
        if state.waiting.len() >= WAITING_MAX {
            return Err(Failure::NotSent("too many reads are waiting for etcd".into()));
        }
        state.waiting.push_back(look);
        if state.reading < READING_MAX {
            state.reading += 1;
            drop(state);
            let looks = Arc::clone(self);
            self.background.spawn(async move { looks.read_all().await });
        }
        Ok(())
    }

    /// Reads what waits, until nothing does.
    async fn read_all(&self) {
        let mut reading = Reading { looks: self, counted: true };
        loop {
            // Those who are about to look come first.
            yield_now().await;
            let Some(looks) = reading.next() else { return };
            self.read(looks).await;
        }
    }

    async fn read(&self, looks: Vec<Look>) {
        let until = looks.iter().map(|look| look.until).max().unwrap_or_else(Instant::now);
        let gets = looks.iter().map(|look| TxnOp::get(look.key.clone(), None)).collect();
        match self.connection.read(gets, until).await {
            Ok(read) => {
                let mut found = read.op_responses().into_iter();
                for look in looks {
                    let pair = match found.next() {
                        Some(TxnOpResponse::Get(mut get)) => get.take_kvs().into_iter().next(),
                        _ => None,
                    };
                    let _ = look.answer.send(Ok(pair));
                }
            }
            Err(Failure::Refused(Refusal::TooManyOps, _)) if looks.len() > 1 => {
                let mut state = self.state();
                state.keys_max = (looks.len() / 2).max(1);
                for look in looks.into_iter().rev() {
                    state.waiting.push_front(look);
                }
            }
            // Nobody pays for a neighbour.
            Err(Failure::Refused(..)) if looks.len() > 1 => {
                for look in looks {
                    Box::pin(self.read(vec![look])).await;
                }
            }
            Err(failure) => {
                for look in looks {
                    let _ = look.answer.send(Err(failure.clone()));
                }
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of the tasks that read; it counts until it ends, however it does.
struct Reading<'a> {
    looks: &'a Looks,
    counted: bool,
}

impl Reading<'_> {
    /// What is to be read next. If there is nothing, the task must end: another one is
    /// started for whatever comes later.
    fn next(&mut self) -> Option<Vec<Look>> {
        let mut state = self.looks.state();
        let mut looks = Vec::new();
        while looks.len() < state.keys_max {
            match state.waiting.pop_front() {
                Some(look) if look.answer.is_closed() => {}
                Some(look) => looks.push(look),
                None => break,
            }
        }
        if looks.is_empty() {
            state.reading -= 1;
            self.counted = false;
            return None;
        }
        Some(looks)
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        if self.counted {
            self.looks.state().reading -= 1;
        }
    }
}

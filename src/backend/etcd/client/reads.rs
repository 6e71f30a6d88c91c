//! Linearizable reads. Those that wait at the same time share one read-only
//! transaction, for which etcd confirms its leader once.

use std::{collections::VecDeque, sync::Arc};

use etcd_client::{GetOptions, GetResponse, KeyValue, TxnOp, TxnOpResponse};
use parking_lot::{Mutex, MutexGuard};
use tokio::{
    sync::oneshot,
    task::yield_now,
    time::{Instant, sleep_until},
};

use crate::backend::etcd::{
    background::Background,
    client::{
        connection::Connection,
        failure::{Failure, Refusal},
    },
    verbs::acquire::revision,
};

/// As many as there may be callers.
const WAITING_MAX: usize = 200_000;
/// Keys that one transaction may return: the answer must fit into a message.
pub(crate) const KEYS_MAX: usize = 1_000;
/// Transactions in flight.
const READING_MAX: usize = 2;

/// What a read found.
pub(crate) struct Found {
    /// The revision at which it was read.
    pub(crate) revision: u64,
    pub(crate) get: GetResponse,
}

type Answer = Result<Found, Failure>;

/// See the module.
pub(crate) struct Looks {
    connection: Arc<Connection>,
    background: Background,
    state: Mutex<State>,
}

struct State {
    waiting: VecDeque<Look>,
    /// Transactions in flight.
    reading: usize,
    /// Reads in a transaction; halved when the server refuses that many.
    ops_max: usize,
}

struct Look {
    get: TxnOp,
    /// How many keys it may return.
    keys: usize,
    until: Instant,
    answer: oneshot::Sender<Answer>,
}

impl Looks {
    /// Up to `ops_max` reads a transaction, by tasks that end with `background`.
    pub(crate) fn new(
        connection: Arc<Connection>,
        ops_max: usize,
        background: &Background,
    ) -> Arc<Self> {
        let state = State { waiting: VecDeque::new(), reading: 0, ops_max: ops_max.max(1) };
        Arc::new(Self { connection, background: background.clone(), state: Mutex::new(state) })
    }

    /// Reads a key.
    pub(crate) async fn look(
        self: &Arc<Self>,
        key: String,
        until: Instant,
    ) -> Result<Option<KeyValue>, Failure> {
        let mut found = self.read(TxnOp::get(key, None), 1, until).await?;
        Ok(found.get.take_kvs().into_iter().next())
    }

    /// Reads up to `keys_max` keys with the given options.
    pub(crate) async fn look_at_range(
        self: &Arc<Self>,
        from: Vec<u8>,
        options: GetOptions,
        keys_max: usize,
        until: Instant,
    ) -> Answer {
        let limit = i64::try_from(keys_max).unwrap_or(i64::MAX);
        let get = TxnOp::get(from, Some(options.with_limit(limit)));
        self.read(get, keys_max, until).await
    }

    async fn read(self: &Arc<Self>, get: TxnOp, keys: usize, until: Instant) -> Answer {
        let (answer, answered) = oneshot::channel();
        self.push(Look { get, keys, until, answer })?;
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
            self.read_together(looks).await;
        }
    }

    async fn read_together(&self, looks: Vec<Look>) {
        let until = looks.iter().map(|look| look.until).max().unwrap_or_else(Instant::now);
        let gets = looks.iter().map(|look| look.get.clone()).collect();
        match self.connection.read(gets, until).await {
            Ok(read) => {
                let revision =
                    read.header().map(|header| revision(header.revision())).unwrap_or_default();
                let mut found = read.op_responses().into_iter();
                for look in looks {
                    let answer = match found.next() {
                        Some(TxnOpResponse::Get(get)) => Ok(Found { revision, get }),
                        _ => Err(Failure::Unknown("etcd answered something else".into())),
                    };
                    let _ = look.answer.send(answer);
                }
            }
            Err(Failure::Refused(Refusal::TooManyOps, _)) if looks.len() > 1 => {
                let mut state = self.state();
                state.ops_max = (looks.len() / 2).max(1);
                for look in looks.into_iter().rev() {
                    state.waiting.push_front(look);
                }
            }
            // Nobody pays for a neighbour.
            Err(Failure::Refused(..)) if looks.len() > 1 => {
                for look in looks {
                    Box::pin(self.read_together(vec![look])).await;
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
        self.state.lock()
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
        let (mut looks, mut keys) = (Vec::new(), 0);
        while looks.len() < state.ops_max
            && let Some(look) = state.waiting.pop_front()
        {
            if look.answer.is_closed() {
                continue;
            }
            keys += look.keys;
            if keys > KEYS_MAX && !looks.is_empty() {
                state.waiting.push_front(look);
                break;
            }
            looks.push(look);
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

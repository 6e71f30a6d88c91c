//! Linearizable reads. Reads that wait at the same time share one read-only transaction,
//! for which etcd confirms its leader only once.

use std::{collections::VecDeque, sync::Arc};

use etcd_client::{GetOptions, GetResponse, KeyValue, TxnOp};
use parking_lot::Mutex;
use tokio::{
    sync::oneshot,
    task::yield_now,
    time::{Instant, sleep_until},
};

use crate::{
    background::Background,
    client::{
        connection::Connection,
        failure::{Failure, Refusal},
    },
    keys::key_after,
    revision::Revision,
};

/// As many as there may be callers.
const WAITING_MAX: usize = 200_000;
/// Keys that one transaction may return, so that the answer fits into a message of 4 MiB: a grant
/// with the longest names takes 8 KB.
pub(crate) const KEYS_MAX: usize = 500;
/// Transactions in flight.
const READING_MAX: usize = 2;

/// The result of a read.
pub(crate) struct Found {
    /// The revision at which it was read.
    pub(crate) revision: Revision,
    pub(crate) get: GetResponse,
}

impl Found {
    /// Where the next page begins; `None` if there are no more keys.
    pub(crate) fn next(&self) -> Option<Vec<u8>> {
        let last = self.get.kvs().last().filter(|_| self.get.more())?;
        Some(key_after(last.key()))
    }
}

type Answer = Result<Found, Failure>;

/// Shares transactions between reads.
pub(crate) struct Reads {
    connection: Arc<Connection>,
    background: Background,
    state: Mutex<ReadQueue>,
}

struct ReadQueue {
    waiting: VecDeque<Read>,
    /// Transactions in flight.
    reading: usize,
    /// Reads in a transaction; halved when the server refuses that many.
    ops_max: usize,
}

struct Read {
    get: TxnOp,
    /// How many keys it may return.
    keys: usize,
    until: Instant,
    answer: oneshot::Sender<Answer>,
}

impl Reads {
    /// Sends up to `ops_max` reads a transaction; the tasks end with `background`.
    pub(crate) fn new(
        connection: Arc<Connection>,
        ops_max: usize,
        background: &Background,
    ) -> Arc<Self> {
        let state = ReadQueue { waiting: VecDeque::new(), reading: 0, ops_max: ops_max.max(1) };
        Arc::new(Self { connection, background: background.clone(), state: Mutex::new(state) })
    }

    /// Reads a key.
    pub(crate) async fn key(
        self: &Arc<Self>,
        key: String,
        until: Instant,
    ) -> Result<Option<KeyValue>, Failure> {
        let mut found = self.read(TxnOp::get(key, None), 1, until).await?;
        Ok(found.get.take_kvs().into_iter().next())
    }

    /// Reads up to `keys_max` keys with the given options.
    pub(crate) async fn range(
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
        self.push(Read { get, keys, until, answer })?;
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

    fn push(self: &Arc<Self>, read: Read) -> Result<(), Failure> {
        let mut state = self.state.lock();
        if state.waiting.len() >= WAITING_MAX {
            return Err(Failure::NotSent("too many reads are waiting for etcd".into()));
        }
        state.waiting.push_back(read);
        if state.reading < READING_MAX {
            state.reading += 1;
            drop(state);
            let reads = Arc::clone(self);
            self.background.spawn(async move { reads.read_all().await });
        }
        Ok(())
    }

    /// Carries out waiting reads until there are none.
    async fn read_all(&self) {
        let mut reading = Reading { reads: self, counted: true };
        loop {
            // Lets tasks that are about to read add their reads.
            yield_now().await;
            let Some(reads) = reading.next() else { return };
            self.read_together(reads).await;
        }
    }

    async fn read_together(&self, reads: Vec<Read>) {
        let until = reads.iter().map(|read| read.until).max().unwrap_or_else(Instant::now);
        let gets = reads.iter().map(|read| read.get.clone()).collect();
        match self.connection.read(gets, until).await {
            Ok((revision, found)) => {
                for (read, get) in reads.into_iter().zip(found) {
                    let _ = read.answer.send(Ok(Found { revision, get }));
                }
            }
            Err(Failure::Refused(Refusal::TooManyOps, _)) if reads.len() > 1 => {
                let mut state = self.state.lock();
                state.ops_max = (reads.len() / 2).max(1);
                for read in reads.into_iter().rev() {
                    state.waiting.push_front(read);
                }
            }
            // One of them may be the reason, so the others must not fail with it.
            Err(Failure::Refused(..)) if reads.len() > 1 => {
                for read in reads {
                    Box::pin(self.read_together(vec![read])).await;
                }
            }
            Err(failure) => {
                for read in reads {
                    let _ = read.answer.send(Err(failure.clone()));
                }
            }
        }
    }
}

/// A task that reads. It counts as one of [`READING_MAX`] until it ends or panics.
struct Reading<'a> {
    reads: &'a Reads,
    counted: bool,
}

impl Reading<'_> {
    /// The reads of the next transaction. If there are none, the task must end: another one
    /// is started for later reads.
    fn next(&mut self) -> Option<Vec<Read>> {
        let mut state = self.reads.state.lock();
        let (mut reads, mut keys) = (Vec::new(), 0);
        while reads.len() < state.ops_max
            && let Some(read) = state.waiting.pop_front()
        {
            if read.answer.is_closed() {
                continue;
            }
            keys += read.keys;
            if keys > KEYS_MAX && !reads.is_empty() {
                state.waiting.push_front(read);
                break;
            }
            reads.push(read);
        }
        if reads.is_empty() {
            state.reading -= 1;
            self.counted = false;
            return None;
        }
        Some(reads)
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        if self.counted {
            self.reads.state.lock().reading -= 1;
        }
    }
}

//! Sends the batches that the [`Batcher`] chooses. Every write goes through here.

use std::{
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use etcd_client::{Txn, TxnOp, TxnResponse, proto::PbTxnOpResponse};
use futures_util::FutureExt as _;
use leasehold_lock as lock;
use parking_lot::Mutex;
use tokio::{
    sync::oneshot,
    task::yield_now,
    time::{Instant, sleep, sleep_until},
};
use tokio_util::sync::CancellationToken;
use tracing::error;

use crate::{
    background::Background,
    client::{
        connection::Connection,
        failure::{Failure, Refusal, no_space},
    },
    commit::{
        batcher::{Batch, Batcher, Item, Limits, Obsolete, Verdict},
        op::{Claim, Op, Reply},
    },
    revision::Revision,
};

/// Half of the 512 KiB by which etcd's gRPC limit exceeds `--max-request-bytes`, so that a
/// batch that is too large is refused by etcd itself, with a clear message.
const BATCH_BYTES_MAX: usize = 256 * 1024;
/// How often the sender yields to tasks that are about to commit something.
const GATHER_ROUNDS_MAX: usize = 16;
/// As many as there may be callers and waiters.
const WAITING_MAX: usize = 200_000;
/// The operations of the longest branch of a nested transaction count too. Most have up to
/// two; a batch with a longer one has fewer items.
const NESTED_OPS: usize = 2;
/// How long a write's own answer is awaited after its deadline, because it is more
/// informative.
const LATE_GRACE: Duration = Duration::from_millis(100);
/// Between tries of a batch that could not be sent.
const RESEND_DELAY: Duration = Duration::from_millis(20);

type Answer = Result<Reply, Failure>;

/// Commits writes in batches.
pub(crate) struct Committer {
    connection: Arc<Connection>,
    writes: Mutex<WriteQueue>,
    background: Background,
    /// Why the last batch could not be sent: the error of writes whose deadline passes.
    hindrance: Mutex<Option<Arc<str>>>,
}

/// The writes that wait, and the task that sends them.
struct WriteQueue {
    batcher: Batcher<Pending>,
    /// Whether the task runs: there is exactly one while writes wait. With two or four batches in
    /// flight, batches were smaller, and 16 and 64 callers had less throughput.
    is_running: bool,
}

struct Pending {
    op: Op,
    connection: Arc<Connection>,
    answer: oneshot::Sender<Answer>,
    /// Whether it was sent. Changed only while `WriteQueue` is locked, so that a write that is
    /// given up before is certain never to be sent.
    sent: Arc<AtomicBool>,
}

impl Item for Pending {
    type Claim = Arc<str>;

    fn claims(&self) -> &[Claim] {
        &self.op.claims
    }

    fn extra_ops(&self) -> usize {
        self.op.nested_ops().saturating_sub(NESTED_OPS)
    }

    fn enters(&self) -> bool {
        self.op.enters
    }

    fn size_bytes(&self) -> usize {
        self.op.size_bytes()
    }

    fn obsolete(&self, now: Instant) -> Option<Obsolete> {
        if self.answer.is_closed() {
            Some(Obsolete::Abandoned)
        } else if now >= self.op.until {
            Some(Obsolete::Late)
        } else if self.op.lease.is_some_and(|lease| {
            lock::Instant::now() >= lease.fresh_until()
                || !lease.origin.allows_reuse(self.connection.origin())
        }) {
            Some(Obsolete::Stale)
        } else if self.connection.is_out_of_space(now) && self.op.puts {
            Some(Obsolete::OutOfSpace)
        } else {
            None
        }
    }
}

impl Committer {
    /// Its tasks end with `background`.
    pub(crate) fn new(
        connection: Arc<Connection>,
        txn_ops_max: usize,
        background: &Background,
    ) -> Arc<Self> {
        let limits = Limits {
            items_max: txn_ops_max.saturating_sub(NESTED_OPS).max(1),
            bytes_max: BATCH_BYTES_MAX,
            waiting_max: WAITING_MAX,
        };
        Arc::new(Self {
            connection,
            writes: Mutex::new(WriteQueue { batcher: Batcher::new(limits), is_running: false }),
            background: background.clone(),
            hindrance: Mutex::default(),
        })
    }

    /// Commits a write. If the future is dropped before the write was sent, it is never sent;
    /// if later, its outcome is lost.
    pub(crate) async fn commit(self: &Arc<Self>, op: Op) -> Answer {
        self.commit_while_wanted(op, &CancellationToken::new()).await
    }

    /// Commits a write that is given up once `unwanted` is cancelled, unless it was sent
    /// before.
    pub(crate) async fn commit_while_wanted(
        self: &Arc<Self>,
        op: Op,
        unwanted: &CancellationToken,
    ) -> Answer {
        let until = op.until;
        let (answer, mut answered) = oneshot::channel();
        let sent = Arc::new(AtomicBool::new(false));
        let connection = Arc::clone(&self.connection);
        let pending = Pending { op, connection, answer, sent: Arc::clone(&sent) };
        if !self.push(pending) {
            return Err(Failure::NotSent("too many writes are waiting for etcd".into()));
        }
        let unwanted = unwanted.cancelled();
        let mut is_wanted = true;
        tokio::pin!(unwanted);
        loop {
            tokio::select! {
                biased;
                answer = &mut answered => {
                    return answer.unwrap_or_else(|_| {
                        Err(Failure::Unknown("the write was given up".into()))
                    });
                }
                () = &mut unwanted, if is_wanted => {
                    is_wanted = false;
                    if self.gives_up(&sent, &mut answered) {
                        return Err(Failure::NotSent("the caller has gone".into()));
                    }
                }
                () = sleep_until(until + LATE_GRACE) => {
                    return Err(match self.gives_up(&sent, &mut answered) {
                        true => Failure::NotSent(self.hindrance()),
                        false => Failure::Unknown("etcd did not answer in time".into()),
                    });
                }
            }
        }
    }

    /// Gives a write up; `false` if it was sent already.
    fn gives_up(&self, sent: &AtomicBool, answered: &mut oneshot::Receiver<Answer>) -> bool {
        let _writes = self.writes.lock();
        let is_unsent = !sent.load(Ordering::Relaxed);
        if is_unsent {
            answered.close();
        }
        is_unsent
    }

    fn hindrance(&self) -> Arc<str> {
        let hindrance = self.hindrance.lock().clone();
        hindrance.unwrap_or_else(|| "etcd is too busy".into())
    }

    /// Queues a write, and starts the sending task if there is none; `false` if too many
    /// wait.
    fn push(self: &Arc<Self>, pending: Pending) -> bool {
        let start = {
            let mut writes = self.writes.lock();
            if writes.batcher.push(pending).is_err() {
                return false;
            }
            !std::mem::replace(&mut writes.is_running, true)
        };
        if start {
            let committer = Arc::clone(self);
            self.background.spawn(async move { committer.run().await });
        }
        true
    }

    /// Sends waiting writes. After a panic the outcome of that batch is unknown, and the
    /// task continues with the others.
    async fn run(&self) {
        while AssertUnwindSafe(self.send_all()).catch_unwind().await.is_err() {
            error!("sending a batch panicked; this is a defect");
        }
    }

    /// Sends waiting writes, batch after batch, until there are none.
    async fn send_all(&self) {
        loop {
            self.gather().await;
            let (batch, obsolete) = {
                let mut writes = self.writes.lock();
                let (batch, obsolete) = writes.batcher.next(Instant::now());
                writes.is_running = batch.is_some();
                (batch, obsolete)
            };
            self.answer_obsolete(obsolete);
            match batch {
                Some(batch) => self.send(batch).await,
                None => return,
            }
        }
    }

    /// Yields to tasks that are about to commit something, for as long as more writes come.
    /// It uses no timer, so a lone caller is not delayed.
    async fn gather(&self) {
        let mut waiting = self.writes.lock().batcher.waiting();
        for _ in 0..GATHER_ROUNDS_MAX {
            yield_now().await;
            let now = self.writes.lock().batcher.waiting();
            if now == waiting {
                return;
            }
            waiting = now;
        }
    }

    async fn send(&self, batch: Batch<Pending>) {
        let until =
            batch.items.iter().map(|item| item.op.until).max().unwrap_or_else(Instant::now);
        let link = match self.connection.link(until).await {
            Ok(link) => link,
            Err(failure) => return self.failed(batch, &failure).await,
        };
        let sent = lock::Instant::now();
        let batch = match self.mark_sent(batch, Instant::now()) {
            Ok(batch) => batch,
            // Connecting took a while; the obsolete ones are dropped from the next batch.
            Err(batch) => {
                self.writes.lock().batcher.done(batch, Verdict::NotSent);
                return;
            }
        };
        let mut client = link.client().kv_client();
        let request = Box::pin(client.txn(transaction(&batch.items)));
        let result = self.connection.answer(&link, until, request).await;
        match result {
            Ok(response) => self.committed(batch, response, sent),
            Err(failure) => self.failed(batch, &failure).await,
        }
    }

    /// Marks all items as sent, or none of them if one must not be sent any more.
    fn mark_sent(
        &self,
        batch: Batch<Pending>,
        now: Instant,
    ) -> Result<Batch<Pending>, Batch<Pending>> {
        let _writes = self.writes.lock();
        if batch.items.iter().any(|item| item.obsolete(now).is_some()) {
            return Err(batch);
        }
        for item in &batch.items {
            item.sent.store(true, Ordering::Relaxed);
        }
        Ok(batch)
    }

    /// Marks all items as certainly not applied, which their callers report if their
    /// deadline passes.
    fn mark_unsent(&self, batch: &Batch<Pending>) {
        let _writes = self.writes.lock();
        for item in &batch.items {
            item.sent.store(false, Ordering::Relaxed);
        }
    }

    fn committed(&self, batch: Batch<Pending>, response: TxnResponse, sent: lock::Instant) {
        let replies = replies(response, batch.items.len(), sent);
        let items = self.writes.lock().batcher.done(batch, Verdict::Answered);
        for (item, reply) in items.into_iter().zip(replies) {
            let _ = item.answer.send(reply);
        }
    }

    async fn failed(&self, batch: Batch<Pending>, failure: &Failure) {
        let verdict = match failure {
            Failure::NotSent(why) => {
                *self.hindrance.lock() = Some(Arc::clone(why));
                self.mark_unsent(&batch);
                // Nothing else is sent meanwhile, so that this does not spin.
                sleep(RESEND_DELAY).await;
                Verdict::NotSent
            }
            Failure::Refused(refusal, _) => {
                self.mark_unsent(&batch);
                Verdict::Refused(*refusal)
            }
            // The writes of a batch are applied together or not at all.
            Failure::OutOfSpace(_) | Failure::Unknown(_) => Verdict::Answered,
        };
        let items = self.writes.lock().batcher.done(batch, verdict);
        for item in items {
            let _ = item.answer.send(Err(failure.clone()));
        }
    }

    fn answer_obsolete(&self, obsolete: Vec<(Pending, Obsolete)>) {
        for (item, why) in obsolete {
            let failure = match why {
                Obsolete::Stale => {
                    let why = "no fresh lease could be had in time";
                    Failure::Refused(Refusal::LeaseStale, why.into())
                }
                Obsolete::Late => Failure::NotSent(self.hindrance()),
                Obsolete::OutOfSpace => Failure::NotSent(no_space()),
                Obsolete::Abandoned => continue,
            };
            let _ = item.answer.send(Err(failure));
        }
    }
}

/// A single write is sent as it is, several as nested transactions.
fn transaction(items: &[Pending]) -> Txn {
    match items {
        [single] => single.op.txn(),
        several => Txn::new()
            .and_then(several.iter().map(|item| TxnOp::txn(item.op.txn())).collect::<Vec<_>>()),
    }
}

fn replies(response: TxnResponse, count: usize, sent: lock::Instant) -> Vec<Answer> {
    let revision = Revision::of(response.header());
    let reply = |txn: &TxnResponse| Reply {
        succeeded: txn.succeeded(),
        revision,
        sent,
        responses: txn.op_responses(),
    };
    if count == 1 {
        return vec![Ok(reply(&response))];
    }
    // Unpacked here, because the client's own accessor copies every answer.
    let nested = response.0.responses.into_iter().map(|nested| match nested.response {
        Some(PbTxnOpResponse::ResponseTxn(txn)) => Ok(reply(&TxnResponse(txn))),
        _ => Err(Failure::Unknown("etcd answered something else".into())),
    });
    let mut replies: Vec<Answer> = nested.collect();
    replies.resize_with(count, || Err(Failure::Unknown("etcd left out an answer".into())));
    replies
}

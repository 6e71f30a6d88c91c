//! Leases that are to be revoked, in the background and for as long as it takes.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use etcd_client::{Compare, CompareOp, KeyValue, PutOptions, Txn, TxnOp, TxnOpResponse};
use futures_util::{StreamExt as _, stream::poll_fn};
use leasehold_util::retry::pause_before;
use tokio::{
    sync::{Notify, Semaphore, mpsc},
    time::{Instant, sleep, timeout, timeout_at},
};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::{
    background::Background,
    client::{
        connection::{Connection, delays},
        failure::{Failure, Refusal},
    },
    revision::Revision,
};

/// Leases waiting to be revoked beyond which no new ones are granted: etcd 3.5 and 3.6
/// revoke some 820 a second, and grant far more.
const BACKLOG_MAX: usize = 10_000;
/// Leases that may wait to be revoked: as many as can have been granted before the backlog
/// was full. Any more are left to their TTL.
const WAITING_MAX: usize = 1_000_000;
/// Revocations in flight. Each is a raft entry of its own, for which other writes have to
/// wait.
const IN_FLIGHT_MAX: usize = 16;
/// How long one try to revoke a lease may take.
const REVOKE_TIMEOUT: Duration = Duration::from_secs(10);
const RETRY_DELAY: Duration = Duration::from_millis(200);
/// The time after which etcd has carried out a grant whose answer was lost, or never will.
/// By default etcd waits at most 7 s for its own proposals.
const GRANT_LATE_MAX: Duration = Duration::from_secs(10);
/// How many leases may wait to be revoked again; any more are left to their TTL.
const LATE_MAX: usize = 10_000;
/// How long closing may take to revoke what waits.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
const CLOSE_POLL: Duration = Duration::from_millis(10);

/// A write of a grant's record under a lease, whose outcome is not known yet.
#[derive(Clone, Debug)]
pub(crate) struct Begun {
    key: Arc<str>,
    /// For a move of a live grant: the revision that the write compares, and the lease that the
    /// key lies under before. `None` for a key that is new.
    moved: Option<(Revision, i64)>,
}

impl Begun {
    /// A write of a new key, which is to go with the lease unless the write is known to have
    /// succeeded.
    pub(crate) fn new(key: &str) -> Self {
        Self { key: key.into(), moved: None }
    }

    /// A move of a live grant, which must not end with the lease.
    pub(crate) fn moving(key: &str, pair: &KeyValue) -> Self {
        let moved = (Revision::from_etcd(pair.mod_revision()), pair.lease());
        Self { key: key.into(), moved: Some(moved) }
    }

    /// Whether the key is new.
    pub(crate) fn is_new(&self) -> bool {
        self.moved.is_none()
    }
}

/// What became of a write whose answer was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resolved {
    /// Its key lies under its lease, written at this revision.
    Applied(Revision),
    /// It was not applied and never will be, and its lease is free.
    Never,
    /// It was not applied and never will be, because its lease is revoked.
    Revoked,
}

/// A lease that is to be revoked.
struct Unwanted {
    id: i64,
    /// Whether it counts for the backlog, which new locks have to wait for.
    is_backlog: bool,
    /// Whether etcd may grant it after it was asked to revoke it.
    may_come_late: bool,
    /// A move to it whose outcome is unknown. If it was applied, the lease before is revoked
    /// instead.
    unsettled: Option<Begun>,
}

impl Unwanted {
    fn new(id: i64) -> Self {
        Self { id, is_backlog: true, may_come_late: false, unsettled: None }
    }

    fn unhurried(id: i64) -> Self {
        Self { is_backlog: false, ..Self::new(id) }
    }
}

/// Revokes leases.
pub(crate) struct Revocations {
    connection: Arc<Connection>,
    queue: mpsc::Sender<Unwanted>,
    /// How many leases are not revoked yet, those that are to be revoked later included.
    left: AtomicUsize,
    /// How many of these count for the backlog.
    backlog: AtomicUsize,
    /// Wakes whoever waits until the backlog is no longer full.
    room: Notify,
    /// Limits the leases that could not be revoked yet, each in a task that sends it again.
    late: Semaphore,
    /// Cancelled when nobody revokes leases later any more.
    closing: CancellationToken,
    background: Background,
}

impl Revocations {
    /// Starts the tasks, which end with `background`.
    pub(crate) fn start(connection: Arc<Connection>, background: &Background) -> Arc<Self> {
        let (queue, queued) = mpsc::channel(WAITING_MAX);
        let revocations = Arc::new(Self {
            connection,
            queue,
            left: AtomicUsize::new(0),
            backlog: AtomicUsize::new(0),
            room: Notify::new(),
            late: Semaphore::new(LATE_MAX),
            closing: CancellationToken::new(),
            background: background.clone(),
        });
        background.spawn(Arc::clone(&revocations).run(queued));
        revocations
    }

    /// Revokes a lease in the background. New locks wait while too many of these are left.
    pub(crate) fn later(&self, id: i64) {
        self.push(Unwanted::new(id));
    }

    /// The same, but no new lock waits for it.
    pub(crate) fn later_unhurried(&self, id: i64) {
        self.push(Unwanted::unhurried(id));
    }

    /// Revokes a lease whose grant was asked for and not answered: again later, if etcd does
    /// not know it yet.
    pub(crate) fn later_if_granted(&self, id: i64) {
        self.push(Unwanted { may_come_late: true, ..Unwanted::new(id) });
    }

    /// Makes sure in the background of a write under a lease: a new key goes with the lease;
    /// of the two leases of a grant that was to be moved, the one is revoked that the key does
    /// not lie under.
    pub(super) fn settle(&self, id: i64, begun: Begun) {
        self.push(match begun.moved {
            Some(_) => Unwanted { unsettled: Some(begun), ..Unwanted::unhurried(id) },
            None => Unwanted::new(id),
        });
    }

    /// Waits while too many leases are to be revoked.
    pub(crate) async fn wait_for_room(&self, until: Instant) -> Result<(), Failure> {
        loop {
            let mut room = pin!(self.room.notified());
            room.as_mut().enable();
            if self.backlog.load(Ordering::Relaxed) < BACKLOG_MAX {
                return Ok(());
            }
            timeout_at(until, room).await.map_err(|_| {
                Failure::NotSent("etcd is too slow to revoke the leases of ended locks".into())
            })?;
        }
    }

    /// Waits until all leases are revoked, but not for long.
    pub(crate) async fn close(&self) {
        let until = Instant::now() + CLOSE_TIMEOUT;
        self.closing.cancel();
        while self.left.load(Ordering::Relaxed) > 0 && Instant::now() < until {
            sleep(CLOSE_POLL).await;
        }
        let left = self.left.load(Ordering::Relaxed);
        if left > 0 {
            warn!(
                left,
                "leases without a lock could not be revoked in time; their TTL ends them"
            );
        }
    }

    /// How many leases are not revoked yet.
    #[cfg(test)]
    pub(super) fn left(&self) -> usize {
        self.left.load(Ordering::Relaxed)
    }

    fn push(&self, unwanted: Unwanted) {
        // A key without a lease has lease 0.
        if unwanted.id == 0 {
            return;
        }
        self.left.fetch_add(1, Ordering::Relaxed);
        self.backlog.fetch_add(usize::from(unwanted.is_backlog), Ordering::Relaxed);
        self.send(unwanted);
    }

    fn send(&self, unwanted: Unwanted) {
        let is_backlog = unwanted.is_backlog;
        if self.queue.try_send(unwanted).is_err() {
            self.done(is_backlog);
            warn!("too many leases are to be revoked; one is left to its TTL");
        }
    }

    /// Notes that a lease is revoked, or left to its TTL.
    fn done(&self, is_backlog: bool) {
        self.left.fetch_sub(1, Ordering::Relaxed);
        if is_backlog {
            self.leave_backlog();
        }
    }

    fn leave_backlog(&self) {
        if self.backlog.fetch_sub(1, Ordering::Relaxed) == BACKLOG_MAX {
            self.room.notify_waiters();
        }
    }

    async fn run(self: Arc<Self>, mut queued: mpsc::Receiver<Unwanted>) {
        let queued = poll_fn(|context| queued.poll_recv(context));
        let revoke = |lease| Arc::clone(&self).revoke_surely(lease);
        queued.for_each_concurrent(IN_FLIGHT_MAX, revoke).await;
    }

    /// Revokes a lease, also after an outage of any length.
    async fn revoke_surely(self: Arc<Self>, unwanted: Unwanted) {
        let Unwanted { id, is_backlog, may_come_late, ref unsettled } = unwanted;
        loop {
            let until = Instant::now() + REVOKE_TIMEOUT;
            let revoked = match unsettled {
                None => self.revoke(id, until).await,
                Some(begun) => self.revoke_other(id, begun, until).await,
            };
            match revoked {
                // When etcd can no longer carry out its grant.
                Ok(false) if may_come_late => {
                    return self.again_later(Unwanted { may_come_late: false, ..unwanted });
                }
                Ok(_) => return self.done(is_backlog),
                // Others must not wait for space: they need none.
                Err(Failure::OutOfSpace(_)) if !self.closing.is_cancelled() => {
                    return self.again_later(unwanted);
                }
                Err(failure) if failure.is_passing() => sleep(RETRY_DELAY).await,
                Err(refused) => {
                    warn!(why = %refused.why(), "a lease could not be revoked; its TTL ends it");
                    return self.done(is_backlog);
                }
            }
        }
    }

    /// Revokes a lease after a while, or when the store closes. No new lock waits for it.
    fn again_later(self: Arc<Self>, mut unwanted: Unwanted) {
        if std::mem::take(&mut unwanted.is_backlog) {
            self.leave_backlog();
        }
        let background = self.background.clone();
        background.spawn(async move {
            let Ok(_permit) = self.late.try_acquire() else {
                self.done(false);
                warn!("too many leases are to be revoked later; one is left to its TTL");
                return;
            };
            let _ = timeout(GRANT_LATE_MAX, self.closing.cancelled()).await;
            self.send(unwanted);
        });
    }

    /// Revokes a lease; returns whether there was one.
    pub(super) async fn revoke(&self, id: i64, until: Instant) -> Result<bool, Failure> {
        let mut delays = delays();
        loop {
            let link = self.connection.link(until).await?;
            let mut client = link.client().lease_client();
            match self.connection.answer(&link, until, Box::pin(client.revoke(id))).await {
                Ok(_) => return Ok(true),
                Err(Failure::Refused(Refusal::LeaseNotFound, _)) => return Ok(false),
                Err(failure) if failure.is_passing() => {
                    if !pause_before(until, delays.next_delay()).await {
                        return Err(failure);
                    }
                }
                Err(refused) => return Err(refused),
            }
        }
    }

    /// Revokes the lease that a grant does not lie under after a move.
    async fn revoke_other(
        &self,
        id: i64,
        begun: &Begun,
        until: Instant,
    ) -> Result<bool, Failure> {
        let unwanted = match (self.resolve(id, begun, true, until).await?, begun.moved) {
            (Resolved::Applied(_), Some((_, before))) => before,
            _ => id,
        };
        // A key without a lease has lease 0.
        if unwanted == 0 { Ok(true) } else { self.revoke(unwanted, until).await }
    }

    /// Finds out what became of a write under a lease whose answer was lost. If it was not
    /// applied, it may still be on its way: a proposal can outlive its connection. So the lease
    /// of a new key is revoked. A key that was to be moved is written again, unchanged, so that
    /// the move finds another revision. Then the key is read again.
    pub(super) async fn resolve(
        &self,
        id: i64,
        begun: &Begun,
        may_come: bool,
        until: Instant,
    ) -> Result<Resolved, Failure> {
        let revision = |pair: &KeyValue| Revision::from_etcd(pair.mod_revision());
        let mut settled = (!may_come).then_some(Resolved::Never);
        loop {
            let get = vec![TxnOp::get(&*begun.key, None)];
            let read = self.connection.read(get, until).await?;
            let found = match read.op_responses().into_iter().next() {
                Some(TxnOpResponse::Get(mut get)) => get.take_kvs().into_iter().next(),
                _ => None,
            };
            if let Some(pair) = found.as_ref().filter(|pair| pair.lease() == id) {
                return Ok(Resolved::Applied(revision(pair)));
            }
            if let Some(settled) = settled {
                return Ok(settled);
            }
            settled = match (begun.moved, &found) {
                (None, _) => {
                    self.revoke(id, until).await?;
                    Some(Resolved::Revoked)
                }
                (Some((compared, _)), Some(pair)) if revision(pair) == compared => {
                    match self.fence(&begun.key, pair, until).await {
                        Ok(()) => Some(Resolved::Never),
                        Err(failure) if failure.is_passing() && Instant::now() < until => None,
                        Err(failure) => return Err(failure),
                    }
                }
                _ => return Ok(Resolved::Never),
            };
        }
    }

    /// Writes a key again as it is, if it is unchanged.
    async fn fence(&self, key: &str, pair: &KeyValue, until: Instant) -> Result<(), Failure> {
        let options = PutOptions::new().with_lease(pair.lease());
        let fence = Txn::new()
            .when([
                Compare::mod_revision(key, CompareOp::Equal, pair.mod_revision()),
                Compare::lease(key, CompareOp::Equal, pair.lease()),
            ])
            .and_then([TxnOp::put(key, pair.value(), Some(options))]);
        let link = self.connection.link(until).await?;
        let mut client = link.client().kv_client();
        self.connection.answer(&link, until, Box::pin(client.txn(fence))).await.map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::stock::Stock;

    /// Trap: etcd 37
    #[tokio::test(start_paused = true)]
    async fn no_lease_is_forgotten_and_new_ones_wait_for_old_ones_to_be_revoked() {
        let revocations = Arc::clone(&Stock::offline().revocations);
        for id in 1..=20_000 {
            revocations.later(id);
            tokio::task::yield_now().await;
        }
        sleep(2 * REVOKE_TIMEOUT).await;
        assert_eq!(revocations.left(), 20_000);
        let refused = revocations.wait_for_room(Instant::now() + REVOKE_TIMEOUT).await;
        let refused = refused.unwrap_err();
        assert!(refused.why().contains("too slow to revoke"), "{refused:?}");
    }
}

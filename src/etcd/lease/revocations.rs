//! Leases that are to be revoked, in the background and for as long as it takes.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::{StreamExt as _, stream::poll_fn};
use tokio::{
    sync::{Notify, Semaphore, mpsc},
    time::{Instant, sleep, timeout, timeout_at},
};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::{
    background::Background,
    client::{connection::Connection, failure::Failure},
    lease::resolve::{Begun, revoke},
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

/// A lease that is to be revoked.
pub(super) struct Unwanted {
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
    /// New locks wait while too many of these are left.
    pub(super) fn new(id: i64) -> Self {
        Self { id, is_backlog: true, may_come_late: false, unsettled: None }
    }

    /// No new lock waits for it.
    pub(super) fn unhurried(id: i64) -> Self {
        Self { is_backlog: false, ..Self::new(id) }
    }

    /// Its grant was asked for and not answered: it is revoked again later, if etcd does not
    /// know it yet.
    pub(super) fn if_granted(id: i64) -> Self {
        Self { may_come_late: true, ..Self::new(id) }
    }

    /// A write under it may have been applied, or come to be. A new key goes with the lease; of
    /// the two leases of a grant that was to be moved, the one is revoked that the key does not
    /// lie under.
    pub(super) fn after(id: i64, begun: Begun) -> Self {
        match begun.moved {
            Some(_) => Self { unsettled: Some(begun), ..Self::unhurried(id) },
            None => Self::new(id),
        }
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
    /// Wakes callers that wait until the backlog is no longer full.
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

    /// Revokes a lease in the background.
    pub(super) fn push(&self, unwanted: Unwanted) {
        // A key without a lease has lease 0.
        if unwanted.id == 0 {
            return;
        }
        self.left.fetch_add(1, Ordering::Relaxed);
        self.backlog.fetch_add(usize::from(unwanted.is_backlog), Ordering::Relaxed);
        self.send(unwanted);
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

    /// Waits until all leases are revoked, within [`CLOSE_TIMEOUT`].
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

    /// Revokes a lease, retrying through outages of any length.
    async fn revoke_surely(self: Arc<Self>, unwanted: Unwanted) {
        let Unwanted { id, is_backlog, may_come_late, ref unsettled } = unwanted;
        loop {
            let until = Instant::now() + REVOKE_TIMEOUT;
            let revoked = match unsettled {
                None => revoke(&self.connection, id, until).await,
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

    /// Revokes the lease that a grant does not lie under after a move.
    async fn revoke_other(
        &self,
        id: i64,
        begun: &Begun,
        until: Instant,
    ) -> Result<bool, Failure> {
        let applied = begun.resolve(&self.connection, id, true, until).await?;
        let unwanted = match (applied, begun.moved) {
            (Some(_), Some((_, before))) => before,
            _ => id,
        };
        // A key without a lease has lease 0.
        if unwanted == 0 { Ok(true) } else { revoke(&self.connection, unwanted, until).await }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config::Config, keys::Keys};

    /// Trap: etcd 37
    #[tokio::test(start_paused = true)]
    async fn no_lease_is_forgotten_and_new_ones_wait_for_old_ones_to_be_revoked() {
        let observer = leasehold_lock::observe::Unobserved::store();
        let connection =
            Arc::new(Connection::new(Config::offline(), &Keys::new("t"), observer));
        let revocations = Revocations::start(connection, &Background::default());
        for id in 1..=20_000 {
            revocations.push(Unwanted::new(id));
            tokio::task::yield_now().await;
        }
        sleep(2 * REVOKE_TIMEOUT).await;
        assert_eq!(revocations.left(), 20_000);
        let refused = revocations.wait_for_room(Instant::now() + REVOKE_TIMEOUT).await;
        let refused = refused.unwrap_err();
        assert!(refused.why().contains("too slow to revoke"), "{refused:?}");
    }
}

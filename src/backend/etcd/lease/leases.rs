//! Leases: taken from the pool or granted, and given back or revoked.

use std::{
    collections::VecDeque,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use etcd_client::{LeaseGrantOptions, LeaseTimeToLiveOptions};
use futures_util::{StreamExt as _, stream::poll_fn};
use parking_lot::{Mutex, MutexGuard};
use tokio::{
    sync::{Notify, Semaphore, mpsc},
    time::{Instant, interval, sleep, sleep_until, timeout_at},
};
use tracing::warn;
use uuid::Uuid;

use crate::{
    backend::etcd::{
        background::Background,
        client::{
            connection::{Connection, delays},
            failure::{Failure, Refusal, no_space},
        },
        lease::{
            keeper::{KeepError, Keeper},
            pool::{Lease, Pool},
        },
    },
    lock::Ttl,
};

/// Idle leases kept.
const KEPT_MAX: usize = 1_024;
/// Leases waiting to be revoked, beyond which no new ones are granted: etcd 3.5
/// and 3.6 revoke some 820 a second, and grant far more.
const BACKLOG_MAX: usize = 10_000;
/// Leases waiting to be revoked at all: as many as can have been granted before
/// the backlog was reached. Beyond it they are left to their TTL.
const REVOKED_MAX: usize = 1_000_000;
/// Revocations in flight: each is a raft entry of its own, which other writes
/// have to wait for.
const REVOKING_MAX: usize = 16;
/// Lease grants in flight: each is a raft entry of its own, and a burst of them
/// would hold up all other writes.
const GRANTING_MAX: usize = 8;
/// The shortest grant, in seconds: etcd's shortest lease is 2 s by default, and
/// a lease lasts a second longer than its grant.
const GRANT_MIN_S: u64 = 2;
const CHORES_INTERVAL: Duration = Duration::from_millis(200);
/// How long an idle lease is tried to be kept alive.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(3);
/// How long closing may take to give leases back.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
const CLOSE_POLL: Duration = Duration::from_millis(10);
/// Idle leases are kept alive after all that holds something and is needed earlier.
const UNHURRIED: Duration = Duration::from_secs(60);
/// After which time etcd has carried out a grant whose answer was lost, or never will.
/// It gives up waiting for its own proposals after 7 s by default.
const GRANT_LATE_MAX: Duration = Duration::from_secs(10);
/// How many such leases are revoked again; more are left to their TTL.
const LATE_MAX: usize = 10_000;
/// How long one try to revoke a lease may take.
const REVOKE_TIMEOUT: Duration = Duration::from_secs(10);
/// What longer TTLs are rounded up to multiples of, in seconds. The greatest one
/// that is at most a 25th of the TTL is used.
const STEPS_S: [u64; 8] = [1_800, 600, 300, 60, 30, 10, 5, 1];

/// The TTL of the lease of a grant of `ttl`, in seconds. A TTL above two minutes
/// is rounded up by at most a 25th, so that leases can be reused where every
/// grant has another TTL. The usual ones (5 min, 1 h, 24 h) stay as they are.
pub(crate) fn lease_ttl_s(ttl: Ttl) -> u64 {
    let asked = ttl.as_secs_ceil().max(GRANT_MIN_S);
    let step = STEPS_S.into_iter().find(|step| 25 * step <= asked).unwrap_or(1);
    asked.next_multiple_of(step) + 1
}

/// A lease that is to be revoked.
#[derive(Clone, Copy)]
struct Unwanted {
    id: i64,
    /// Whether new locks have to wait for it, if there are too many.
    is_backlog: bool,
    /// Whether etcd may grant it only after it was asked to revoke it.
    may_come_late: bool,
}

impl Unwanted {
    fn new(id: i64) -> Self {
        Self { id, is_backlog: true, may_come_late: false }
    }
}

/// See the module.
pub(crate) struct Leases {
    connection: Arc<Connection>,
    keeper: Keeper,
    pool: Mutex<Pool>,
    revoked: mpsc::Sender<Unwanted>,
    /// How many of those are not revoked yet.
    unrevoked: AtomicUsize,
    /// How many of these are due to ended locks: new ones wait for them.
    backlog: AtomicUsize,
    /// Tells that the backlog is no longer full.
    room: Notify,
    /// Places for lease grants in flight.
    granting: Semaphore,
    /// Leases whose grant may come late, and when they are to be revoked again.
    late: Mutex<VecDeque<(Instant, i64)>>,
}

impl Leases {
    /// Starts what keeps idle leases alive; its tasks end with `background`.
    pub(crate) fn start(
        connection: Arc<Connection>,
        keeper: Keeper,
        background: &Background,
    ) -> Arc<Self> {
        let (revoked, to_revoke) = mpsc::channel(REVOKED_MAX);
        let leases = Arc::new(Self {
            connection,
            keeper,
            pool: Mutex::new(Pool::new(KEPT_MAX)),
            revoked,
            unrevoked: AtomicUsize::new(0),
            backlog: AtomicUsize::new(0),
            room: Notify::new(),
            granting: Semaphore::new(GRANTING_MAX),
            late: Mutex::default(),
        });
        background.spawn(Arc::clone(&leases).keep(background.clone()));
        background.spawn(Arc::clone(&leases).revoke_all(to_revoke));
        leases
    }

    /// A lease of `asked_s` seconds for a new grant, with the whole TTL of it to
    /// give: kept and fresh, or refreshed, or new. A new one waits while too many
    /// are still to be revoked.
    pub(crate) async fn take(
        self: &Arc<Self>,
        asked_s: u64,
        until: Instant,
    ) -> Result<Lease, Failure> {
        match self.take_kept(asked_s, until).await? {
            Some(lease) => Ok(lease),
            None => {
                Box::pin(async {
                    self.wait_for_room(until).await?;
                    self.grant(asked_s, until).await
                })
                .await
            }
        }
    }

    /// A lease for a grant that has one already, which is free afterwards: it does
    /// not wait for others to be revoked.
    pub(crate) async fn take_another(
        self: &Arc<Self>,
        asked_s: u64,
        until: Instant,
    ) -> Result<Lease, Failure> {
        match self.take_kept(asked_s, until).await? {
            Some(lease) => Ok(lease),
            None => Box::pin(self.grant(asked_s, until)).await,
        }
    }

    async fn take_kept(
        self: &Arc<Self>,
        asked_s: u64,
        until: Instant,
    ) -> Result<Option<Lease>, Failure> {
        loop {
            let Some(lease) = self.pool().take(asked_s) else { return Ok(None) };
            if self.is_of_before(&lease) {
                self.revoke_later(lease.id);
                continue;
            }
            if lease.is_fresh(Instant::now()) {
                return Ok(Some(lease));
            }
            let lent = Lent { leases: self, lease: Some(lease) };
            match Box::pin(lent.refresh(until)).await? {
                // The answer may be the first that names another term.
                Some(lease) if self.is_of_before(&lease) => self.revoke_later(lease.id),
                Some(lease) => return Ok(Some(lease)),
                None => {}
            }
        }
    }

    /// Gives back a lease under which nothing lives and nothing will: it was
    /// never used, or what it held was deleted by a write known to have
    /// happened.
    pub(crate) fn give(&self, lease: Lease) {
        if self.is_of_before(&lease) {
            // After an election that is one for each grant that was moved, and no new
            // lock is to wait for them.
            self.revoke(Unwanted { is_backlog: false, ..Unwanted::new(lease.id) });
            return;
        }
        if let Err(surplus) = self.pool().give(lease, Instant::now()) {
            self.revoke_later(surplus.id);
        }
    }

    /// Revokes a lease in the background, for as long as it takes.
    pub(crate) fn revoke_later(&self, id: i64) {
        self.revoke(Unwanted::new(id));
    }

    fn revoke(&self, unwanted: Unwanted) {
        if unwanted.id == 0 {
            return;
        }
        let backlog = usize::from(unwanted.is_backlog);
        self.unrevoked.fetch_add(1, Ordering::Relaxed);
        self.backlog.fetch_add(backlog, Ordering::Relaxed);
        if self.revoked.try_send(unwanted).is_err() {
            self.unrevoked.fetch_sub(1, Ordering::Relaxed);
            self.backlog.fetch_sub(backlog, Ordering::Relaxed);
            warn!("too many leases are to be revoked; one is left to its TTL");
        }
    }

    /// Waits while too many leases are to be revoked.
    async fn wait_for_room(&self, until: Instant) -> Result<(), Failure> {
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

    /// Revokes a lease, and with it whatever it holds or might come to hold: no
    /// write that is still on its way can use it afterwards.
    pub(crate) async fn revoke_now(&self, id: i64, until: Instant) -> Result<(), Failure> {
        self.revoke_found(id, until).await.map(|_| ())
    }

    /// The same; returns whether there was such a lease.
    async fn revoke_found(&self, id: i64, until: Instant) -> Result<bool, Failure> {
        let mut delays = delays();
        loop {
            let link = self.connection.link(until).await?;
            let mut client = link.client().lease_client();
            match self.connection.answer(&link, until, Box::pin(client.revoke(id))).await {
                Ok(_) => return Ok(true),
                Err(Failure::Refused(Refusal::LeaseNotFound, _)) => return Ok(false),
                Err(failure) if failure.is_passing() => {
                    let retry = Instant::now() + delays.next().unwrap_or(CHORES_INTERVAL);
                    if retry >= until {
                        return Err(failure);
                    }
                    sleep_until(retry).await;
                }
                Err(refused) => return Err(refused),
            }
        }
    }

    /// What lies under a lease. That it fails says nothing of the connection: an
    /// answer of more than 4 MiB, some 40,000 keys, is not taken.
    pub(crate) async fn keys_under(
        &self,
        id: i64,
        until: Instant,
    ) -> Result<Vec<String>, Failure> {
        let link = self.connection.link(until).await?;
        let options = LeaseTimeToLiveOptions::new().with_keys();
        let mut client = link.client().lease_client();
        let asked = timeout_at(until, client.time_to_live(id, Some(options)));
        let answer = asked
            .await
            .map_err(|_| Failure::Unknown("etcd did not answer in time".into()))?
            .map_err(Failure::from)?;
        let utf8 = |key: &Vec<u8>| String::from_utf8(key.clone()).ok();
        Ok(answer.keys().iter().filter_map(utf8).collect())
    }

    /// Grants a lease. Its ID is chosen here, so that one whose answer is lost, or
    /// that nobody waits for any more, can be revoked.
    pub(crate) async fn grant(&self, asked_s: u64, until: Instant) -> Result<Lease, Failure> {
        let ttl = i64::try_from(asked_s).unwrap_or(i64::MAX);
        let mut delays = delays();
        let _place = timeout_at(until, self.granting.acquire()).await.map_err(|_| {
            Failure::NotSent("too many leases are being granted at once".into())
        })?;
        loop {
            let link = self.connection.link(until).await?;
            let mut client = link.client().lease_client();
            // Before the request: a lease whose era is taken to be older than it is
            // is only used too little.
            let (sent, era) = (Instant::now(), link.era());
            if self.connection.is_out_of_space(sent) {
                return Err(Failure::NotSent(no_space()));
            }
            let mut new = New { leases: self, id: random_id() };
            let options = Some(LeaseGrantOptions::new().with_id(new.id));
            let request = Box::pin(client.grant(ttl, options));
            match self.connection.answer(&link, until, request).await {
                Ok(granted) => {
                    let ttl_s = u64::try_from(granted.ttl()).unwrap_or(asked_s);
                    let id = new.keep();
                    return Ok(Lease { id, asked_s, ttl_s, refreshed: sent, era });
                }
                // It is somebody else's.
                Err(Failure::Refused(Refusal::LeaseExists, _)) => {
                    let _ = new.keep();
                }
                Err(Failure::OutOfSpace(why)) => return Err(Failure::NotSent(why)),
                Err(failure) if failure.is_passing() => {
                    if matches!(failure, Failure::NotSent(_)) {
                        let _ = new.keep();
                    }
                    let retry = Instant::now() + delays.next().unwrap_or(CHORES_INTERVAL);
                    if retry >= until {
                        return Err(Failure::NotSent(Arc::clone(failure.why())));
                    }
                    sleep_until(retry).await;
                }
                Err(refused) => {
                    let _ = new.keep();
                    return Err(refused);
                }
            }
        }
    }

    /// Revokes all idle leases, and waits for those that are being revoked.
    pub(crate) async fn close(&self) {
        let until = Instant::now() + CLOSE_TIMEOUT;
        let idle = self.pool().drain();
        for id in idle {
            self.revoke_later(id);
        }
        // All of them: nobody does it later.
        self.revoke_again(until + GRANT_LATE_MAX);
        while self.unrevoked.load(Ordering::Relaxed) > 0 && Instant::now() < until {
            sleep(CLOSE_POLL).await;
        }
        let left = self.unrevoked.load(Ordering::Relaxed);
        if left > 0 {
            warn!(
                left,
                "leases without a lock could not be revoked in time; their TTL ends them"
            );
        }
    }

    /// Whether the lease was granted in an earlier era, beyond which an idle one is
    /// not to be used.
    pub(crate) fn is_of_before(&self, lease: &Lease) -> bool {
        lease.era != self.connection.era()
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock()
    }

    async fn keep(self: Arc<Self>, background: Background) {
        let mut ticks = interval(CHORES_INTERVAL);
        loop {
            ticks.tick().await;
            self.revoke_again(Instant::now());
            let chores = self.pool().chores(Instant::now(), self.connection.era());
            for id in chores.revoke {
                self.revoke_later(id);
            }
            for id in chores.refresh {
                let leases = Arc::clone(&self);
                background.spawn(async move {
                    let until = Instant::now() + REFRESH_TIMEOUT;
                    match leases.keeper.keep_alive(id, until + UNHURRIED, until).await {
                        Ok(kept) => leases.pool().refreshed(id, kept.sent),
                        Err(KeepError::Dead) => leases.pool().died(id),
                        Err(KeepError::Failed(_)) => {}
                    }
                });
            }
        }
    }

    async fn revoke_all(self: Arc<Self>, mut to_revoke: mpsc::Receiver<Unwanted>) {
        let unwanted = poll_fn(|context| to_revoke.poll_recv(context));
        unwanted.for_each_concurrent(REVOKING_MAX, |lease| self.revoke_surely(lease)).await;
    }

    /// Plans to revoke a lease again, when etcd can no longer carry out its grant.
    fn plan_again(&self, id: i64) {
        let mut late = self.late();
        if late.len() >= LATE_MAX {
            drop(late);
            warn!("too many lease grants lost their answer; one lease is left to its TTL");
            return;
        }
        late.push_back((Instant::now() + GRANT_LATE_MAX, id));
    }

    /// Revokes the leases again for which that is planned until `by`.
    fn revoke_again(&self, by: Instant) {
        let mut late = self.late();
        let due = late.partition_point(|(at, _)| *at <= by);
        let due: Vec<_> = late.drain(..due).collect();
        drop(late);
        for (_, id) in due {
            self.revoke(Unwanted { is_backlog: false, ..Unwanted::new(id) });
        }
    }

    fn late(&self) -> MutexGuard<'_, VecDeque<(Instant, i64)>> {
        self.late.lock()
    }

    /// Revokes a lease, also after an outage of any length.
    async fn revoke_surely(&self, unwanted: Unwanted) {
        loop {
            match self.revoke_found(unwanted.id, Instant::now() + REVOKE_TIMEOUT).await {
                Ok(false) if unwanted.may_come_late => {
                    self.plan_again(unwanted.id);
                    break;
                }
                Ok(_) => break,
                Err(failure) if failure.is_passing() => sleep(CHORES_INTERVAL).await,
                Err(refused) => {
                    warn!(why = %refused.why(), "a lease could not be revoked; its TTL ends it");
                    break;
                }
            }
        }
        self.unrevoked.fetch_sub(1, Ordering::Relaxed);
        if unwanted.is_backlog && self.backlog.fetch_sub(1, Ordering::Relaxed) == BACKLOG_MAX {
            self.room.notify_waiters();
        }
    }
}

/// A lease that is being granted: revoked unless it is kept, also if it is granted late.
struct New<'a> {
    leases: &'a Leases,
    id: i64,
}

impl New<'_> {
    /// Its ID; it is not revoked.
    fn keep(&mut self) -> i64 {
        std::mem::take(&mut self.id)
    }
}

impl Drop for New<'_> {
    fn drop(&mut self) {
        self.leases.revoke(Unwanted { may_come_late: true, ..Unwanted::new(self.id) });
    }
}

/// An ID that nobody else chooses: positive, as etcd's own are.
fn random_id() -> i64 {
    let (random, _) = Uuid::new_v4().as_u64_pair();
    i64::try_from(random >> 1).unwrap_or(1).max(1)
}

/// An idle lease that is being refreshed: back to the pool if that is given up.
struct Lent<'a> {
    leases: &'a Leases,
    lease: Option<Lease>,
}

impl Lent<'_> {
    /// The lease, fresh; `None` if it is dead.
    async fn refresh(mut self, until: Instant) -> Result<Option<Lease>, Failure> {
        let Some(mut lease) = self.lease else { return Ok(None) };
        match self.leases.keeper.keep_alive(lease.id, until, until).await {
            Ok(kept) => {
                self.lease = None;
                lease.refreshed = kept.sent;
                lease.ttl_s = kept.ttl_s.max(lease.asked_s);
                Ok(Some(lease))
            }
            Err(KeepError::Dead) => {
                self.lease = None;
                Ok(None)
            }
            Err(KeepError::Failed(why)) => Err(Failure::NotSent(why)),
        }
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        if let Some(lease) = self.lease.take() {
            self.leases.give(lease);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        backend::etcd::{config::Config, keys::Keys},
        properties::Properties,
    };

    fn ttl(seconds: u64) -> Ttl {
        let day = Duration::from_secs(24 * 60 * 60);
        Ttl::new(Duration::from_secs(seconds), day).unwrap()
    }

    #[test]
    fn a_long_ttl_is_rounded_up_by_a_25th_at_most() {
        let mut classes = std::collections::BTreeSet::new();
        for asked in 2..=24 * 60 * 60 {
            let given = lease_ttl_s(ttl(asked)) - 1;
            assert!(given >= asked && 25 * (given - asked) <= asked, "{asked}: {given}");
            classes.insert(given);
        }
        assert!(classes.len() < 500, "{}", classes.len());
        for usual in [30, 60, 300, 600, 900, 1_800, 3_600, 6 * 3_600, 12 * 3_600, 24 * 3_600] {
            assert_eq!(lease_ttl_s(ttl(usual)) - 1, usual);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_lease_is_forgotten_and_new_ones_wait_for_old_ones_to_be_revoked() {
        let mut properties =
            Properties::new([("endpoints".to_owned(), "127.0.0.1:1".to_owned())]);
        let config = Config::read(&mut properties);
        let background = Background::default();
        let connection = Arc::new(Connection::new(config, &Keys::new("t")));
        let keeper = Keeper::start(&connection, &background);
        let leases = Leases::start(connection, keeper, &background);
        for id in 1..=20_000 {
            leases.revoke_later(id);
            tokio::task::yield_now().await;
        }
        sleep(2 * REVOKE_TIMEOUT).await;
        assert_eq!(leases.unrevoked.load(Ordering::Relaxed), 20_000);
        let refused = leases.take(31, Instant::now() + REVOKE_TIMEOUT).await.unwrap_err();
        assert!(refused.why().contains("too slow to revoke"), "{refused:?}");
        background.close().await;
    }
}

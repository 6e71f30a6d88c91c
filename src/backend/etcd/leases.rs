//! Leases: taken from the pool or granted, and given back or revoked.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use etcd_client::LeaseTimeToLiveOptions;
use tokio::{
    sync::{Semaphore, mpsc},
    time::{Instant, interval, sleep, sleep_until, timeout, timeout_at},
};
use tracing::debug;

use super::{
    background::Background,
    connection::{Connection, delays},
    failure::{Failure, Refusal},
    keeper::{KeepError, Keeper},
    pool::{Lease, Pool},
};
use crate::lock::Ttl;

/// Idle leases kept.
const KEPT_MAX: usize = 1_024;
/// Leases waiting to be revoked; beyond it they are left to their TTL.
const REVOKED_MAX: usize = 10_000;
/// Lease grants in flight: each is a raft entry of its own, and a burst of them
/// would hold up all other writes.
const GRANTING_MAX: usize = 8;
/// The shortest grant, in seconds: etcd's shortest lease is 2 s by default, and
/// a lease lasts a second longer than its grant.
const GRANT_MIN_S: u64 = 2;
const CHORES_INTERVAL: Duration = Duration::from_millis(200);
/// How long closing may take to give leases back.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);
const CLOSE_POLL: Duration = Duration::from_millis(10);
/// Idle leases are kept alive after all that holds something and is needed earlier.
const UNHURRIED: Duration = Duration::from_secs(60);
/// How long one lease is tried to be revoked; then its TTL ends it.
const REVOKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The TTL of the lease of a grant of `ttl`, in seconds.
pub(super) fn lease_ttl_s(ttl: Ttl) -> u64 {
    ttl.as_secs_ceil().max(GRANT_MIN_S) + 1
}

/// See the module.
pub(super) struct Leases {
    connection: Arc<Connection>,
    keeper: Keeper,
    pool: Mutex<Pool>,
    revoked: mpsc::Sender<i64>,
    /// How many of those are not revoked yet.
    unrevoked: AtomicUsize,
    /// Places for lease grants in flight.
    granting: Semaphore,
}

impl Leases {
    /// Starts what keeps idle leases alive; its tasks end with `background`.
    pub(super) fn start(
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
            granting: Semaphore::new(GRANTING_MAX),
        });
        background.spawn(Arc::clone(&leases).keep(background.clone()));
        background.spawn(Arc::clone(&leases).revoke_all(to_revoke));
        leases
    }

    /// A lease of `asked_s` seconds with the whole TTL of a grant to give: kept
    /// and fresh, or refreshed, or new.
    pub(super) async fn take(
        self: &Arc<Self>,
        asked_s: u64,
        until: Instant,
    ) -> Result<Lease, Failure> {
        loop {
            let Some(lease) = self.pool().take(asked_s) else {
                return Box::pin(self.grant(asked_s, until)).await;
            };
            if self.is_of_before(&lease) {
                self.revoke_later(lease.id);
                continue;
            }
            if lease.is_fresh(Instant::now()) {
                return Ok(lease);
            }
            let lent = Lent { leases: self, lease: Some(lease) };
            match Box::pin(lent.refresh(until)).await? {
                // The answer may be the first that names another term.
                Some(lease) if self.is_of_before(&lease) => self.revoke_later(lease.id),
                Some(lease) => return Ok(lease),
                None => {}
            }
        }
    }

    /// Gives back a lease under which nothing lives and nothing will: it was
    /// never used, or what it held was deleted by a write known to have
    /// happened.
    pub(super) fn give(&self, lease: Lease) {
        if self.is_of_before(&lease) {
            self.revoke_later(lease.id);
            return;
        }
        if let Err(surplus) = self.pool().give(lease, Instant::now()) {
            self.revoke_later(surplus.id);
        }
    }

    /// Revokes a lease in the background; its TTL ends it if that fails.
    pub(super) fn revoke_later(&self, id: i64) {
        if id == 0 {
            return;
        }
        self.unrevoked.fetch_add(1, Ordering::Relaxed);
        if self.revoked.try_send(id).is_err() {
            self.unrevoked.fetch_sub(1, Ordering::Relaxed);
            debug!("too many leases are to be revoked; one is left to its TTL");
        }
    }

    /// Revokes a lease, and with it whatever it holds or might come to hold: no
    /// write that is still on its way can use it afterwards.
    pub(super) async fn revoke(&self, id: i64, until: Instant) -> Result<(), Failure> {
        let mut delays = delays();
        loop {
            let link = self.connection.link(until).await?;
            let mut client = link.client().lease_client();
            match self.connection.answer(&link, until, Box::pin(client.revoke(id))).await {
                Ok(_) | Err(Failure::Refused(Refusal::LeaseNotFound, _)) => return Ok(()),
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
    pub(super) async fn keys_under(
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

    /// Grants a lease. One whose answer is lost is left to its TTL: nothing
    /// lives under it.
    pub(super) async fn grant(&self, asked_s: u64, until: Instant) -> Result<Lease, Failure> {
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
            match self.connection.answer(&link, until, Box::pin(client.grant(ttl, None))).await
            {
                Ok(granted) => {
                    let ttl_s = u64::try_from(granted.ttl()).unwrap_or(asked_s);
                    let id = granted.id();
                    return Ok(Lease { id, asked_s, ttl_s, refreshed: sent, era });
                }
                Err(failure) if failure.is_passing() => {
                    let retry = Instant::now() + delays.next().unwrap_or(CHORES_INTERVAL);
                    if retry >= until {
                        return Err(Failure::NotSent(Arc::clone(failure.why())));
                    }
                    sleep_until(retry).await;
                }
                Err(refused) => return Err(refused),
            }
        }
    }

    /// Revokes all idle leases.
    pub(super) async fn close(&self) {
        let until = Instant::now() + CLOSE_TIMEOUT;
        while self.unrevoked.load(Ordering::Relaxed) > 0 && Instant::now() < until {
            sleep(CLOSE_POLL).await;
        }
        let idle = self.pool().drain();
        let revocations = idle.into_iter().map(|id| self.revoke(id, until));
        let _ = timeout(CLOSE_TIMEOUT, futures_util::future::join_all(revocations)).await;
    }

    /// Whether the lease was granted in an earlier era, beyond which an idle one is
    /// not to be used.
    pub(super) fn is_of_before(&self, lease: &Lease) -> bool {
        lease.era != self.connection.era()
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn keep(self: Arc<Self>, background: Background) {
        let mut ticks = interval(CHORES_INTERVAL);
        loop {
            ticks.tick().await;
            let chores = self.pool().chores(Instant::now(), self.connection.era());
            for id in chores.revoke {
                self.revoke_later(id);
            }
            for id in chores.refresh {
                let leases = Arc::clone(&self);
                background.spawn(async move {
                    let until = Instant::now() + CLOSE_TIMEOUT;
                    match leases.keeper.keep_alive(id, until + UNHURRIED, until).await {
                        Ok(kept) => leases.pool().refreshed(id, kept.sent),
                        Err(KeepError::Dead) => leases.pool().died(id),
                        Err(KeepError::Failed(_)) => {}
                    }
                });
            }
        }
    }

    async fn revoke_all(self: Arc<Self>, mut to_revoke: mpsc::Receiver<i64>) {
        while let Some(id) = to_revoke.recv().await {
            if let Err(failure) = self.revoke(id, Instant::now() + REVOKE_TIMEOUT).await {
                debug!(why = %failure.why(), "a lease could not be revoked; its TTL ends it");
            }
            self.unrevoked.fetch_sub(1, Ordering::Relaxed);
        }
    }
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

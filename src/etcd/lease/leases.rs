//! Leases for new grants: taken from the pool or granted, and given back.

use std::{sync::Arc, time::Duration};

use etcd_client::{LeaseGrantOptions, LeaseTimeToLiveOptions};
use leasehold_lock::{self as lock, Ttl};
use leasehold_util::retry::pause_before;
use parking_lot::{Mutex, MutexGuard};
use tokio::{
    sync::Semaphore,
    time::{Instant, interval, timeout_at},
};
use uuid::Uuid;

use crate::{
    background::Background,
    client::{
        connection::{Connection, delays},
        failure::{Failure, Refusal, no_space},
    },
    lease::{
        keeper::{KeepError, Keeper},
        pool::{Lease, Pool, SLACK},
        revocations::Revocations,
        taken::{Move, Taken},
    },
};

/// Idle leases kept.
const KEPT_MAX: usize = 1_024;
/// Lease grants in flight. Each is a raft entry of its own, and a burst of them would delay
/// all other writes.
const GRANTING_MAX: usize = 8;
/// The shortest grant, in seconds. etcd's shortest lease is 2 s by default, and a lease
/// lasts a second longer than its grant.
const GRANT_MIN_S: u64 = 2;
const CHORES_INTERVAL: Duration = Duration::from_millis(200);
/// How long to try to keep an idle lease alive.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(3);
/// Idle leases are kept alive after the leases of grants that are needed earlier.
const UNHURRIED: Duration = Duration::from_secs(60);
/// The multiples that longer TTLs are rounded up to, in seconds: the greatest that is at
/// most a 25th of the TTL.
const STEPS_S: [u64; 8] = [1_800, 600, 300, 60, 30, 10, 5, 1];

/// The TTL of the lease of a grant of `ttl`, in seconds. A TTL above two minutes is rounded
/// up by at most a 25th, so that leases can be reused even if every grant has another TTL.
/// The usual ones (5 min, 1 h, 24 h) stay as they are.
pub(crate) fn lease_ttl_s(ttl: Ttl) -> u64 {
    let asked = ttl.as_secs_ceil().max(GRANT_MIN_S);
    let step = STEPS_S.into_iter().find(|step| 25 * step <= asked).unwrap_or(1);
    asked.next_multiple_of(step) + 1
}

/// The leases of this process.
pub(crate) struct Leases {
    connection: Arc<Connection>,
    keeper: Keeper,
    pool: Mutex<Pool>,
    revocations: Arc<Revocations>,
    /// Limits the lease grants in flight.
    granting: Semaphore,
}

impl Leases {
    /// Starts the task that keeps idle leases alive; it ends with `background`.
    pub(crate) fn start(
        connection: Arc<Connection>,
        keeper: Keeper,
        background: &Background,
    ) -> Arc<Self> {
        let revocations = Revocations::start(Arc::clone(&connection), background);
        let leases = Arc::new(Self {
            connection,
            keeper,
            pool: Mutex::new(Pool::new(KEPT_MAX)),
            revocations,
            granting: Semaphore::new(GRANTING_MAX),
        });
        background.spawn(Arc::clone(&leases).keep(background.clone()));
        leases
    }

    /// A lease of `asked_s` seconds for a new grant, whose whole TTL it covers: an idle one,
    /// refreshed if need be, or a new one. A new one waits while too many are still to be
    /// revoked.
    pub(crate) async fn take(
        self: &Arc<Self>,
        asked_s: u64,
        until: Instant,
    ) -> Result<Taken, Failure> {
        match self.take_idle(asked_s, until).await? {
            Some(lease) => Ok(lease),
            None => {
                Box::pin(async {
                    self.revocations.wait_for_room(until).await?;
                    self.grant(asked_s, until).await
                })
                .await
            }
        }
    }

    /// Whether a lease of this TTL would have to be granted, after others.
    pub(crate) fn is_granting_many(&self, asked_s: u64) -> bool {
        self.granting.available_permits() == 0 && !self.pool().has(asked_s)
    }

    /// A lease for a grant that has one already, which becomes free: it does not wait for
    /// others to be revoked.
    pub(crate) async fn take_another(
        self: &Arc<Self>,
        asked_s: u64,
        until: Instant,
    ) -> Result<Taken, Failure> {
        match self.take_idle(asked_s, until).await? {
            Some(lease) => Ok(lease),
            None => Box::pin(self.grant(asked_s, until)).await,
        }
    }

    async fn take_idle(
        self: &Arc<Self>,
        asked_s: u64,
        until: Instant,
    ) -> Result<Option<Taken>, Failure> {
        loop {
            let Some(lease) = self.pool().take(asked_s) else { return Ok(None) };
            let taken = Taken::new(self, lease);
            if !self.may_reuse(&lease) {
                continue;
            }
            if lease.is_fresh(lock::Instant::now()) {
                return Ok(Some(taken));
            }
            match Box::pin(self.keeper.keep_alive(lease.id, until, until)).await {
                // The answer may be the first that names another term.
                Ok(_) if !self.may_reuse(&lease) => {}
                Ok(kept) => {
                    let ttl_s = kept.ttl_s.max(lease.asked_s);
                    let lease = Lease { refreshed: kept.sent, ttl_s, ..lease };
                    return Ok(Some(taken.refreshed(lease)));
                }
                Err(KeepError::Dead) => taken.gone(),
                Err(KeepError::Failed(why)) => return Err(Failure::NotSent(why)),
            }
        }
    }

    /// Gives back a lease under which nothing lives and nothing will: it was never used, or
    /// its key was deleted by a write that is known to have happened.
    pub(crate) fn give(&self, lease: Lease) {
        if !self.may_reuse(&lease) {
            // An election ends one lease for each grant that is moved, and no new lock
            // should wait for that.
            self.revocations.later_unhurried(lease.id);
            return;
        }
        if let Err(surplus) = self.pool().give(lease, lock::Instant::now()) {
            self.revoke_later(surplus.id);
        }
    }

    /// Finds out in the background whether a grant was moved to a lease, or makes sure that it
    /// never will be, and revokes the lease that it does not lie under.
    pub(super) fn settle_later(&self, id: i64, begun: Move) {
        self.revocations.settle(id, begun);
    }

    /// Revokes a lease in the background, for as long as it takes.
    pub(crate) fn revoke_later(&self, id: i64) {
        self.revocations.later(id);
    }

    /// Revokes a lease, and with it whatever it holds or might come to hold.
    pub(crate) async fn revoke_now(&self, id: i64, until: Instant) -> Result<(), Failure> {
        self.revocations.now(id, until).await
    }

    /// How long what lies under a lease still lives if nobody keeps the lease alive, as far
    /// as that can be had.
    pub(crate) async fn remaining(&self, id: i64, until: Instant) -> Option<Duration> {
        let link = self.connection.link(until).await.ok()?;
        let mut client = link.client().lease_client();
        let left = timeout_at(until, client.time_to_live(id, None)).await.ok()?.ok()?;
        // Negative for a lease that has ended.
        let left_s = u64::try_from(left.ttl()).ok()?;
        Some(Duration::from_secs(left_s).saturating_sub(SLACK))
    }

    /// The keys under a lease. A failure says nothing about the connection: an answer of
    /// more than 4 MiB, some 40,000 keys, is not accepted.
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

    /// Grants a lease. Its ID is chosen here, so that it can be revoked if the answer is
    /// lost, or if the caller leaves.
    pub(crate) async fn grant(
        self: &Arc<Self>,
        asked_s: u64,
        until: Instant,
    ) -> Result<Taken, Failure> {
        let ttl = i64::try_from(asked_s).unwrap_or(i64::MAX);
        let mut delays = delays();
        let _permit = timeout_at(until, self.granting.acquire()).await.map_err(|_| {
            Failure::NotSent("too many leases are being granted at once".into())
        })?;
        loop {
            let link = self.connection.link(until).await?;
            let mut client = link.client().lease_client();
            // Read before the request: if the lease is taken to be older than it is, it is
            // only reused less.
            let (sent, origin) = (lock::Instant::now(), link.origin());
            if self.connection.is_out_of_space(Instant::now()) {
                return Err(Failure::NotSent(no_space()));
            }
            let mut new = New { revocations: &self.revocations, id: random_id() };
            let options = Some(LeaseGrantOptions::new().with_id(new.id));
            let request = Box::pin(client.grant(ttl, options));
            match self.connection.answer(&link, until, request).await {
                Ok(granted) => {
                    let ttl_s = u64::try_from(granted.ttl()).unwrap_or(asked_s);
                    let id = new.disarm();
                    let lease = Lease { id, asked_s, ttl_s, refreshed: sent, origin };
                    return Ok(Taken::new(self, lease));
                }
                // It is somebody else's.
                Err(Failure::Refused(Refusal::LeaseExists, _)) => {
                    let _ = new.disarm();
                }
                Err(Failure::OutOfSpace(why)) => return Err(Failure::NotSent(why)),
                Err(failure) if failure.is_passing() => {
                    if matches!(failure, Failure::NotSent(_)) {
                        let _ = new.disarm();
                    }
                    if !pause_before(until, delays.next_delay()).await {
                        return Err(Failure::NotSent(Arc::clone(failure.why())));
                    }
                }
                Err(refused) => {
                    let _ = new.disarm();
                    return Err(refused);
                }
            }
        }
    }

    /// Revokes all idle leases, and waits for those that are being revoked.
    pub(crate) async fn close(&self) {
        let idle = self.pool().drain();
        for id in idle {
            self.revoke_later(id);
        }
        self.revocations.close().await;
    }

    fn may_reuse(&self, lease: &Lease) -> bool {
        lease.origin.allows_reuse(self.connection.origin())
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock()
    }

    /// Keeps idle leases alive, and revokes those that are of no more use.
    async fn keep(self: Arc<Self>, background: Background) {
        let mut ticks = interval(CHORES_INTERVAL);
        loop {
            ticks.tick().await;
            let chores = self.pool().chores(lock::Instant::now(), self.connection.origin());
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
}

/// A lease whose grant is in flight. Revoked when dropped, also if etcd grants it later,
/// unless disarmed.
struct New<'a> {
    revocations: &'a Revocations,
    id: i64,
}

impl New<'_> {
    /// The ID of the lease, which is not revoked.
    fn disarm(&mut self) -> i64 {
        std::mem::take(&mut self.id)
    }
}

impl Drop for New<'_> {
    fn drop(&mut self) {
        self.revocations.later_if_granted(self.id);
    }
}

/// An ID that nobody else chooses; positive, as etcd's own are.
fn random_id() -> i64 {
    let (random, _) = Uuid::new_v4().as_u64_pair();
    i64::try_from(random >> 1).unwrap_or(1).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ttl(seconds: u64) -> Ttl {
        let day = Duration::from_secs(24 * 60 * 60);
        Ttl::new(Duration::from_secs(seconds), day).unwrap()
    }

    /// Trap: etcd 37
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
}

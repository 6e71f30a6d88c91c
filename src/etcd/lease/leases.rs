//! The leases of this process: kept, kept alive, given back and revoked. `taken` takes them.

use std::{sync::Arc, time::Duration};

use etcd_client::LeaseTimeToLiveOptions;
use leasehold_lock as lock;
use parking_lot::Mutex;
use tokio::{
    sync::Semaphore,
    time::{Instant, interval, timeout_at},
};

use crate::{
    background::Background,
    client::{connection::Connection, failure::Failure},
    lease::{
        keep_alives::KeepAlives,
        pool::{Lease, Pool, SLACK},
        resolve::revoke,
        revocations::{Revocations, Unwanted},
    },
};
#[cfg(test)]
use crate::{config::Config, keys::Keys};

/// Lease grants in flight. Each is a raft entry of its own, and a burst of them would delay
/// all other writes.
const GRANTING_MAX: usize = 8;
/// Idle leases kept.
const KEPT_MAX: usize = 1_024;
const CHORES_INTERVAL: Duration = Duration::from_millis(200);
/// How long to try to keep an idle lease alive.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(3);
/// Idle leases are kept alive after the leases of grants that are needed earlier.
const UNHURRIED: Duration = Duration::from_secs(60);

/// The leases of this process: the owner of those that belong to no grant.
pub(crate) struct Leases {
    pub(super) connection: Arc<Connection>,
    pub(super) keep_alives: KeepAlives,
    pub(super) pool: Mutex<Pool>,
    pub(super) revocations: Arc<Revocations>,
    /// Limits the lease grants in flight.
    pub(super) granting: Arc<Semaphore>,
}

impl Leases {
    /// Starts the task that keeps idle leases alive; it ends with `background`.
    pub(crate) fn start(
        connection: Arc<Connection>,
        keep_alives: KeepAlives,
        background: &Background,
    ) -> Arc<Self> {
        let revocations = Revocations::start(Arc::clone(&connection), background);
        let pool = Mutex::new(Pool::new(KEPT_MAX));
        let granting = Arc::new(Semaphore::new(GRANTING_MAX));
        let leases = Arc::new(Self { connection, keep_alives, pool, revocations, granting });
        background.spawn(Arc::clone(&leases).keep(background.clone()));
        leases
    }

    /// Whether a lease was granted in the current term. If not, it may end before what it is
    /// known to last ([`Terms`](crate::client::terms::Terms)).
    pub(crate) fn is_of_this_term(&self, lease: &Lease) -> bool {
        lease.origin.term == self.connection.term()
    }

    /// Whether a lease of this TTL would have to be granted, after others.
    pub(crate) fn is_granting_many(&self, asked_s: u64) -> bool {
        self.granting.available_permits() == 0 && !self.pool.lock().has(asked_s)
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

    /// Takes back a lease under which nothing lives and nothing will: it was never used, or
    /// its key was deleted by a write that is known to have happened.
    pub(crate) fn give(&self, lease: Lease) {
        if !self.may_reuse(&lease) {
            // An election ends one lease for each grant that is moved, and no new lock
            // should wait for that.
            self.revocations.push(Unwanted::unhurried(lease.id));
        } else if let Err(surplus) = self.pool.lock().give(lease, lock::Instant::now()) {
            self.revoke(surplus.id);
        }
    }

    /// Revokes a lease in the background, and with it all keys under it.
    pub(crate) fn revoke(&self, id: i64) {
        self.revocations.push(Unwanted::new(id));
    }

    /// Revokes a lease and with it all present and future keys under it: no write under way
    /// can use it afterwards.
    pub(crate) async fn revoke_now(&self, id: i64, until: Instant) -> Result<(), Failure> {
        revoke(&self.connection, id, until).await.map(|_| ())
    }

    /// Revokes all idle leases, and waits for those that are being revoked.
    pub(crate) async fn close(&self) {
        let idle = self.pool.lock().drain();
        idle.into_iter().for_each(|id| self.revoke(id));
        self.revocations.close().await;
    }

    /// Keeps idle leases alive, and revokes useless ones.
    async fn keep(self: Arc<Self>, background: Background) {
        let mut ticks = interval(CHORES_INTERVAL);
        loop {
            ticks.tick().await;
            let origin = self.connection.origin();
            let chores = self.pool.lock().chores(lock::Instant::now(), origin);
            chores.revoke.into_iter().for_each(|id| self.revoke(id));
            for id in chores.refresh {
                let leases = Arc::clone(&self);
                background.spawn(async move {
                    let until = Instant::now() + REFRESH_TIMEOUT;
                    match leases.keep_alives.keep_alive(id, until + UNHURRIED, until).await {
                        Ok(Some(kept)) => leases.pool.lock().refreshed(id, kept.sent),
                        Ok(None) => leases.pool.lock().died(id),
                        Err(_) => {}
                    }
                });
            }
        }
    }

    /// Those of an etcd that cannot be reached, so that nothing is ever revoked.
    #[cfg(test)]
    pub(crate) fn offline() -> Arc<Self> {
        let observer = lock::observe::Unobserved::store();
        let connection =
            Arc::new(Connection::new(Config::offline(), &Keys::new("t"), observer));
        let background = Background::default();
        let keep_alives = KeepAlives::start(&connection, &background);
        Self::start(connection, keep_alives, &background)
    }

    /// How many leases are still to be revoked.
    #[cfg(test)]
    pub(crate) fn revoking(&self) -> usize {
        self.revocations.left()
    }

    /// Whether an idle lease may be used for a new grant.
    pub(super) fn may_reuse(&self, lease: &Lease) -> bool {
        lease.origin.allows_reuse(self.connection.origin())
    }
}

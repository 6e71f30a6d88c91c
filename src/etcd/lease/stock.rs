//! Takes back leases: keeps them idle for reuse, or revokes them.

use std::sync::Arc;

use leasehold_lock as lock;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::{
    background::Background,
    client::{connection::Connection, failure::Failure},
    lease::{
        pool::{Lease, Pool},
        resolve::revoke,
        revocations::{Revocations, Unwanted},
    },
};
#[cfg(test)]
use crate::{config::Config, keys::Keys};

/// Idle leases kept.
const KEPT_MAX: usize = 1_024;

/// The owner of all leases that belong to no grant.
pub(crate) struct Stock {
    pub(super) connection: Arc<Connection>,
    pool: Mutex<Pool>,
    pub(super) revocations: Arc<Revocations>,
}

impl Stock {
    /// Its tasks end with `background`.
    pub(super) fn start(connection: Arc<Connection>, background: &Background) -> Arc<Self> {
        let revocations = Revocations::start(Arc::clone(&connection), background);
        Arc::new(Self { connection, pool: Mutex::new(Pool::new(KEPT_MAX)), revocations })
    }

    /// Takes back a lease under which nothing lives and nothing will: it was never used, or
    /// its key was deleted by a write that is known to have happened.
    pub(crate) fn give(&self, lease: Lease) {
        if !self.may_reuse(&lease) {
            // An election ends one lease for each grant that is moved, and no new lock
            // should wait for that.
            self.revocations.push(Unwanted::unhurried(lease.id));
        } else if let Err(surplus) = self.pool().give(lease, lock::Instant::now()) {
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

    /// One whose etcd cannot be reached, so that nothing is ever revoked.
    #[cfg(test)]
    pub(crate) fn offline() -> Arc<Self> {
        let connection = Arc::new(Connection::new(Config::offline(), &Keys::new("t")));
        Self::start(connection, &Background::default())
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

    pub(super) fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock()
    }
}

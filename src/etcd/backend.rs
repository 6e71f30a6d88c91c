//! The backend: puts the parts together, and hands each of the port's verbs to its part.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use leasehold_lock::{
    self as lock, Attempt, Backend, BackendError, Context, Feature, Grant, OpenError, Release,
    Renewal, Renewed, WaiterBudget, inspect::Inspect,
};
use tokio::time::{Instant, interval, timeout};
use tokio_util::task::TaskTracker;

use crate::{
    access,
    background::Background,
    client::{connection::Connection, failure::Failure, reads::Reads},
    commit::committer::Committer,
    config::Config,
    contention::Contention,
    grants::{find::Finder, local::Grants, write::Writer},
    key_cache::KeyCache,
    keys::Keys,
    lease::{keeper::Keeper, leases::Leases},
    queue::{queues::Queues, session::Sessions, sweep},
    verbs::{
        acquire::Tries,
        attempts::Attempts,
        inspect::Inspection,
        look::{Lookout, Patience},
        release::Releases,
        renew::Renewals,
        wait::Waits,
    },
};

/// How long opening may take; Init ends within 4 s.
const OPEN_TIMEOUT: Duration = Duration::from_millis(3_500);
const PURGE_INTERVAL: Duration = Duration::from_secs(5);

/// What it can do besides what every backend must.
pub(super) const FEATURES: &[Feature] = &[
    Feature::Fencing,
    Feature::ForceUnlock,
    Feature::Fair,
    Feature::Replay,
    Feature::Linearizable,
    Feature::Shared,
    Feature::Inspection,
    Feature::Watch,
];

/// The etcd backend.
pub(super) struct EtcdBackend {
    connection: Arc<Connection>,
    leases: Arc<Leases>,
    sessions: Arc<Sessions>,
    attempts: Arc<Attempts>,
    tries: Arc<Tries>,
    waits: Arc<Waits>,
    renewals: Arc<Renewals>,
    releases: Releases,
    inspection: Inspection,
    background: Background,
    /// Renewals in flight, also those whose callers have left.
    renewing: TaskTracker,
    /// How long a call that does not wait may take.
    operation_timeout: Duration,
}

impl EtcdBackend {
    /// Connects, and checks that the user may read and write the keys.
    pub(super) async fn open(config: Config, context: Context) -> Result<Self, OpenError> {
        let (with_user, keys) = (config.user.is_some(), Keys::new(&config.key_prefix));
        let backend = Self::new(config, &keys, context);
        let until = Instant::now() + OPEN_TIMEOUT;
        if let Err(failure) = access::check(&backend.connection, &keys, until).await {
            backend.background.close().await;
            return Err(access::open_error(failure, keys.root(), with_user));
        }
        backend.background.spawn(purge(Arc::clone(&backend.releases.grants)));
        let (queues, leases) = (&backend.waits.queues, &backend.leases);
        backend.background.spawn(sweep::keep(Arc::clone(queues), Arc::clone(leases)));
        Ok(backend)
    }

    /// Does not connect yet.
    fn new(config: Config, keys: &Keys, Context { settings, clock, .. }: Context) -> Self {
        let background = Background::default();
        let (keys, txn_ops_max) = (keys.clone(), config.txn_ops_max);
        let operation_timeout = settings.operation_timeout;
        let connection = Arc::new(Connection::new(config, &keys));
        let reads = |ops_max| Reads::new(Arc::clone(&connection), ops_max, &background);
        let committer = Committer::new(Arc::clone(&connection), txn_ops_max, &background);
        let keeper = Keeper::start(&connection, &background);
        let leases = Leases::start(Arc::clone(&connection), keeper.clone(), &background);
        let grants = Arc::new(Grants::new(Arc::clone(&leases.stock)));
        let finder = Arc::new(Finder {
            keys: keys.clone(),
            reads: reads(txn_ops_max),
            key_cache: KeyCache::default(),
        });
        let writer = Arc::new(Writer {
            committer: Arc::clone(&committer),
            leases: Arc::clone(&leases),
            grants: Arc::clone(&grants),
            clock: clock.clone(),
        });
        let renewals =
            Arc::new(Renewals::new(Arc::clone(&finder), Arc::clone(&writer), keeper));
        let contention = Arc::<Contention>::default();
        let tries = Arc::new(Tries {
            keys: keys.clone(),
            lookout: Lookout {
                connection: Arc::clone(&connection),
                finder: Arc::clone(&finder),
                renewals: Arc::clone(&renewals),
                contention: Arc::clone(&contention),
            },
            writer,
            renewals: Arc::clone(&renewals),
            contention: Arc::clone(&contention),
            holders_max: settings.holders_per_resource_max,
        });
        let sessions = Sessions::start(
            keys.clone(),
            Arc::clone(&committer),
            Arc::clone(&leases),
            Arc::clone(&connection),
            &background,
        );
        let queues = Queues::new(
            keys.clone(),
            Arc::clone(&connection),
            Arc::clone(&sessions),
            txn_ops_max,
            settings.clone(),
            &background,
        );
        let attempts = Arc::new(Attempts::new(
            Arc::clone(&sessions),
            background.clone(),
            operation_timeout,
        ));
        let waits = Arc::new(Waits {
            keys: keys.clone(),
            connection: Arc::clone(&connection),
            tries: Arc::clone(&tries),
            sessions: Arc::clone(&sessions),
            queues,
            contention: Arc::clone(&contention),
            waiters: WaiterBudget::new(settings.waiters_max),
            settings,
            clock,
        });
        let releases = Releases {
            finder: Arc::clone(&finder),
            committer,
            grants,
            contention,
            attempts: Arc::clone(&attempts),
        };
        let inspection = Inspection {
            keys,
            connection: Arc::clone(&connection),
            reads: reads(1),
            finder,
            leases: Arc::clone(&leases),
            step: operation_timeout,
        };
        let renewing = TaskTracker::new();
        Self {
            connection,
            leases,
            sessions,
            attempts,
            tries,
            waits,
            renewals,
            releases,
            inspection,
            background,
            renewing,
            operation_timeout,
        }
    }
}

/// Forgets grants that have expired.
async fn purge(grants: Arc<Grants>) {
    let mut ticks = interval(PURGE_INTERVAL);
    loop {
        ticks.tick().await;
        grants.purge(lock::Instant::now());
    }
}

impl Drop for EtcdBackend {
    /// Ends the tasks of a backend that was not closed.
    fn drop(&mut self) {
        self.background.stop();
    }
}

#[async_trait]
impl Backend for EtcdBackend {
    fn features(&self) -> &'static [Feature] {
        FEATURES
    }

    async fn try_lock(&self, attempt: &Attempt, until: Instant) -> Result<Grant, BackendError> {
        let (id, tries, attempt) = (attempt.id, Arc::clone(&self.tries), attempt.clone());
        self.attempts
            .run(id, |unwanted| async move {
                tries.acquire(&attempt, Patience::Try, false, &unwanted, until).await
            })
            .await
    }

    async fn lock(&self, attempt: &Attempt) -> Result<Grant, BackendError> {
        let (id, waits, attempt) = (attempt.id, Arc::clone(&self.waits), attempt.clone());
        self.attempts
            .run(id, |unwanted| async move { waits.wait(&attempt, &unwanted).await })
            .await
    }

    async fn renew(&self, renewal: &Renewal, until: Instant) -> Result<Renewed, BackendError> {
        // In a task of its own, so that a lease that was taken is used or given back even if
        // the caller leaves. It ends by `until`, and compares the key, so that a late one
        // changes no other grant.
        let (renewals, renewal) = (Arc::clone(&self.renewals), renewal.clone());
        let renewing =
            self.renewing.spawn(async move { renewals.renew(&renewal, until).await });
        renewing
            .await
            .unwrap_or_else(|_| Err(BackendError::Unknown("the renewal was aborted".into())))
    }

    async fn unlock(&self, release: &Release, until: Instant) -> Result<(), BackendError> {
        self.releases.release(release, until).await
    }

    async fn ping(&self, until: Instant) -> Result<(), BackendError> {
        self.connection.check(until).await.map_err(Failure::unavailable)
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        Some(&self.inspection)
    }

    async fn close(&self) {
        self.renewing.close();
        let _ = timeout(self.operation_timeout, self.renewing.wait()).await;
        self.sessions.close().await;
        self.leases.close().await;
        self.background.close().await;
    }
}

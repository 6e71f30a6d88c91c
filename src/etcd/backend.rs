//! The backend: connects the parts, and dispatches the port's verbs to them.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use leasehold_lock::{
    self as lock, Attempt, Backend, BackendError, Context, Feature, Grant, OpenError, Release,
    Renewal, Renewed, WaiterBudget, inspect::Inspect,
};
use tokio::time::{Instant, interval, timeout};
use tokio_util::task::TaskTracker;

use crate::{
    client::failure::Failure,
    config::Config,
    etcd::Etcd,
    grants::{local::Grants, write::Writer},
    lease::{keep_alives::KeepAlives, leases::Leases},
    queue::{queues::Queues, session::Sessions, sweep},
    verbs::{
        attempts::Attempts,
        inspect::Inspection,
        look::{Patience, Tries},
        release::Releases,
        renew::Renewals,
        wait::Waits,
    },
};

/// How long opening may take; Init ends within 4 s.
const OPEN_TIMEOUT: Duration = Duration::from_millis(3_500);
const PURGE_INTERVAL: Duration = Duration::from_secs(5);

/// Its features beyond the core.
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
    etcd: Arc<Etcd>,
    leases: Arc<Leases>,
    sessions: Arc<Sessions>,
    attempts: Arc<Attempts>,
    tries: Arc<Tries>,
    waits: Arc<Waits>,
    renewals: Arc<Renewals>,
    releases: Releases,
    inspection: Inspection,
    /// Renewals in flight, also those whose callers have left.
    renewing: TaskTracker,
    /// How long a call that does not wait may take.
    operation_timeout: Duration,
}

impl EtcdBackend {
    /// Connects, and checks that the user may read and write the keys.
    pub(super) async fn open(config: Config, context: Context) -> Result<Self, OpenError> {
        let with_user = config.user.is_some();
        let etcd = Etcd::new(config, Arc::clone(&context.observer));
        if let Err(failure) = etcd.check_access(Instant::now() + OPEN_TIMEOUT).await {
            etcd.background.close().await;
            return Err(etcd.open_error(failure, with_user));
        }
        Ok(Self::new(&etcd, context))
    }

    /// Starts the parts and their background tasks.
    fn new(shared: &Arc<Etcd>, Context { settings, clock, .. }: Context) -> Self {
        let (connection, background) = (&shared.connection, &shared.background);
        let etcd = || Arc::clone(shared);
        let keep_alives = KeepAlives::start(connection, background);
        let leases = Leases::start(Arc::clone(connection), keep_alives.clone(), background);
        let grants = Arc::new(Grants::new(Arc::clone(&leases)));
        background.spawn(purge(Arc::clone(&grants)));
        let writer = Arc::new(Writer {
            etcd: etcd(),
            grants: Arc::clone(&grants),
            clock: clock.clone(),
        });
        let renewals = Arc::new(Renewals::new(etcd(), Arc::clone(&writer), keep_alives));
        let tries = Arc::new(Tries {
            etcd: etcd(),
            writer,
            renewals: Arc::clone(&renewals),
            holders_max: settings.holders_per_resource_max,
        });
        let sessions = Sessions::start(etcd(), Arc::clone(&leases));
        let queues = Queues::new(etcd(), Arc::clone(&sessions), settings.clone());
        background.spawn(sweep::keep(Arc::clone(&queues), Arc::clone(&leases)));
        let operation_timeout = settings.operation_timeout;
        let attempts =
            Attempts::new(Arc::clone(&sessions), background.clone(), operation_timeout);
        let waits = Arc::new(Waits {
            etcd: etcd(),
            tries: Arc::clone(&tries),
            sessions: Arc::clone(&sessions),
            queues,
            waiters: WaiterBudget::new(settings.waiters_max),
            settings,
            clock,
        });
        let attempts = Arc::new(attempts);
        let releases = Releases { etcd: etcd(), grants, attempts: Arc::clone(&attempts) };
        let inspection = Inspection {
            etcd: etcd(),
            reads: etcd().large_reads(),
            leases: Arc::clone(&leases),
            step: operation_timeout,
        };
        let renewing = TaskTracker::new();
        Self {
            etcd: etcd(),
            leases,
            sessions,
            attempts,
            tries,
            waits,
            renewals,
            releases,
            inspection,
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
        self.etcd.background.stop();
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
        self.etcd.connection.check(until).await.map_err(Failure::unavailable)
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        Some(&self.inspection)
    }

    async fn close(&self) {
        self.renewing.close();
        let _ = timeout(self.operation_timeout, self.renewing.wait()).await;
        self.sessions.close().await;
        self.leases.close().await;
        self.etcd.background.close().await;
    }
}

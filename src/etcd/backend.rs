//! The port's verbs, each handed to the module that carries it out.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use etcd_client::{Compare, CompareOp, TxnOp};
use leasehold_lock::{
    self as lock, Attempt, AttemptId, Backend, BackendError, Context, Feature, Grant,
    OpenError, Release, Renewal, Renewed, Violation, inspect::Inspect,
};
use tokio::{
    sync::oneshot,
    time::{Instant, interval, timeout},
};
use tokio_util::task::TaskTracker;

use crate::{
    client::{
        connection::delays,
        failure::{Failure, Refusal},
    },
    config::Config,
    core::{Core, Failed, Leftover},
    flights::Flight,
    queue::sweep,
    verbs::state::Patience,
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
    core: Arc<Core>,
    /// Renewals in flight, also those whose callers have left.
    renewals: TaskTracker,
}

impl EtcdBackend {
    /// Connects, and checks that the user may read and write the keys.
    pub(super) async fn open(config: Config, context: Context) -> Result<Self, OpenError> {
        let with_user = config.user.is_some();
        let core = Arc::new(Core::new(config, context.settings, context.clock));
        if let Err(failure) = core.check_access(Instant::now() + OPEN_TIMEOUT).await {
            core.background.close().await;
            return Err(core.open_error(failure, with_user));
        }
        core.background.spawn(Arc::clone(&core).purge());
        let (queues, leases) = (Arc::clone(&core.queues), Arc::clone(&core.leases));
        core.background.spawn(sweep::keep(queues, leases));
        Ok(Self { core, renewals: TaskTracker::new() })
    }
}

impl Core {
    /// Sends a write that changes nothing, but that only a user who may write the keys may
    /// send: etcd also checks the branch that is not taken.
    async fn check_access(&self, until: Instant) -> Result<(), Failure> {
        let key = self.keys.session("access");
        let link = self.connection.link(until).await?;
        let txn = etcd_client::Txn::new()
            .when([Compare::create_revision(key.clone(), CompareOp::Less, 0)])
            .and_then([TxnOp::put(key, "", None)]);
        let mut client = link.client().kv_client();
        match self.connection.answer(&link, until, Box::pin(client.txn(txn))).await {
            // Without space, existing locks can still be renewed and released.
            Ok(_) | Err(Failure::OutOfSpace(_)) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    fn open_error(&self, failure: Failure, with_user: bool) -> OpenError {
        let root = self.keys.root();
        match failure {
            Failure::Refused(Refusal::Permission, _) => {
                OpenError::Refused(vec![Violation::new(
                    "keyPrefixPath",
                    format!(
                        "is not the user's to read and write; grant it with `etcdctl role \
                     grant-permission --prefix=true ROLE readwrite '{root}'`"
                    ),
                )])
            }
            Failure::Refused(Refusal::Credentials | Refusal::Login, why) if with_user => {
                OpenError::Refused(vec![Violation::new(
                    "password",
                    format!("or username was refused by etcd ({why})"),
                )])
            }
            Failure::Refused(Refusal::Credentials | Refusal::Login, why) => {
                OpenError::Refused(vec![Violation::new(
                    "username",
                    format!("is missing; etcd asks for a user ({why})"),
                )])
            }
            other => OpenError::Unavailable(
                format!("{}; start etcd, or correct endpoints", other.why()).into(),
            ),
        }
    }

    async fn purge(self: Arc<Self>) {
        let mut ticks = interval(PURGE_INTERVAL);
        loop {
            ticks.tick().await;
            self.grants.purge(lock::Instant::now());
        }
    }

    /// Carries out an attempt in a task of its own, so that it ends properly even if its
    /// caller leaves.
    async fn spawn_attempt<F>(
        self: &Arc<Self>,
        attempt: &Attempt,
        work: impl FnOnce(Arc<Self>, Attempt, Arc<Flight>) -> F,
    ) -> Result<Grant, BackendError>
    where
        F: Future<Output = Result<Grant, Failed>> + Send + 'static,
    {
        let id = attempt.id;
        let flight = self.flights.start(id);
        let unwanted = flight.unwanted.clone().drop_guard();
        let work = work(Arc::clone(self), attempt.clone(), Arc::clone(&flight));
        let (answer, answered) = oneshot::channel();
        let core = Arc::clone(self);
        tokio::spawn(async move {
            let end = EndOnDrop { core: &core, attempt: id };
            match work.await {
                Ok(grant) => {
                    // Before the answer: an undo after it must find the attempt ended.
                    drop(end);
                    let _ = answer.send(Ok(grant));
                }
                Err(failed) => {
                    if failed.leftovers.is_empty() {
                        flight.left_nothing.cancel();
                        drop(end);
                        let _ = answer.send(Err(failed.error));
                    } else {
                        let _ = answer.send(Err(failed.error));
                        if core.clean_up(failed.leftovers).await {
                            flight.left_nothing.cancel();
                        }
                        drop(end);
                    }
                }
            }
        });
        let result = answered.await;
        let _ = unwanted.disarm();
        result.unwrap_or_else(|_| Err(BackendError::Unknown("the attempt was aborted".into())))
    }

    /// Makes sure that nothing of an attempt takes effect any more, for as long as that takes;
    /// `false` if the backend closed before.
    async fn clean_up(&self, leftovers: Vec<Leftover>) -> bool {
        let mut retry_delays = delays();
        for leftover in leftovers {
            loop {
                let until = self.step_until();
                let is_cleaned_up = match &leftover {
                    Leftover::Lease(lease) => {
                        self.leases.revoke_now(lease.id, until).await.is_ok()
                    }
                    Leftover::Entry(session, key) => {
                        self.sessions.remove_entry(session, key, until).await.is_ok()
                    }
                    Leftover::PutEntry(key) => {
                        self.sessions.delete_entry(key, until).await.is_ok()
                    }
                };
                if is_cleaned_up {
                    break;
                }
                tokio::select! {
                    () = retry_delays.pause() => {}
                    () = self.background.closed() => return false,
                }
            }
            if let Leftover::Lease(lease) = leftover {
                lease.gone();
            }
        }
        true
    }
}

impl Drop for EtcdBackend {
    /// Ends the tasks of a backend that was not closed.
    fn drop(&mut self) {
        self.core.background.stop();
    }
}

/// Ends an attempt also when its task panics.
struct EndOnDrop<'a> {
    core: &'a Core,
    attempt: AttemptId,
}

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.core.flights.end(self.attempt);
    }
}

#[async_trait]
impl Backend for EtcdBackend {
    fn features(&self) -> &'static [Feature] {
        FEATURES
    }

    async fn try_lock(&self, attempt: &Attempt, until: Instant) -> Result<Grant, BackendError> {
        self.core
            .spawn_attempt(attempt, |core, attempt, _| async move {
                core.acquire(&attempt, Patience::Try, false, until).await
            })
            .await
    }

    async fn lock(&self, attempt: &Attempt) -> Result<Grant, BackendError> {
        self.core
            .spawn_attempt(attempt, |core, attempt, flight| async move {
                core.wait(&attempt, &flight).await
            })
            .await
    }

    async fn renew(&self, renewal: &Renewal, until: Instant) -> Result<Renewed, BackendError> {
        // In a task of its own, so that a lease that was taken is used or given back even if
        // the caller leaves. It ends by `until`, and compares the key, so that a late one
        // changes no other grant.
        let (core, renewal) = (Arc::clone(&self.core), renewal.clone());
        let renewing = self.renewals.spawn(async move { core.renew(&renewal, until).await });
        renewing
            .await
            .unwrap_or_else(|_| Err(BackendError::Unknown("the renewal was aborted".into())))
    }

    async fn unlock(&self, release: &Release, until: Instant) -> Result<(), BackendError> {
        self.core.release(release, until).await
    }

    async fn ping(&self, until: Instant) -> Result<(), BackendError> {
        let get = TxnOp::get(self.core.keys.session("access"), None);
        self.core.connection.read(vec![get], until).await.map_err(Failure::unavailable)?;
        Ok(())
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        Some(&*self.core)
    }

    async fn close(&self) {
        self.renewals.close();
        let _ = timeout(self.core.settings.operation_timeout, self.renewals.wait()).await;
        self.core.sessions.close().await;
        self.core.leases.close().await;
        self.core.background.close().await;
    }
}

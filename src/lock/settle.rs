//! Settling what is not known, or what nobody received.
//!
//! Every operation that may leave something behind is guarded by a
//! [`Pending`] release. Whatever ends the operation early (an error, a caller
//! that went away, a panic) drops the guard armed, and the release is then
//! carried out in the background until the backend has confirmed it.

use std::{sync::Arc, time::Duration};

use backon::{BackoffBuilder, ExponentialBuilder};
use tokio::{
    runtime::Handle,
    sync::Semaphore,
    time::{Instant, sleep, timeout_at},
};
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use super::{Backend, BackendError, Release, Settings};

/// How many releases may be under way in the background. Past it a grant is
/// left to its TTL, which is logged.
const UNSETTLED_MAX: usize = 10_000;
const RETRY_DELAY_MIN: Duration = Duration::from_millis(50);
const RETRY_DELAY_MAX: Duration = Duration::from_secs(2);
/// How much later than it promised a backend's answer is still taken.
const ANSWER_GRACE: Duration = Duration::from_millis(250);

/// Carries out releases until they are confirmed.
#[derive(Clone)]
pub(super) struct Settler {
    backend: Arc<dyn Backend>,
    runtime: Handle,
    tasks: TaskTracker,
    places: Arc<Semaphore>,
    operation_timeout: Duration,
    /// After this long nothing that a release is for can still be alive.
    horizon: Duration,
}

impl Settler {
    /// A settler over `backend`. Must be called within a runtime.
    pub(super) fn new(backend: Arc<dyn Backend>, settings: &Settings) -> Self {
        Self {
            backend,
            runtime: Handle::current(),
            tasks: TaskTracker::new(),
            places: Arc::new(Semaphore::new(UNSETTLED_MAX)),
            operation_timeout: settings.operation_timeout,
            horizon: settings.ttl_max + Duration::from_secs(60),
        }
    }

    /// A guard that carries `release` out when it is dropped armed.
    pub(super) fn guard(&self, release: Arc<Release>) -> Pending {
        Pending { settler: self.clone(), release: Some(release) }
    }

    /// Waits until nothing is left to settle.
    pub(super) async fn settled(&self) {
        self.tasks.close();
        self.tasks.wait().await;
        self.tasks.reopen();
    }

    fn spawn(&self, release: Arc<Release>) {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            warn!(resource = %release.resource, limit = UNSETTLED_MAX,
                "too many unsettled operations; a grant that nobody received is left to its TTL");
            return;
        };
        let settler = self.clone();
        self.tasks.spawn_on(
            async move {
                settler.run(&release).await;
                drop(place);
            },
            &self.runtime,
        );
    }

    async fn run(&self, release: &Release) {
        let give_up = Instant::now() + self.horizon;
        let mut delays = ExponentialBuilder::new()
            .with_min_delay(RETRY_DELAY_MIN)
            .with_max_delay(RETRY_DELAY_MAX)
            .without_max_times()
            .with_jitter()
            .build();
        while !self.attempt(release, Instant::now() + self.operation_timeout).await {
            if Instant::now() >= give_up {
                warn!(resource = %release.resource, "an operation could not be settled; \
                    whatever it left has outlived its TTL");
                return;
            }
            sleep(delays.next().unwrap_or(RETRY_DELAY_MAX)).await;
        }
    }

    /// Tries the release once; whether it is settled.
    async fn attempt(&self, release: &Release, until: Instant) -> bool {
        match bounded(until, self.backend.unlock(release, until)).await {
            Ok(()) | Err(BackendError::NotHeld { .. }) => true,
            Err(error) => {
                debug!(resource = %release.resource, %error, "not settled yet");
                false
            }
        }
    }
}

/// An operation that is not known to need no clean-up.
pub(super) struct Pending {
    settler: Settler,
    release: Option<Arc<Release>>,
}

impl Pending {
    /// Nothing is left behind: no clean-up.
    pub(super) fn disarm(mut self) {
        self.release = None;
    }

    /// Cleans up now; whether it was confirmed by `until`. If not, it goes on
    /// in the background.
    pub(super) async fn settle(mut self, until: Instant) -> bool {
        let Some(release) = self.release.clone() else { return true };
        let settled = self.settler.attempt(&release, until).await;
        if settled {
            self.release = None;
        }
        settled
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(release) = self.release.take() {
            self.settler.spawn(release);
        }
    }
}

/// Holds a backend to its word: an answer later than `until` (and some grace)
/// counts as none.
pub(super) async fn bounded<T>(
    until: Instant,
    operation: impl Future<Output = Result<T, BackendError>>,
) -> Result<T, BackendError> {
    timeout_at(until + ANSWER_GRACE, operation).await.unwrap_or_else(|_| {
        Err(BackendError::Unknown("the backend did not answer within operationTimeout".into()))
    })
}

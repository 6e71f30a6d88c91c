//! Settles operations of unknown outcome, and grants that were not received.
//!
//! Every operation that may leave something behind is guarded by a
//! [`Pending`] release. Whatever ends the operation early (an error, a caller
//! that went away, a panic) drops the guard armed, and the release is then
//! carried out in the background until the backend has confirmed it.

use std::{
    collections::{BTreeMap, HashMap},
    panic::AssertUnwindSafe,
    sync::Arc,
    time::Duration,
};

use futures_util::{
    FutureExt as _,
    stream::{FuturesUnordered, StreamExt as _},
};
use leasehold_util::retry::Backoff;
use parking_lot::Mutex;
use tokio::{
    runtime::Handle,
    sync::Notify,
    time::{Instant, sleep_until, timeout_at},
};
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use super::{
    Backend, BackendError, Release, ReleaseOf, Settings,
    observe::{Counted, Observe, Verb},
    registry::{Acquisition, Ending, Registry},
};

/// With this many unsettled releases nothing new may be acquired, and no further unlock
/// is completed. An attempt's clean-up is never dropped: a waiter's forgotten place would
/// stay in the queue.
pub const UNSETTLED_MAX: usize = 100_000;
/// How many releases of one server are tried at the same time.
const CONCURRENT_MAX: usize = 256;
const RETRY_DELAY_MIN: Duration = Duration::from_millis(50);
const RETRY_DELAY_MAX: Duration = Duration::from_secs(2);
/// How much later than promised an answer of the backend still counts.
const ANSWER_GRACE: Duration = Duration::from_millis(250);

/// Carries out releases until they are confirmed.
#[derive(Clone)]
pub(super) struct Settler {
    backend: Arc<dyn Backend>,
    observer: Arc<dyn Observe>,
    runtime: Handle,
    tasks: TaskTracker,
    queues: Arc<Mutex<Queues>>,
    registry: Arc<Registry>,
    operation_timeout: Duration,
    /// After this long, the grant of any release has expired.
    pub(super) horizon: Duration,
}

/// The releases that are not settled.
#[derive(Default)]
struct Queues {
    /// A server's queue is there as long as the task that tries its releases. So a server
    /// that does not answer delays its own releases only.
    by_server: HashMap<u64, Queue>,
    /// How many wait or are being tried.
    unsettled: usize,
    /// Counts additions, so that two releases may be due at the same time.
    added: u64,
}

/// The releases of one server.
#[derive(Default)]
struct Queue {
    /// By the time of the next try.
    waiting: BTreeMap<(Instant, u64), Unsettled>,
    /// Notified when a release was added.
    added: Arc<Notify>,
}

struct Unsettled {
    release: Arc<Release>,
    _ending: Option<Ending>,
    backoff: Backoff,
    give_up: Instant,
    _counted: Counted,
}

impl Settler {
    /// A settler over `backend`. Must be called within a runtime.
    pub(super) fn new(
        backend: Arc<dyn Backend>,
        settings: &Settings,
        observer: Arc<dyn Observe>,
    ) -> Self {
        Self {
            backend,
            observer,
            runtime: Handle::current(),
            tasks: TaskTracker::new(),
            queues: Arc::default(),
            registry: Arc::default(),
            operation_timeout: settings.operation_timeout,
            horizon: settings.ttl_max + Duration::from_secs(60),
        }
    }

    /// A guard that carries `release` out when it is dropped armed.
    pub(super) fn guard(&self, release: Arc<Release>) -> Pending {
        let named = match &release.of {
            ReleaseOf::Attempt(attempt) => self.registry.acquire(attempt).map(Named::Acquired),
            ReleaseOf::Owner(lock_id) | ReleaseOf::Token(lock_id, _) => {
                let lock = (release.resource.clone(), lock_id.clone());
                Some(Named::Ended(self.registry.end(lock, None)))
            }
            _ => None,
        };
        Pending { settler: self.clone(), release: Some(release), named, is_grant: false }
    }

    /// What is being acquired and ended.
    pub(super) fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// Whether so much is unsettled that nothing more may be acquired.
    pub(super) fn is_full(&self) -> bool {
        self.unsettled() >= UNSETTLED_MAX
    }

    /// How many releases are not settled yet.
    pub(super) fn unsettled(&self) -> usize {
        self.queues.lock().unsettled
    }

    /// Waits until nothing is left to settle.
    pub(super) async fn settled(&self) {
        self.tasks.close();
        self.tasks.wait().await;
        self.tasks.reopen();
    }

    /// Carries `release` out in the background until it is confirmed, or until `give_up`.
    pub(super) fn add(&self, release: Arc<Release>, ending: Option<Ending>, give_up: Instant) {
        let backoff = Backoff::new(RETRY_DELAY_MIN, RETRY_DELAY_MAX);
        let server = self.backend.server_of(&release.resource);
        let mut queues = self.queues.lock();
        // What this process has acquired is limited, since nothing is acquired when so much is
        // unsettled. Unlocks may be repeated without end during an outage.
        let is_own = matches!(release.of, ReleaseOf::Attempt(_) | ReleaseOf::Claim(..));
        if !is_own && queues.unsettled >= UNSETTLED_MAX {
            warn!(
                resource = release.resource.as_str(),
                limit = UNSETTLED_MAX,
                "too many unsettled operations; an unlock of unknown outcome is not completed"
            );
            return;
        }
        let counted = Counted::new(Arc::clone(&self.observer), |it, n| it.unsettled(n));
        let unsettled =
            Unsettled { release, _ending: ending, backoff, give_up, _counted: counted };
        queues.unsettled += 1;
        let is_new = !queues.by_server.contains_key(&server);
        let added = queues.put(server, Instant::now(), unsettled);
        added.notify_one();
        if is_new {
            self.tasks.spawn_on(self.clone().work(server, added), &self.runtime);
        }
    }

    /// Tries the releases of a server as they come due, until none is left.
    async fn work(self, server: u64, added: Arc<Notify>) {
        let mut under_way = FuturesUnordered::new();
        loop {
            let room = CONCURRENT_MAX - under_way.len();
            let due = self.queues.lock().take_due(server, room);
            under_way.extend(due.into_iter().map(|unsettled| self.try_once(unsettled)));
            let Some(next) = self.queues.lock().next_try(server, under_way.is_empty()) else {
                return;
            };
            let has_room = under_way.len() < CONCURRENT_MAX;
            tokio::select! {
                Some(tried) = under_way.next() => self.tried(server, tried),
                () = sleep_until(next), if has_room => {}
                () = added.notified(), if has_room => {}
            }
        }
    }

    /// Tries a release, and returns it if it is not settled.
    async fn try_once(&self, unsettled: Unsettled) -> Option<Unsettled> {
        let until = Instant::now() + self.operation_timeout;
        let attempt = AssertUnwindSafe(self.attempt(&unsettled.release, until));
        // A panic must not end the worker.
        let settled = attempt.catch_unwind().await.unwrap_or(false);
        (!settled).then_some(unsettled)
    }

    fn tried(&self, server: u64, failed: Option<Unsettled>) {
        let mut queues = self.queues.lock();
        let now = Instant::now();
        match failed {
            Some(mut unsettled) if now < unsettled.give_up => {
                let next_try = now + unsettled.backoff.next_delay();
                queues.put(server, next_try, unsettled);
            }
            Some(unsettled) => {
                queues.unsettled -= 1;
                warn!(
                    resource = unsettled.release.resource.as_str(),
                    "an operation could not be \
                    settled; whatever it left has outlived its TTL"
                );
            }
            None => queues.unsettled -= 1,
        }
    }

    /// Tries the release once. Returns whether it is settled.
    async fn attempt(&self, release: &Release, until: Instant) -> bool {
        let unlocking = self.backend.unlock(release, until);
        match bounded(&*self.observer, Verb::Unlock, until, unlocking).await {
            Ok(()) | Err(BackendError::NotHeld { .. }) => true,
            Err(error) => {
                debug!(resource = release.resource.as_str(), %error, "not settled yet");
                false
            }
        }
    }
}

impl Queues {
    /// Returns what wakes the task of this server.
    fn put(&mut self, server: u64, at: Instant, unsettled: Unsettled) -> Arc<Notify> {
        self.added += 1;
        let queue = self.by_server.entry(server).or_default();
        queue.waiting.insert((at, self.added), unsettled);
        Arc::clone(&queue.added)
    }

    fn take_due(&mut self, server: u64, most: usize) -> Vec<Unsettled> {
        let now = Instant::now();
        let mut due = Vec::new();
        let Some(queue) = self.by_server.get_mut(&server) else { return due };
        while due.len() < most
            && let Some(first) = queue.waiting.first_entry()
            && first.key().0 <= now
        {
            due.push(first.remove());
        }
        due
    }

    /// When the next try is due. If there is nothing left and the task is `idle`, removes the
    /// queue: that is the end of the task.
    fn next_try(&mut self, server: u64, idle: bool) -> Option<Instant> {
        let next =
            self.by_server.get(&server)?.waiting.first_key_value().map(|((at, _), _)| *at);
        if idle && next.is_none() {
            self.by_server.remove(&server);
            return None;
        }
        Some(next.unwrap_or_else(|| Instant::now() + RETRY_DELAY_MAX))
    }
}

/// Carries out its release when dropped, unless it was disarmed, or the release is open.
pub(super) struct Pending {
    settler: Settler,
    release: Option<Arc<Release>>,
    /// The grant in the registry, where calls with its lock ID find it; `None` if no caller can
    /// name it.
    named: Option<Named>,
    /// Whether the attempt was granted.
    is_grant: bool,
}

/// What the registry knows of a grant that a caller can name.
enum Named {
    /// It is being acquired.
    Acquired(Acquisition),
    /// It is being ended.
    Ended(Ending),
}

impl Pending {
    /// The attempt was granted: what is cleaned up from now on is a grant.
    pub(super) fn granted(mut self) -> Self {
        self.is_grant = true;
        self
    }

    /// Gives the release up: there is nothing to clean up.
    pub(super) fn disarm(mut self) {
        self.release = None;
    }

    /// Cleans up now. Returns whether it was confirmed by `until` that nothing is left; if not,
    /// the clean-up continues in the background.
    pub(super) async fn settle(mut self, until: Instant) -> bool {
        if !self.begin_end() {
            return false;
        }
        let Some(release) = self.release.clone() else { return true };
        let settled = self.settler.attempt(&release, until).await;
        if settled {
            self.release = None;
        }
        settled
    }

    /// Registers that the grant is being ended from now on. Returns false, and gives the release
    /// up, if its caller has renewed it.
    fn begin_end(&mut self) -> bool {
        if let Some(Named::Acquired(acquisition)) = &self.named {
            self.named = acquisition.undo().map(Named::Ended);
            if self.named.is_none() {
                self.release = None;
                return false;
            }
        }
        true
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.release.as_ref().is_none_or(|release| release.is_open()) || !self.begin_end() {
            return;
        }
        let Some(release) = self.release.take() else { return };
        if self.is_grant {
            self.settler.observer.undone();
        }
        let ending = match self.named.take() {
            Some(Named::Ended(ending)) => Some(ending),
            _ => None,
        };
        self.settler.add(release, ending, Instant::now() + self.settler.horizon);
    }
}

/// Carries out a call of the backend, and reports it. Enforces the promise to answer by `until`:
/// an answer that is later by more than a grace counts as none.
pub(super) async fn bounded<T>(
    observer: &dyn Observe,
    verb: Verb,
    until: Instant,
    call: impl Future<Output = Result<T, BackendError>>,
) -> Result<T, BackendError> {
    let began = Instant::now();
    let result = timeout_at(until + ANSWER_GRACE, call).await.unwrap_or_else(|_| {
        Err(BackendError::Unknown("the backend did not answer within operationTimeout".into()))
    });
    let failed = matches!(result, Err(BackendError::Unavailable(_) | BackendError::Unknown(_)));
    observer.answered(verb, began.elapsed(), failed);
    result
}

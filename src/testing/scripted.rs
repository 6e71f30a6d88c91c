//! A backend with scripted faults in tries, renewals and unlocks.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use leasehold_lock::{
    Attempt, Backend, BackendError, Clock, Context, Feature, Grant, Release, Renewal, Renewed,
    ResourceId, Settings, Ttl,
    inspect::{Inspect, Inspected, LockView, Page, PageRequest, Selection, WaiterView},
};
use tokio::time::{Instant, sleep};

/// What happens to a call.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// The call never reaches the backend.
    Unreachable,
    /// The call is never answered.
    Silent,
    /// The call is carried out, and the reply takes this long.
    ReplyDelayed(Duration),
    /// The call is carried out this much later.
    Delayed(Duration),
    /// The call is carried out, and its reply is lost.
    ReplyLost,
}

/// The faults of the next calls, and counts of past calls.
#[derive(Default)]
pub struct Script {
    /// The TTLs granted are multiples of this, rounded up.
    rounds_to: Mutex<Option<Duration>>,
    elsewhere: Mutex<Option<&'static str>>,
    next_tries: Mutex<VecDeque<Fault>>,
    next_renewals: Mutex<VecDeque<Fault>>,
    every_renewal: Mutex<Option<Fault>>,
    next_unlocks: Mutex<VecDeque<Fault>>,
    /// How many renewals were begun.
    pub renewals: AtomicUsize,
    /// Whether inspections are never answered.
    pub hides: AtomicBool,
    in_flight: AtomicUsize,
    /// The most renewals that were in flight at a time.
    pub in_flight_max: AtomicUsize,
    /// How many renewals were in flight when an unlock came.
    pub renewing_at_unlock: AtomicUsize,
}

impl Script {
    /// Rounds granted TTLs up to multiples of `whole`.
    pub fn round_ttls_up_to(&self, whole: Duration) {
        *self.rounds_to.lock().unwrap() = Some(whole);
    }

    fn rounded(&self, ttl: Ttl) -> Ttl {
        let whole = self.rounds_to.lock().unwrap();
        whole.map_or(ttl, |whole| {
            let times = ttl.as_ms().div_ceil(u64::try_from(whole.as_millis()).unwrap());
            Ttl::new(whole * u32::try_from(times).unwrap(), Duration::MAX).unwrap()
        })
    }

    /// Resources whose names begin so are another server's.
    pub fn on_another_server(&self, prefix: &'static str) {
        *self.elsewhere.lock().unwrap() = Some(prefix);
    }

    fn is_elsewhere(&self, resource: &ResourceId) -> bool {
        let prefix = *self.elsewhere.lock().unwrap();
        prefix.is_some_and(|prefix| resource.as_str().starts_with(prefix))
    }

    /// Adds the fault of one more try.
    pub fn on_try(&self, fault: Fault) {
        self.next_tries.lock().unwrap().push_back(fault);
    }

    /// Adds the fault of one more renewal.
    pub fn on_renewal(&self, fault: Fault) {
        self.next_renewals.lock().unwrap().push_back(fault);
    }

    /// Sets the fault of renewals without one of their own.
    pub fn on_every_renewal(&self, fault: Option<Fault>) {
        *self.every_renewal.lock().unwrap() = fault;
    }

    /// Adds the fault of one more unlock.
    pub fn on_unlock(&self, fault: Fault) {
        self.next_unlocks.lock().unwrap().push_back(fault);
    }
}

/// The backend.
pub struct Scripted {
    inner: Arc<dyn Backend>,
    script: Arc<Script>,
}

impl Scripted {
    /// Over the backend that `open` makes.
    pub fn new<B: Backend + 'static>(
        open: impl FnOnce(&Context) -> B,
    ) -> (Self, Arc<Script>, Settings) {
        let settings = Settings::default();
        let inner = Arc::new(open(&Context::new(settings.clone(), Clock::system())));
        let script = Arc::<Script>::default();
        (Self { inner, script: Arc::clone(&script) }, script, settings)
    }
}

/// Counts a renewal for as long as it is in flight, however it ends.
struct InFlight<'a>(&'a AtomicUsize);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn faulted<T>(
    fault: Option<Fault>,
    happens: impl Future<Output = Result<T, BackendError>>,
) -> Result<T, BackendError> {
    match fault {
        None => happens.await,
        Some(Fault::Unreachable) => Err(BackendError::Unavailable("cut off".into())),
        Some(Fault::Silent) => std::future::pending().await,
        Some(Fault::ReplyDelayed(delay)) => {
            let result = happens.await;
            sleep(delay).await;
            result
        }
        Some(Fault::Delayed(delay)) => {
            sleep(delay).await;
            happens.await
        }
        Some(Fault::ReplyLost) => {
            let _ = happens.await;
            Err(BackendError::Unknown("the reply was lost".into()))
        }
    }
}

#[async_trait]
impl Backend for Scripted {
    fn features(&self) -> &[Feature] {
        self.inner.features()
    }

    fn server_of(&self, resource: &ResourceId) -> u64 {
        self.script.is_elsewhere(resource).into()
    }

    async fn try_lock(&self, attempt: &Attempt, until: Instant) -> Result<Grant, BackendError> {
        let fault = self.script.next_tries.lock().unwrap().pop_front();
        let attempt = Attempt { ttl: self.script.rounded(attempt.ttl), ..attempt.clone() };
        faulted(fault, self.inner.try_lock(&attempt, until)).await
    }

    async fn lock(&self, attempt: &Attempt) -> Result<Grant, BackendError> {
        self.inner.lock(attempt).await
    }

    async fn renew(&self, renewal: &Renewal, until: Instant) -> Result<Renewed, BackendError> {
        let script = &self.script;
        script.renewals.fetch_add(1, Ordering::SeqCst);
        let in_flight = script.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        let _in_flight = InFlight(&script.in_flight);
        script.in_flight_max.fetch_max(in_flight, Ordering::SeqCst);
        let next = script.next_renewals.lock().unwrap().pop_front();
        let is_elsewhere = script.is_elsewhere(&renewal.resource);
        let every = *script.every_renewal.lock().unwrap();
        let fault = next.or(every.filter(|_| !is_elsewhere));
        let renewal = Renewal { ttl: script.rounded(renewal.ttl), ..renewal.clone() };
        faulted(fault, self.inner.renew(&renewal, until)).await
    }

    async fn unlock(&self, release: &Release, until: Instant) -> Result<(), BackendError> {
        let script = &self.script;
        let renewing = script.in_flight.load(Ordering::SeqCst);
        script.renewing_at_unlock.fetch_add(renewing, Ordering::SeqCst);
        let fault = script.next_unlocks.lock().unwrap().pop_front();
        if !matches!(fault, Some(Fault::Unreachable)) {
            release.target.fix("sent");
        }
        faulted(fault, self.inner.unlock(release, until)).await
    }

    async fn ping(&self, until: Instant) -> Result<(), BackendError> {
        self.inner.ping(until).await
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        self.script.hides.load(Ordering::SeqCst).then_some(&Hidden)
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}

struct Hidden;

#[async_trait]
impl Inspect for Hidden {
    async fn get(
        &self,
        _: &ResourceId,
        _: &PageRequest,
        _: Instant,
    ) -> Result<Inspected, BackendError> {
        std::future::pending().await
    }

    async fn list(
        &self,
        _: &Selection,
        _: &PageRequest,
        _: Instant,
    ) -> Result<Page<LockView>, BackendError> {
        std::future::pending().await
    }

    async fn waiters(
        &self,
        _: &ResourceId,
        _: &PageRequest,
        _: Instant,
    ) -> Result<Page<WaiterView>, BackendError> {
        std::future::pending().await
    }
}

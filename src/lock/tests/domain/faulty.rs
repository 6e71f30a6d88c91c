//! A backend that fails on demand: the memory backend with scripted faults.

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
    AcquireRequest, Attempt, Backend, BackendError, Clock, Context, Feature, Grant, GrantId,
    Granted, LockError, LockId, Release, RenewRequest, Renewal, Renewed, ResourceId, Settings,
    Store, UnlockRequest,
    inspect::{Inspect, Inspected, LockView, Mirror, Page, PageRequest, Selection, WaiterView},
};
use leasehold_memory::Memory;
use tokio::time::{Instant, sleep, sleep_until};

/// What happens to one call to the backend.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// The call takes effect, and its outcome is reported as unknown at once.
    ReplyLost,
    /// The call takes effect, and is never answered.
    Silent,
    /// The call never reaches the backend.
    Unreachable,
    /// The same, after the backend has read for this long what the call means.
    Unsent(Duration),
    /// The call takes effect at once, and its reply takes this long.
    ReplyDelayed(Duration),
    /// The call takes effect after this delay, and is then answered.
    Delayed(Duration),
}

#[derive(Default)]
pub struct Script {
    acquire: Mutex<VecDeque<Fault>>,
    renew: Mutex<VecDeque<Fault>>,
    unlock: Mutex<VecDeque<Fault>>,
    pub unlocks: AtomicUsize,
    /// The grants that releases named.
    pub known: Mutex<Vec<Option<GrantId>>>,
    unlocking: AtomicUsize,
    pub unlocking_max: AtomicUsize,
    /// How long each look at a resource takes.
    pub look_delay: Mutex<Duration>,
    pub looks: AtomicUsize,
    /// Each page of a resource is its first, and never its last.
    pub has_endless_pages: AtomicBool,
    is_closed: AtomicBool,
}

impl Script {
    pub fn on_acquire(&self, fault: Fault) {
        self.acquire.lock().unwrap().push_back(fault);
    }

    pub fn on_renew(&self, fault: Fault) {
        self.renew.lock().unwrap().push_back(fault);
    }

    pub fn on_unlock(&self, fault: Fault) {
        self.unlock.lock().unwrap().push_back(fault);
    }
}

pub struct Faulty {
    pub memory: Memory,
    pub script: Script,
}

pub fn store() -> (Store, Arc<Faulty>) {
    store_with(Settings::default())
}

pub fn store_with(settings: Settings) -> (Store, Arc<Faulty>) {
    let context = Context::new(settings.clone(), Clock::system());
    let faulty = Arc::new(Faulty { memory: Memory::new(&context), script: Script::default() });
    (Store::new(faulty.clone(), settings), faulty)
}

pub fn request(resource: &str) -> AcquireRequest {
    AcquireRequest::new(resource.parse().unwrap())
}

pub fn with_lock_id(lock_id: &str) -> AcquireRequest {
    AcquireRequest { lock_id: Some(LockId::new(lock_id).unwrap()), ..request("r") }
}

pub fn renewal(lock_id: &str) -> RenewRequest {
    let lock_id = LockId::new(lock_id).unwrap();
    RenewRequest { resource: "r".parse().unwrap(), lock_id, ttl: None }
}

/// Acquires the lock and accepts the grant, as a caller that received it does.
pub async fn hold(store: &Store, resource: &str) -> Granted {
    let granted = store.try_lock(request(resource)).await.unwrap();
    granted.receipt.accept();
    granted
}

pub async fn unlock(store: &Store, resource: &str, granted: &Granted) -> Result<(), LockError> {
    let resource = resource.parse().unwrap();
    store.unlock(UnlockRequest::owner(resource, granted.lock_id.clone())).await
}

/// Waits until the backend has no record left. Panics after 15 s, well before a record
/// would expire with its TTL of 30 s.
pub async fn no_record_left(faulty: &Faulty) {
    let give_up = Instant::now() + Duration::from_secs(15);
    while faulty.memory.records() > 0 {
        assert!(Instant::now() < give_up, "{} records left", faulty.memory.records());
        sleep(Duration::from_millis(10)).await;
    }
}

impl Faulty {
    async fn faulted<T>(
        &self,
        fault: Option<Fault>,
        until: Instant,
        happens: impl Future<Output = Result<T, BackendError>>,
    ) -> Result<T, BackendError> {
        match fault {
            None => happens.await,
            Some(Fault::Unreachable) => Err(BackendError::Unavailable("cut off".into())),
            Some(Fault::Unsent(delay)) => {
                sleep(delay).await;
                Err(BackendError::Unavailable("cut off".into()))
            }
            Some(Fault::ReplyLost) => {
                let _ = happens.await;
                Err(BackendError::Unknown("the reply was lost".into()))
            }
            Some(Fault::Silent) => {
                let _ = happens.await;
                sleep_until(until).await;
                std::future::pending().await
            }
            Some(Fault::ReplyDelayed(delay)) => {
                let result = happens.await;
                sleep(delay).await;
                result
            }
            Some(Fault::Delayed(delay)) => {
                sleep(delay).await;
                happens.await
            }
        }
    }
}

#[async_trait]
impl Backend for Faulty {
    fn features(&self) -> &[Feature] {
        self.memory.features()
    }

    /// One resource is on a server of its own.
    fn server_of(&self, resource: &ResourceId) -> u64 {
        (resource.as_str() == "elsewhere").into()
    }

    async fn try_lock(&self, attempt: &Attempt, until: Instant) -> Result<Grant, BackendError> {
        let fault = self.script.acquire.lock().unwrap().pop_front();
        self.faulted(fault, until, self.memory.try_lock(attempt, until)).await
    }

    async fn lock(&self, attempt: &Attempt) -> Result<Grant, BackendError> {
        let fault = self.script.acquire.lock().unwrap().pop_front();
        self.faulted(fault, Instant::now(), self.memory.lock(attempt)).await
    }

    async fn renew(&self, renewal: &Renewal, until: Instant) -> Result<Renewed, BackendError> {
        let fault = self.script.renew.lock().unwrap().pop_front();
        self.faulted(fault, until, self.memory.renew(renewal, until)).await
    }

    async fn unlock(&self, release: &Release, until: Instant) -> Result<(), BackendError> {
        self.script.unlocks.fetch_add(1, Ordering::Relaxed);
        self.script.known.lock().unwrap().push(release.known);
        let fault = self.script.unlock.lock().unwrap().pop_front();
        if !matches!(fault, Some(Fault::Unreachable | Fault::Unsent(_))) {
            release.target.fix("sent");
        }
        let unlocking = self.script.unlocking.fetch_add(1, Ordering::Relaxed) + 1;
        self.script.unlocking_max.fetch_max(unlocking, Ordering::Relaxed);
        let result = self.faulted(fault, until, self.memory.unlock(release, until)).await;
        self.script.unlocking.fetch_sub(1, Ordering::Relaxed);
        assert!(!self.script.is_closed.load(Ordering::Relaxed), "closed during an unlock");
        result
    }

    async fn ping(&self, until: Instant) -> Result<(), BackendError> {
        self.memory.ping(until).await
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        Some(self)
    }

    async fn close(&self) {
        self.script.is_closed.store(true, Ordering::Relaxed);
        self.memory.close().await;
    }
}

#[async_trait]
impl Inspect for Faulty {
    async fn get(
        &self,
        resource: &ResourceId,
        grants: &PageRequest,
        until: Instant,
    ) -> Result<Inspected, BackendError> {
        self.script.looks.fetch_add(1, Ordering::Relaxed);
        let delay = *self.script.look_delay.lock().unwrap();
        sleep(delay).await;
        let inspected = self.memory.inspect().unwrap();
        if self.script.has_endless_pages.load(Ordering::Relaxed) {
            let first = PageRequest::first(grants.limit);
            let found = inspected.get(resource, &first, until).await?;
            return Ok(Inspected { next: Some("more".into()), ..found });
        }
        inspected.get(resource, grants, until).await
    }

    async fn list(
        &self,
        selection: &Selection,
        page: &PageRequest,
        until: Instant,
    ) -> Result<Page<LockView>, BackendError> {
        self.memory.inspect().unwrap().list(selection, page, until).await
    }

    async fn waiters(
        &self,
        resource: &ResourceId,
        page: &PageRequest,
        until: Instant,
    ) -> Result<Page<WaiterView>, BackendError> {
        self.memory.inspect().unwrap().waiters(resource, page, until).await
    }

    async fn watch(&self, mirror: &Mirror) -> BackendError {
        self.memory.inspect().unwrap().watch(mirror).await
    }
}

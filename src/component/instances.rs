//! The instances that one socket serves.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::future::{BoxFuture, join_all};
use leasehold_lock::{Feature, LockError, Store, answered_by};
use parking_lot::{Mutex, MutexGuard};
use tokio::{
    sync::Notify,
    task::JoinHandle,
    time::{Instant, sleep_until, timeout, timeout_at},
};
use tracing::{Instrument as _, debug, info, info_span, warn};

/// The time limit of an Init, so that its answer arrives within the 4 s that the protocol
/// allows. daprd waits 5 s.
const INIT_MAX: Duration = Duration::from_millis(3_800);

/// How many replaced stores may still have calls in flight.
const REPLACED_MAX: usize = 1000;

/// How many instances a socket serves. A daprd has one for each component YAML.
const INSTANCES_MAX: usize = 1000;

/// The metadata items of an instance.
pub type Metadata = BTreeMap<String, String>;

/// Opens the store of the instance of this name, with its metadata items. The last argument is
/// the store that it replaces, if there is one.
pub type OpenInstance = Arc<
    dyn Fn(&str, Metadata, Option<Store>) -> BoxFuture<'static, Result<Store, LockError>>
        + Send
        + Sync,
>;

/// The instances by name. Each has its own store.
pub struct Instances {
    open: OpenInstance,
    features: &'static [Feature],
    slots: Mutex<Slots>,
    calls: AtomicU64,
}

#[derive(Default)]
struct Slots {
    by_name: HashMap<String, Arc<Slot>>,
    draining: bool,
    /// Stores with calls in flight: a drain must end their waits.
    replaced: Vec<Replaced>,
}

struct Replaced {
    store: Store,
    retired: JoinHandle<()>,
}

#[derive(Default)]
struct Slot {
    /// Lets one Init at a time connect.
    init: tokio::sync::Mutex<()>,
    state: Mutex<SlotState>,
    /// Notified when the instance becomes live, or when a drain begins.
    changed: Notify,
}

#[derive(Default)]
enum SlotState {
    /// It was not initialised.
    #[default]
    Absent,
    /// The process itself is initialising it.
    Opening(Opening),
    Live {
        metadata: Metadata,
        store: Store,
    },
}

#[derive(Clone)]
struct Opening {
    /// How long a call waits for it: the `operationTimeout` of the instance.
    operation_timeout: Duration,
    /// Why it has not succeeded yet.
    why: Arc<str>,
}

impl Instances {
    /// No instances yet. `open` opens their stores, which have at least these features.
    #[must_use]
    pub fn new(open: OpenInstance, features: &'static [Feature]) -> Self {
        Self { open, features, slots: Mutex::default(), calls: AtomicU64::new(0) }
    }

    /// Makes the instance, or replaces it if the metadata differ. If that fails, the
    /// instance stays as it was. Calls in flight finish on the old store.
    pub async fn init(&self, name: &str, metadata: Metadata) -> Result<(), LockError> {
        // Dropped after the slot, also if the caller goes away.
        let _forgets = Forgets { instances: self, name };
        let slot = self.slot(name)?;
        match timeout(INIT_MAX, self.init_slot(&slot, name, metadata)).await {
            Ok(done) => done,
            Err(_) => Err(LockError::StoreUnavailable(
                format!("Init did not end within {INIT_MAX:?}; is the backend reachable?")
                    .into(),
            )),
        }
    }

    /// The store of an instance, for a call that arrived at `arrived`. While the process
    /// initialises the instance, the call waits, within the `operationTimeout` of the
    /// instance and its own deadline.
    pub async fn store(
        &self,
        name: &str,
        arrived: Instant,
        deadline: Option<Instant>,
    ) -> Result<Store, LockError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let not_initialized = || LockError::NotInitialized { instance: name.to_owned() };
        loop {
            let slot = self.slots().by_name.get(name).cloned().ok_or_else(not_initialized)?;
            // Subscribed before the state is read, so that no change is missed.
            let changed = slot.changed.notified();
            let draining = self.slots().draining;
            let Opening { operation_timeout, why } = match &*slot.state() {
                SlotState::Absent => return Err(not_initialized()),
                SlotState::Live { store, .. } => return Ok(store.clone()),
                SlotState::Opening(_) if draining => return Err(LockError::ShuttingDown),
                SlotState::Opening(opening) => opening.clone(),
            };
            let until = answered_by(arrived, arrived + operation_timeout);
            let before_deadline = deadline.map(|deadline| answered_by(arrived, deadline));
            tokio::select! {
                biased;
                () = changed => {}
                () = sleep_until(before_deadline.map_or(until, |at| at.min(until))) => {
                    return Err(LockError::StoreUnavailable(why));
                }
            }
        }
    }

    /// The features of an instance's store, or if it is not initialised, those that every store
    /// has.
    #[must_use]
    pub fn features(&self, name: &str) -> Vec<Feature> {
        let slot = self.slots().by_name.get(name).cloned();
        let store = slot.and_then(|slot| slot.store());
        store.map_or_else(|| self.features.to_vec(), |store| store.features().to_vec())
    }

    /// How many calls have asked for a store so far.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Records that the process is initialising an instance, and `why` that has
    /// not succeeded yet. Meanwhile, calls wait.
    pub fn opening(&self, name: &str, operation_timeout: Duration, why: &str) {
        let Ok(slot) = self.slot(name) else { return };
        let mut state = slot.state();
        if !matches!(*state, SlotState::Live { .. }) {
            *state = SlotState::Opening(Opening { operation_timeout, why: why.into() });
        }
    }

    /// Whether an instance is ready.
    #[must_use]
    pub fn is_live(&self, name: &str) -> bool {
        let slot = self.slots().by_name.get(name).cloned();
        slot.is_some_and(|slot| slot.store().is_some())
    }

    /// Refuses every Init, Lock and TryLock from now on, and ends every wait.
    pub fn drain(&self) {
        {
            let mut slots = self.slots();
            slots.draining = true;
            slots.by_name.values().for_each(|slot| slot.changed.notify_waiters());
        }
        for store in self.stores() {
            store.drain();
        }
    }

    /// Returns once calls in flight are answered and nothing is left to settle, at `until` at the
    /// latest. Logs if something is left.
    pub async fn retire_by(&self, until: Instant) {
        if timeout_at(until, self.retire()).await.is_err() {
            warn!("some operations are still unsettled; what they left ends with its TTL");
        }
    }

    async fn retire(&self) {
        let replaced = std::mem::take(&mut self.slots().replaced);
        let live: Vec<_> = self.slots().by_name.values().filter_map(|s| s.store()).collect();
        join_all(live.into_iter().map(Store::retire)).await;
        join_all(replaced.into_iter().map(|replaced| replaced.retired)).await;
    }

    async fn init_slot(
        &self,
        slot: &Slot,
        name: &str,
        metadata: Metadata,
    ) -> Result<(), LockError> {
        let _one_at_a_time = slot.init.lock().await;
        if matches!(&*slot.state(), SlotState::Live { metadata: live, .. } if *live == metadata)
        {
            return Ok(());
        }
        let opening = (self.open)(name, metadata.clone(), slot.store());
        let store = opening.instrument(info_span!("instance", name)).await?;
        let mut slots = self.slots();
        slots.replaced.retain(|replaced| !replaced.retired.is_finished());
        if slots.draining {
            slots.replaced.push(Replaced::retire(store));
            return Err(LockError::ShuttingDown);
        }
        if slots.replaced.len() >= REPLACED_MAX {
            slots.replaced.push(Replaced::retire(store));
            return Err(LockError::Overloaded);
        }
        let replaced =
            std::mem::replace(&mut *slot.state(), SlotState::Live { metadata, store });
        slot.changed.notify_waiters();
        if let SlotState::Live { store, .. } = replaced {
            debug!(store = name, "initialised anew, with other metadata");
            slots.replaced.push(Replaced::retire(store));
        } else {
            info!(store = name, "initialised");
        }
        Ok(())
    }

    /// Keeps failed Inits with ever new names from filling the table.
    fn forget_if_absent(&self, name: &str) {
        let mut slots = self.slots();
        let unused = slots.by_name.get(name).is_some_and(|slot| {
            Arc::strong_count(slot) == 1 && matches!(*slot.state(), SlotState::Absent)
        });
        if unused {
            slots.by_name.remove(name);
        }
    }

    fn slot(&self, name: &str) -> Result<Arc<Slot>, LockError> {
        let mut slots = self.slots();
        if slots.draining {
            return Err(LockError::ShuttingDown);
        }
        if !slots.by_name.contains_key(name) && slots.by_name.len() >= INSTANCES_MAX {
            return Err(LockError::Overloaded);
        }
        Ok(Arc::clone(slots.by_name.entry(name.to_owned()).or_default()))
    }

    /// Every store, replaced ones included.
    fn stores(&self) -> Vec<Store> {
        let slots = self.slots();
        let replaced = slots.replaced.iter().map(|replaced| replaced.store.clone());
        slots.by_name.values().filter_map(|slot| slot.store()).chain(replaced).collect()
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock()
    }
}

/// Forgets an instance when dropped, if it was not initialised.
struct Forgets<'a> {
    instances: &'a Instances,
    name: &'a str,
}

impl Drop for Forgets<'_> {
    fn drop(&mut self) {
        self.instances.forget_if_absent(self.name);
    }
}

impl Replaced {
    fn retire(store: Store) -> Self {
        Self { retired: tokio::spawn(store.clone().retire()), store }
    }
}

impl Slot {
    fn store(&self) -> Option<Store> {
        match &*self.state() {
            SlotState::Live { store, .. } => Some(store.clone()),
            SlotState::Absent | SlotState::Opening(_) => None,
        }
    }

    fn state(&self) -> MutexGuard<'_, SlotState> {
        self.state.lock()
    }
}

#[cfg(test)]
mod tests {
    use leasehold_lock::{Clock, Context, Settings};
    use leasehold_memory as memory;
    use tokio::time::sleep;

    use super::*;

    const OPENING: Duration = Duration::from_secs(2);
    const OPERATION_TIMEOUT: Duration = Duration::from_secs(5);

    /// Instances whose stores take two seconds to open.
    fn slow() -> Arc<Instances> {
        let open: OpenInstance = Arc::new(|_, _, _| {
            Box::pin(async {
                sleep(OPENING).await;
                let settings = Settings::default();
                let context = Context::new(settings.clone(), Clock::system());
                Ok(Store::new(Arc::new(memory::Memory::new(&context)), settings))
            })
        });
        Arc::new(Instances::new(open, memory::KIND.features))
    }

    async fn call(instances: &Instances, deadline: Option<Duration>) -> Result<(), LockError> {
        let arrived = Instant::now();
        let deadline = deadline.map(|within| arrived + within);
        instances.store("i", arrived, deadline).await.map(drop)
    }

    #[tokio::test(start_paused = true)]
    async fn an_init_whose_caller_goes_away_leaves_nothing_behind() {
        let instances = slow();
        let init = instances.init("i", Metadata::default());
        assert!(timeout(OPENING / 2, init).await.is_err());
        assert_eq!(instances.slots().by_name.len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_waits_while_the_process_initialises_the_instance() {
        let instances = slow();
        instances.opening("i", OPERATION_TIMEOUT, "connecting");
        let calling = call(&instances, None);
        let (called, opened) = tokio::join!(calling, instances.init("i", Metadata::new()));
        assert_eq!((called, opened), (Ok(()), Ok(())));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_gets_the_reason_why_the_instance_is_not_ready_within_operation_timeout() {
        let instances = slow();
        instances.opening("i", OPERATION_TIMEOUT, "nobody listens there");
        let started = Instant::now();
        let answer = call(&instances, None).await;
        assert_eq!(answer, Err(LockError::StoreUnavailable("nobody listens there".into())));
        assert!(started.elapsed() < OPERATION_TIMEOUT);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_is_answered_before_its_own_deadline() {
        let instances = slow();
        instances.opening("i", OPERATION_TIMEOUT, "connecting");
        let (started, within) = (Instant::now(), Duration::from_secs(1));
        let answer = call(&instances, Some(within)).await;
        assert_eq!(answer, Err(LockError::StoreUnavailable("connecting".into())));
        assert!(started.elapsed() < within);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_waits_for_its_instance_ends_with_a_drain() {
        let instances = slow();
        instances.opening("i", OPERATION_TIMEOUT, "connecting");
        let calling = call(&instances, None);
        let draining = async {
            sleep(Duration::from_millis(10)).await;
            instances.drain();
        };
        assert_eq!(tokio::join!(calling, draining).0, Err(LockError::ShuttingDown));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_to_an_instance_that_nobody_initialises_does_not_wait() {
        let not_initialized = LockError::NotInitialized { instance: "i".to_owned() };
        assert_eq!(call(&slow(), None).await, Err(not_initialized));
    }
}

//! The instances that one socket serves.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::future::{BoxFuture, join_all};
use tokio::{task::JoinHandle, time::timeout};
use tracing::{debug, info};

use crate::lock::{LockError, Store};

/// An Init has ended by then, so that its answer arrives within the 4 s that it
/// may take; daprd waits 5 s.
const INIT_MAX: Duration = Duration::from_millis(3_800);

/// How many replaced stores may still have calls in flight.
const REPLACED_MAX: usize = 1000;

/// How many instances a socket serves. A daprd has one a component YAML.
const INSTANCES_MAX: usize = 1000;

/// The metadata items of an instance.
pub type Metadata = BTreeMap<String, String>;

/// Opens a store with the metadata items of an instance.
pub type OpenInstance =
    Arc<dyn Fn(Metadata) -> BoxFuture<'static, Result<Store, LockError>> + Send + Sync>;

/// Instances by name, each with a store of its own.
pub struct Instances {
    open: OpenInstance,
    slots: Mutex<Slots>,
    calls: AtomicU64,
}

#[derive(Default)]
struct Slots {
    by_name: HashMap<String, Arc<Slot>>,
    draining: bool,
    /// Stores whose calls in flight still end: a drain must reach their waits.
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
    state: Mutex<State>,
}

#[derive(Default)]
enum State {
    /// Nobody has initialised it.
    #[default]
    Absent,
    /// The process itself is trying to, and why it has not succeeded yet.
    Opening(Arc<str>),
    Live {
        metadata: Metadata,
        store: Store,
    },
}

impl Instances {
    /// No instances; `open` makes their stores.
    #[must_use]
    pub fn new(open: OpenInstance) -> Self {
        Self { open, slots: Mutex::default(), calls: AtomicU64::new(0) }
    }

    /// Makes the instance, or replaces it if the metadata differ; if that
    /// fails, what was there stays. Calls in flight finish on the old one.
    pub async fn init(&self, name: &str, metadata: Metadata) -> Result<(), LockError> {
        let slot = self.slot(name)?;
        let ended = timeout(INIT_MAX, self.init_slot(&slot, name, metadata)).await;
        drop(slot);
        self.forget_if_absent(name);
        match ended {
            Ok(done) => done,
            Err(_) => Err(LockError::StoreUnavailable(
                format!("Init did not end within {INIT_MAX:?}; is the backend reachable?")
                    .into(),
            )),
        }
    }

    /// The store of an instance.
    pub fn store(&self, name: &str) -> Result<Store, LockError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.find(name)
    }

    fn find(&self, name: &str) -> Result<Store, LockError> {
        let slot = self.slots().by_name.get(name).cloned();
        let not_initialized = || LockError::NotInitialized { instance: name.to_owned() };
        match &*slot.ok_or_else(not_initialized)?.state() {
            State::Absent => Err(not_initialized()),
            State::Opening(why) => Err(LockError::StoreUnavailable(Arc::clone(why))),
            State::Live { store, .. } => Ok(store.clone()),
        }
    }

    /// How many calls have asked for a store so far.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Notes why an instance that the process initialises by itself is not
    /// ready yet: until then its calls are told so.
    pub fn opening(&self, name: &str, why: &LockError) {
        let Ok(slot) = self.slot(name) else { return };
        let mut state = slot.state();
        if !matches!(*state, State::Live { .. }) {
            *state = State::Opening(why.to_string().into());
        }
    }

    /// Whether an instance is ready.
    #[must_use]
    pub fn is_live(&self, name: &str) -> bool {
        self.find(name).is_ok()
    }

    /// From now on refuses Init, new locks and tries, and ends every wait.
    pub fn drain(&self) {
        self.slots().draining = true;
        for store in self.stores() {
            store.drain();
        }
    }

    /// Waits until calls in flight are answered and nothing is left to settle.
    pub async fn retire(&self) {
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
        if matches!(&*slot.state(), State::Live { metadata: live, .. } if *live == metadata) {
            return Ok(());
        }
        let store = (self.open)(metadata.clone()).await?;
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
        let replaced = std::mem::replace(&mut *slot.state(), State::Live { metadata, store });
        if let State::Live { store, .. } = replaced {
            debug!(instance = name, "initialised anew, with other metadata");
            slots.replaced.push(Replaced::retire(store));
        } else {
            info!(instance = name, "initialised");
        }
        Ok(())
    }

    /// Keeps failed Inits under ever new names from filling the table.
    fn forget_if_absent(&self, name: &str) {
        let mut slots = self.slots();
        let unused = slots.by_name.get(name).is_some_and(|slot| {
            Arc::strong_count(slot) == 1 && matches!(*slot.state(), State::Absent)
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
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
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
            State::Live { store, .. } => Some(store.clone()),
            State::Absent | State::Opening(_) => None,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Instances {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.slots().by_name.keys()).finish()
    }
}

//! The app's stores.

use std::{collections::BTreeMap, sync::Arc};

use leasehold_held::{LockStore, Resource};
use leasehold_lock::{Store, Violation};
use parking_lot::RwLock;

use super::{app_names::AppNames, name::ResourceName};

/// An open component of a lock type.
#[derive(Debug)]
pub struct NamedStore {
    /// Its type, `lock.redis` for example.
    pub kind: String,
    /// Its version, `v1`.
    pub version: String,
    /// The app's names in the store.
    pub names: AppNames,
    /// The store itself, under the component's name.
    pub held: Arc<LockStore>,
}

impl NamedStore {
    /// A component of type `kind`.
    #[must_use]
    pub fn new(
        kind: impl Into<String>,
        version: impl Into<String>,
        names: AppNames,
        store: LockStore,
    ) -> Self {
        Self { kind: kind.into(), version: version.into(), names, held: Arc::new(store) }
    }

    /// The component's name, as the app gives it.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        self.held.name()
    }

    /// Keeps the locks.
    #[must_use]
    pub fn store(&self) -> &Store {
        self.held.store()
    }

    /// Where a resource of the app is locked; the violation names `resource_id` or `namespace`.
    pub fn resource(&self, name: &ResourceName) -> Result<Resource, Violation> {
        Ok(Resource { store: Arc::clone(&self.held), id: self.names.of(name)? })
    }
}

/// The stores that are open. Cheap to clone: all clones share them.
#[derive(Clone, Debug, Default)]
pub struct Stores(Arc<RwLock<BTreeMap<Arc<str>, Arc<NamedStore>>>>);

impl Stores {
    /// Adds a store, unless there is one of that name: it stays until the process ends.
    pub fn insert(&self, store: NamedStore) {
        self.0.write().entry(Arc::clone(store.name())).or_insert_with(|| Arc::new(store));
    }

    /// The store of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Arc<NamedStore>> {
        self.0.read().get(name).cloned()
    }

    /// Whether there are no stores.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.read().is_empty()
    }

    /// All stores, by name.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<NamedStore>> {
        self.0.read().values().cloned().collect()
    }

    /// Makes all stores refuse acquisitions and end their waits.
    pub fn drain(&self) {
        for store in self.all() {
            store.store().drain();
        }
    }
}

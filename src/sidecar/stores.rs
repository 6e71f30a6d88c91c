//! The app's stores.

use std::{collections::BTreeMap, sync::Arc};

use leasehold_held::{LockStore, Resource};
use leasehold_lock::{
    Store, Violation,
    observe::{Counted, Observe},
};
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
    pub lock_store: Arc<LockStore>,
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
        Self { kind: kind.into(), version: version.into(), names, lock_store: Arc::new(store) }
    }

    /// The component's name, as the app gives it.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        self.lock_store.name()
    }

    /// Keeps the locks.
    #[must_use]
    pub fn store(&self) -> &Store {
        self.lock_store.store()
    }

    /// Where a resource of the app is locked; the violation names `resource_id` or `namespace`.
    pub fn resource(&self, name: &ResourceName) -> Result<Resource, Violation> {
        Ok(Resource { lock_store: Arc::clone(&self.lock_store), id: self.names.of(name)? })
    }
}

/// The stores that are open, and why others are not. Cheap to clone: all clones share them.
#[derive(Clone, Debug, Default)]
pub struct Stores(Arc<RwLock<ByName>>);

#[derive(Debug, Default)]
struct ByName {
    open: BTreeMap<Arc<str>, Arc<NamedStore>>,
    /// Never has the name of an open store.
    failed: BTreeMap<String, (Arc<str>, Counted)>,
}

impl Stores {
    /// Adds a store, unless there is one of that name: it stays until the process ends.
    pub fn insert(&self, store: NamedStore) {
        let mut state = self.0.write();
        state.failed.remove(&**store.name());
        state.open.entry(Arc::clone(store.name())).or_insert_with(|| Arc::new(store));
    }

    /// Notes why the store of this name is not open, until it is, or until [`Stores::forget`].
    pub fn note_failed(&self, name: &str, why: &str, observer: Arc<dyn Observe>) {
        let mut state = self.0.write();
        if !state.open.contains_key(name) {
            let failed =
                Counted::new(observer, |observer, change| observer.failed_to_open(change));
            state.failed.insert(name.to_owned(), (why.into(), failed));
        }
    }

    /// The YAML of this store has changed or is gone.
    pub fn forget(&self, name: &str) {
        self.0.write().failed.remove(name);
    }

    /// Why the store of this name is not open, if it should be.
    #[must_use]
    pub fn failure(&self, name: &str) -> Option<Arc<str>> {
        self.0.read().failed.get(name).map(|(why, _)| Arc::clone(why))
    }

    /// The store of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Arc<NamedStore>> {
        self.0.read().open.get(name).cloned()
    }

    /// Whether there are no stores.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.read().open.is_empty()
    }

    /// All stores, by name.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<NamedStore>> {
        self.0.read().open.values().cloned().collect()
    }

    /// Makes all stores refuse acquisitions and end their waits.
    pub fn drain(&self) {
        for store in self.all() {
            store.store().drain();
        }
    }
}

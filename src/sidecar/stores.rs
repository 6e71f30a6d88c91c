//! The stores that an app can name.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::runtime::Handle;

use super::prefix::KeyPrefix;
use crate::lock::{Store, Violation};

/// One component of a lock type, opened.
///
/// Held locks keep the one through which they were acquired, so that a reload
/// leaves them alone; when the last of them is gone, and the component was
/// replaced or removed, its store is retired.
#[derive(Debug)]
pub struct NamedStore {
    /// The component's name, as the app gives it.
    pub name: Arc<str>,
    /// Its type, `lock.redis` for example.
    pub kind: String,
    /// Its version, `v1`.
    pub version: String,
    /// How resources are prefixed.
    pub prefix: KeyPrefix,
    /// What keeps the locks.
    store: StoreHandle,
    runtime: Handle,
    retired: AtomicBool,
}

/// A store, without a `Debug` that would show what is in it.
#[derive(Clone)]
struct StoreHandle(Store);

impl std::fmt::Debug for StoreHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Store")
    }
}

impl NamedStore {
    /// A component of type `kind` over `store`. Must be called within a
    /// runtime.
    #[must_use]
    pub fn new(
        name: impl Into<Arc<str>>,
        kind: impl Into<String>,
        version: impl Into<String>,
        prefix: KeyPrefix,
        store: Store,
    ) -> Self {
        Self {
            name: name.into(),
            kind: kind.into(),
            version: version.into(),
            prefix,
            store: StoreHandle(store),
            runtime: Handle::current(),
            retired: AtomicBool::new(false),
        }
    }

    /// What keeps the locks.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store.0
    }

    /// The store's name of an app's resource; the violation names
    /// `resource_id`.
    pub fn key(&self, resource: &str, app_id: &str) -> Result<String, Violation> {
        self.prefix.apply(resource, &self.name, app_id)
    }
}

impl NamedStore {
    /// Waits until calls in flight are answered, then closes the backend; does
    /// nothing the second time.
    pub async fn retire(&self) {
        if !self.retired.swap(true, Ordering::Relaxed) {
            self.store.0.clone().retire().await;
        }
    }
}

impl Drop for NamedStore {
    fn drop(&mut self) {
        if !*self.retired.get_mut() {
            self.runtime.spawn(self.store.0.clone().retire());
        }
    }
}

/// The stores that there are now. Cheap to clone; all clones are one.
#[derive(Clone, Debug, Default)]
pub struct Stores(Arc<RwLock<BTreeMap<Arc<str>, Arc<NamedStore>>>>);

impl Stores {
    /// Adds a store, or replaces the one of that name. Calls in flight and
    /// held locks stay with the old.
    pub fn insert(&self, store: NamedStore) {
        let replaced = self.write().insert(Arc::clone(&store.name), Arc::new(store));
        drop(replaced);
    }

    /// Removes a store; whether there was one.
    pub fn remove(&self, name: &str) -> bool {
        let removed = self.write().remove(name);
        removed.is_some()
    }

    /// The store of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Arc<NamedStore>> {
        self.read().get(name).cloned()
    }

    /// Whether there is none at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.read().is_empty()
    }

    /// All of them, by name.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<NamedStore>> {
        self.read().values().cloned().collect()
    }

    /// Has every store refuse to acquire and end its waits.
    pub fn drain(&self) {
        for store in self.all() {
            store.store().drain();
        }
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, BTreeMap<Arc<str>, Arc<NamedStore>>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, BTreeMap<Arc<str>, Arc<NamedStore>>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

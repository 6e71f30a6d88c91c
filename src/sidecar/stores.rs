//! The stores that an app can name.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::runtime::Handle;
use tracing::warn;

use super::{app_names::AppNames, name::ResourceName, prefix::KeyPrefix};
use crate::{
    backend::Kind,
    held::{LockStore, StoreId},
    lock::{LockError, LockId, RenewRequest, ResourceId, Store, Violation},
};

/// How many stores may stay open after a reload replaced or removed them, because locks
/// are held through them.
const EARLIER_MAX: usize = 64;

/// An open component of a lock type.
///
/// Held locks keep the store through which they were acquired, so that a reload leaves
/// them alone. The store of a component that was replaced or removed is retired when the
/// last of its locks has gone.
#[derive(Debug)]
pub struct NamedStore {
    id: StoreId,
    /// The component's name, as the app gives it.
    pub name: Arc<str>,
    /// Its type, `lock.redis` for example.
    pub kind: String,
    /// Its version, `v1`.
    pub version: String,
    /// How resources are prefixed.
    pub prefix: KeyPrefix,
    store: StoreHandle,
    runtime: Handle,
    retired: AtomicBool,
    /// Whether the store is known to renew. A store of another process may not.
    renews: AtomicBool,
}

/// A store whose `Debug` shows nothing of it.
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
        let kind: String = kind.into();
        let name_of_kind = kind.strip_prefix("lock.").map(str::to_lowercase);
        let renews = name_of_kind.is_some_and(|name| Kind::named(&name).is_some());
        let renews = AtomicBool::new(renews);
        Self {
            id: StoreId::next(),
            name: name.into(),
            kind,
            version: version.into(),
            prefix,
            store: StoreHandle(store),
            runtime: Handle::current(),
            retired: AtomicBool::new(false),
            renews,
        }
    }

    /// Checks that the store can renew, before a grant that must be renewed. Asks it to
    /// renew a grant of `resource` that does not exist, unless the answer is known.
    pub async fn must_renew(&self, resource: &ResourceId) -> Result<(), LockError> {
        if self.renews.load(Ordering::Relaxed) {
            return Ok(());
        }
        let probe =
            RenewRequest { resource: resource.clone(), lock_id: LockId::random(), ttl: None };
        match self.store().renew(probe).await {
            Err(LockError::Unsupported(answer)) => {
                warn!(store = %self.name, kind = self.kind, answer = &*answer,
                    "the lock store cannot renew; locks are granted with no_renewal only");
                Err(LockError::Unsupported(
                    "this store cannot renew; ask for no_renewal, and for a TTL that is long enough"
                        .into(),
                ))
            }
            // An unknown outcome changed nothing either: the grant does not exist.
            Err(LockError::StoreUnavailable(why) | LockError::OutcomeUnknown(why)) => {
                Err(LockError::StoreUnavailable(why))
            }
            _ => {
                self.renews.store(true, Ordering::Relaxed);
                Ok(())
            }
        }
    }

    /// The store itself.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store.0
    }

    /// The store's name of a resource of the app; the violation names `resource_id` or
    /// `namespace`.
    pub fn name_of(
        &self,
        resource: &ResourceName,
        app_id: &str,
    ) -> Result<ResourceId, Violation> {
        self.prefix.apply_to(resource, &self.name, app_id)
    }

    /// The names in the store that belong to the app.
    #[must_use]
    pub fn names_of(&self, app_id: &str) -> AppNames {
        AppNames::of(&self.prefix, &self.name, app_id)
    }

    /// The same as [`NamedStore::name_of`] of a plain key, as daprd makes it; the violation
    /// names `resource_id`.
    pub fn key(&self, resource: &str, app_id: &str) -> Result<String, Violation> {
        self.prefix.apply(resource, &self.name, app_id)
    }
}

impl NamedStore {
    /// Waits until calls in flight are answered, then closes the backend. A second call
    /// does nothing.
    pub async fn retire(&self) {
        if !self.retired.swap(true, Ordering::Relaxed) {
            self.store.0.clone().retire().await;
        }
    }
}

impl LockStore for NamedStore {
    fn id(&self) -> StoreId {
        self.id
    }

    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn store(&self) -> &Store {
        &self.store.0
    }

    /// The store is asked again before the next grant.
    fn refused_to_renew(&self) {
        self.renews.store(false, Ordering::Relaxed);
    }
}

impl Drop for NamedStore {
    fn drop(&mut self) {
        if !*self.retired.get_mut() {
            self.runtime.spawn(self.store.0.clone().retire());
        }
    }
}

/// The stores that are configured now. Cheap to clone: all clones share them.
#[derive(Clone, Debug, Default)]
pub struct Stores(Arc<RwLock<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    current: BTreeMap<Arc<str>, Arc<NamedStore>>,
    /// Stores that were replaced or removed, as long as calls in flight or held locks keep
    /// them.
    earlier: Vec<Weak<NamedStore>>,
}

impl Inner {
    fn retire(&mut self, store: &Arc<NamedStore>) {
        self.earlier.retain(|earlier| earlier.strong_count() > 0);
        self.earlier.push(Arc::downgrade(store));
    }

    fn earlier(&self) -> impl Iterator<Item = Arc<NamedStore>> {
        self.earlier.iter().filter_map(Weak::upgrade)
    }
}

impl Stores {
    /// Adds a store, or replaces the one of that name. Calls in flight and held locks stay
    /// with the old one; who watches it is told to watch the new one.
    pub fn insert(&self, store: NamedStore) {
        let store = Arc::new(store);
        let mut stores = self.write();
        let replaced = stores.current.insert(Arc::clone(&store.name), store);
        if let Some(replaced) = &replaced {
            stores.retire(replaced);
            replaced.store().end_watches();
        }
        drop(stores);
        drop(replaced);
    }

    /// Removes a store and returns it. Its held locks stay with it.
    pub fn remove(&self, name: &str) -> Option<Arc<NamedStore>> {
        let mut stores = self.write();
        let removed = stores.current.remove(name)?;
        stores.retire(&removed);
        removed.store().end_watches();
        Some(removed)
    }

    /// Whether no more stores may be replaced, because too many of the replaced and removed
    /// ones still have held locks.
    #[must_use]
    pub fn is_crowded(&self) -> bool {
        self.read().earlier().count() >= EARLIER_MAX
    }

    /// The store of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Arc<NamedStore>> {
        self.read().current.get(name).cloned()
    }

    /// The store of this name. If it was removed, the last one, for as long as locks are
    /// held through it.
    #[must_use]
    pub fn newest(&self, name: &str) -> Option<Arc<NamedStore>> {
        let stores = self.read();
        let current = stores.current.get(name).cloned();
        current.or_else(|| stores.earlier().filter(|earlier| &*earlier.name == name).last())
    }

    /// Whether there are no stores.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.read().current.is_empty()
    }

    /// All stores, by name.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<NamedStore>> {
        self.read().current.values().cloned().collect()
    }

    /// All stores, and those replaced or removed that still have held locks or calls in
    /// flight.
    #[must_use]
    pub fn all_and_earlier(&self) -> Vec<Arc<NamedStore>> {
        let stores = self.read();
        stores.current.values().cloned().chain(stores.earlier()).collect()
    }

    /// Makes every store refuse new locks and end its waits.
    pub fn drain(&self) {
        for store in self.all_and_earlier() {
            store.store().drain();
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Inner> {
        self.0.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, Inner> {
        self.0.write()
    }
}

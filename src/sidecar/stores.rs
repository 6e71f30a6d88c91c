//! The app's stores.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use leasehold_held::LockStore;
use leasehold_lock::{LockError, LockId, RenewRequest, ResourceId, Store, Violation};
use parking_lot::RwLock;
use tracing::warn;

use super::{app_names::AppNames, name::ResourceName, prefix::KeyPrefix};

/// An open component of a lock type.
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
    store: StoreHandle,
    /// Whether the store is known to renew. A third-party store may not.
    renews: AtomicBool,
}

/// Wraps a store to hide it in `Debug`.
#[derive(Clone)]
struct StoreHandle(Store);

impl std::fmt::Debug for StoreHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Store")
    }
}

impl NamedStore {
    /// A component of type `kind` over a built-in `store`, which can renew.
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
            renews: AtomicBool::new(true),
        }
    }

    /// A component of type `kind` over a third-party `store`, which may be unable to renew.
    #[must_use]
    pub fn pluggable(
        name: impl Into<Arc<str>>,
        kind: impl Into<String>,
        version: impl Into<String>,
        prefix: KeyPrefix,
        store: Store,
    ) -> Self {
        let renews = AtomicBool::new(false);
        Self { renews, ..Self::new(name, kind, version, prefix, store) }
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
            // An unknown outcome changed nothing: the grant does not exist.
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

    /// Like [`NamedStore::name_of`], for a plain key.
    pub fn key(&self, resource: &str, app_id: &str) -> Result<String, Violation> {
        self.prefix.apply(resource, &self.name, app_id)
    }
}

impl LockStore for NamedStore {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn store(&self) -> &Store {
        &self.store.0
    }

    /// The store is probed again before the next grant.
    fn refused_to_renew(&self) {
        self.renews.store(false, Ordering::Relaxed);
    }
}

/// The stores that are open. Cheap to clone: all clones share them.
#[derive(Clone, Debug, Default)]
pub struct Stores(Arc<RwLock<BTreeMap<Arc<str>, Arc<NamedStore>>>>);

impl Stores {
    /// Adds a store, unless there is one of that name: it stays until the process ends.
    pub fn insert(&self, store: NamedStore) {
        self.0.write().entry(Arc::clone(&store.name)).or_insert_with(|| Arc::new(store));
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

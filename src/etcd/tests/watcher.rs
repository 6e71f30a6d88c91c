//! A watcher of the store, and its events.

use std::collections::{BTreeMap, HashMap};

use leasehold_lock::{
    GrantId, Settings, Store,
    inspect::{EndCause, LockView, Scope, Selection, Watch, WatchEvent},
};
use tokio::time::{Instant, timeout};

use crate::{
    fixture::{SOON, Shared},
    inspection::list,
};

/// A watcher of the whole store, and its events.
pub(crate) struct Watcher {
    watch: Watch,
    pub(crate) table: BTreeMap<String, LockView>,
    pub(crate) ended: HashMap<GrantId, EndCause>,
    /// The names of the changed resources, in the order of events.
    pub(crate) changed: Vec<String>,
    pub(crate) restarts: usize,
    pub(crate) is_synced: bool,
}

impl Watcher {
    /// Watches a store over this backend, and knows what is held.
    pub(crate) async fn start(backend: &Shared) -> Self {
        let store = Store::new(backend.clone(), Settings::default());
        let mut watcher = Self::of(&store);
        watcher.until("all states are reported", |watcher| watcher.is_synced).await;
        watcher
    }

    pub(crate) fn of(store: &Store) -> Self {
        Self {
            watch: store.watch(Scope::prefix("")).unwrap(),
            table: BTreeMap::new(),
            ended: HashMap::new(),
            changed: Vec::new(),
            restarts: 0,
            is_synced: false,
        }
    }

    pub(crate) async fn until(&mut self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let give_up = Instant::now() + 2 * SOON;
        while !holds(self) {
            let left = give_up.saturating_duration_since(Instant::now());
            let event = timeout(left, self.watch.next()).await;
            let event = event.unwrap_or_else(|_| panic!("never came true: {what}"));
            self.fold(event.unwrap());
        }
    }

    fn fold(&mut self, event: WatchEvent) {
        match event {
            WatchEvent::Changed { lock, ended } => {
                let name = lock.resource.as_str().to_owned();
                for ended in ended {
                    self.ended.insert(ended.grant.id.unwrap(), ended.cause);
                }
                self.changed.push(name.clone());
                if lock.grants.is_empty() {
                    self.table.remove(&name);
                } else {
                    self.table.insert(name, lock);
                }
            }
            WatchEvent::Restarted => {
                self.table.clear();
                self.restarts += 1;
                self.is_synced = false;
            }
            WatchEvent::Synced => self.is_synced = true,
        }
    }

    /// Fails unless the table becomes what `backend` lists.
    pub(crate) async fn agrees_with(&mut self, backend: &Shared) {
        let locks = list(backend, &Selection::default(), 1_000).await;
        let name = |lock: &LockView| lock.resource.as_str().to_owned();
        let listed = locks.into_iter().map(|lock| (name(&lock), lock)).collect();
        self.until("the table is what is listed", |watcher| watcher.table == listed).await;
    }
}

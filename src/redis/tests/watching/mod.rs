//! Watching: one poller reads what is watched.

mod costs;
mod events;
mod losses;

use std::collections::{BTreeMap, BTreeSet};

use leasehold_lock::{
    GrantId, Mode, ResourceId,
    inspect::{GrantView, Listing, LockView, PageRequest, Scope, Watch, WatchEvent},
};

use super::*;

/// The grants of each held resource.
type Held = BTreeMap<String, BTreeSet<GrantId>>;

fn ids(grants: &[GrantView]) -> BTreeSet<GrantId> {
    grants.iter().filter_map(|grant| grant.id).collect()
}

/// The events of a watch, folded.
struct Table {
    watch: Watch,
    held: Held,
    /// The total of the last state.
    grants_total: usize,
    synced: bool,
    restarts: usize,
}

impl Table {
    fn of(store: &Store, scope: Scope) -> Self {
        let watch = store.watch(scope).unwrap();
        Self { watch, held: Held::new(), grants_total: 0, synced: false, restarts: 0 }
    }

    /// Returns once all states are reported.
    async fn synced(store: &Store, scope: Scope) -> Self {
        let mut table = Self::of(store, scope);
        table.until("synced", |table| table.synced).await;
        table
    }

    async fn read(&mut self) {
        match self.watch.next().await.unwrap() {
            WatchEvent::Changed { lock, .. } if lock.grants.is_empty() => {
                self.grants_total = lock.grants_total;
                self.held.remove(lock.resource.as_str());
            }
            WatchEvent::Changed { lock, .. } => {
                self.grants_total = lock.grants_total;
                self.held.insert(lock.resource.to_string(), ids(&lock.grants));
            }
            WatchEvent::Synced => self.synced = true,
            WatchEvent::Restarted => {
                (self.held, self.synced) = (Held::new(), false);
                self.restarts += 1;
            }
        }
    }

    async fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let reads = async {
            while !is_so(self) {
                self.read().await;
            }
        };
        let ended = tokio::time::timeout(SECOND * 30, reads).await;
        assert!(ended.is_ok(), "never reported: {what}; reported are {:?}", self.held);
    }

    /// Reads until all states are reported and equal a list of `prefix`.
    async fn until_listed(&mut self, store: &Store, prefix: &str) {
        let deadline = Instant::now() + SECOND * 30;
        loop {
            let listed = listed(store, prefix).await;
            if self.synced && self.held == listed {
                return;
            }
            assert!(Instant::now() < deadline, "reported: {:?}, listed: {listed:?}", self.held);
            let _ = tokio::time::timeout(SECOND / 5, self.read()).await;
        }
    }
}

async fn listed(store: &Store, prefix: &str) -> Held {
    let mut listing = Listing {
        scope: Scope::prefix(prefix),
        holder_prefix: String::new(),
        page: PageRequest::first(100),
    };
    let mut held = Held::new();
    loop {
        let page = store.list(&listing).await.unwrap();
        let ids = |lock: LockView| (lock.resource.to_string(), ids(&lock.grants));
        held.extend(page.items.into_iter().map(ids));
        listing.page.after = page.next;
        if listing.page.after.is_none() {
            return held;
        }
    }
}

fn everything() -> Scope {
    Scope::prefix("")
}

fn only(name: &str) -> Scope {
    Scope::resource(ResourceId::new(name).unwrap())
}

/// Random numbers that are the same in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }
}

/// Grants, renews, releases and forces at random, over two processes.
async fn change_at_random(stores: [&Store; 2], dice: &mut Dice, steps: usize) {
    let mut held = Vec::new();
    for _ in 0..steps {
        let store = stores[dice.below(2)];
        match dice.below(7) {
            0..4 => {
                let name = format!("r/{}", dice.below(40));
                let mode = if dice.below(2) == 0 { Mode::Shared } else { Mode::Exclusive };
                let ttl = if dice.below(4) == 0 { SECOND } else { MINUTE };
                let request = AcquireRequest { mode, ..request(&name, ttl) };
                if let Ok(granted) = store.try_lock(request).await {
                    granted.receipt.accept();
                    held.push((name, granted));
                }
            }
            4..6 if !held.is_empty() => {
                let (name, granted) = held.swap_remove(dice.below(held.len()));
                // It may have expired, or have been forced.
                let _ = store.unlock(unlock(&granted, &name)).await;
            }
            _ => {
                let _ = store.unlock(force(&format!("r/{}", dice.below(40)))).await;
            }
        }
    }
}

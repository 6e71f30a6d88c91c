//! Defects by which other names and other tries affect a try.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use leasehold_lock::ResourceId;
use tokio::time::sleep;

/// One refused try in this many takes [`LINGER`] to leave the queue.
const LINGERS: u64 = 20;
/// Long enough that the tries after an Unlock meet it even on a busy machine.
const LINGER: Duration = Duration::from_millis(40);

/// The names that are held, and the tries that were refused and have not left
/// the queue yet.
#[derive(Default)]
pub struct Neighbours {
    held: Mutex<BTreeSet<String>>,
    lingering: Mutex<BTreeMap<String, usize>>,
    refused: AtomicU64,
}

impl Neighbours {
    pub fn granted(&self, resource: &ResourceId) {
        lock(&self.held).insert(resource.as_str().to_owned());
    }

    pub fn unlocked(&self, resource: &ResourceId) {
        lock(&self.held).remove(resource.as_str());
    }

    /// Whether a name is held that continues this one after a slash.
    pub fn one_below_is_held(&self, resource: &ResourceId) -> bool {
        let below = format!("{}/", resource.as_str());
        lock(&self.held).iter().any(|held| held.starts_with(&below))
    }

    /// Whether a name is held that this one continues after a slash.
    pub fn one_above_is_held(&self, resource: &ResourceId) -> bool {
        lock(&self.held).iter().any(|held| resource.as_str().starts_with(&format!("{held}/")))
    }

    pub fn is_in_the_way(&self, resource: &ResourceId) -> bool {
        lock(&self.lingering).get(resource.as_str()).is_some_and(|count| *count > 0)
    }

    /// A refused try leaves the queue, sometimes after a while.
    pub async fn leave(&self, resource: &ResourceId) {
        if !self.refused.fetch_add(1, Ordering::Relaxed).is_multiple_of(LINGERS) {
            return;
        }
        let name = resource.as_str().to_owned();
        *lock(&self.lingering).entry(name.clone()).or_default() += 1;
        sleep(LINGER).await;
        *lock(&self.lingering).entry(name).or_default() -= 1;
    }
}

/// The name with its repeated slashes merged.
pub fn merged(resource: &ResourceId) -> ResourceId {
    let mut name = resource.as_str().to_owned();
    while name.contains("//") {
        name = name.replace("//", "/");
    }
    ResourceId::new(&name).unwrap()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap()
}

//! What a case left in the store, and its removal.

use std::collections::BTreeMap;

use futures_util::{StreamExt as _, stream};
use parking_lot::{Mutex, MutexGuard};
use tokio::task::AbortHandle;

use crate::store::Store;

const CLEANING_CALLS_MAX: usize = 16;

/// Everything that one case asked for. Filled by the calls themselves, so
/// that no case can forget to.
#[derive(Default)]
pub(crate) struct Litter {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waits: Vec<AbortHandle>,
    resources: BTreeMap<String, Left>,
}

struct Left {
    store: Store,
    lock_ids: Vec<String>,
}

impl Litter {
    pub(crate) fn started(&self, wait: AbortHandle) {
        self.lock().waits.push(wait);
    }

    /// Notes a grant that may exist; an empty lock ID stands for one that
    /// only the store knows.
    pub(crate) fn asked(&self, store: &Store, resource: &str, lock_id: &str) {
        let mut state = self.lock();
        let left = state
            .resources
            .entry(resource.to_owned())
            .or_insert_with(|| Left { store: store.clone(), lock_ids: Vec::new() });
        if !lock_id.is_empty() && !left.lock_ids.iter().any(|known| known == lock_id) {
            left.lock_ids.push(lock_id.to_owned());
        }
    }

    pub(crate) fn ended(&self, resource: &str, lock_id: &str) {
        if let Some(left) = self.lock().resources.get_mut(resource) {
            left.lock_ids.retain(|known| known != lock_id);
        }
    }

    /// Ends the waits, then the grants. What is left after that ends with its
    /// TTL: a store that fails to unlock is told by the cases on Unlock.
    pub(crate) async fn clear(&self, by_force: bool) {
        let State { waits, resources } = std::mem::take(&mut *self.lock());
        for wait in waits {
            wait.abort();
        }
        stream::iter(resources)
            .for_each_concurrent(CLEANING_CALLS_MAX, |(resource, left)| async move {
                for lock_id in &left.lock_ids {
                    let _ = left.store.unlock(&resource, lock_id).await;
                }
                if by_force {
                    let _ = left.store.force(&resource).await;
                }
            })
            .await;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

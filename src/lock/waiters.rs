//! The limit on the waiters of a store.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::BackendError;

/// Counts the waiters of one store and refuses those above its limit.
#[derive(Clone, Debug)]
pub struct WaiterBudget(Arc<Semaphore>);

/// A place in a [`WaiterBudget`], which is free again when this is dropped.
pub type WaiterSlot = OwnedSemaphorePermit;

impl WaiterBudget {
    /// A budget of `waiters_max` places, all free.
    #[must_use]
    pub fn new(waiters_max: usize) -> Self {
        Self(Arc::new(Semaphore::new(waiters_max)))
    }

    /// Takes a place.
    pub fn enter(&self) -> Result<WaiterSlot, BackendError> {
        let slot = Arc::clone(&self.0).try_acquire_owned();
        slot.map_err(|_| BackendError::TooManyWaiters("the store's limit is reached"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_free_again_when_its_slot_is_dropped() {
        let budget = WaiterBudget::new(1);
        let slot = budget.enter().unwrap();
        assert!(matches!(budget.enter(), Err(BackendError::TooManyWaiters(_))));
        drop(slot);
        assert!(budget.enter().is_ok());
    }
}

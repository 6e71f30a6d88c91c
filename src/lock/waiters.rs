//! The limit on the waiters of a store.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use super::BackendError;

/// Counts the waiters of one store and refuses those above its limit.
#[derive(Clone, Debug)]
pub struct WaiterBudget {
    waiting: Arc<AtomicUsize>,
    waiters_max: usize,
}

impl WaiterBudget {
    /// A budget of `waiters_max` places, all free.
    #[must_use]
    pub fn new(waiters_max: usize) -> Self {
        Self { waiting: Arc::default(), waiters_max }
    }

    /// Takes a place. Dropping the slot gives it back.
    pub fn enter(&self) -> Result<WaiterSlot, BackendError> {
        let taken =
            self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |waiting| {
                (waiting < self.waiters_max).then_some(waiting + 1)
            });
        match taken {
            Ok(_) => Ok(WaiterSlot(Arc::clone(&self.waiting))),
            Err(_) => Err(BackendError::TooManyWaiters("the store's limit is reached")),
        }
    }
}

/// A place in a [`WaiterBudget`].
#[derive(Debug)]
pub struct WaiterSlot(Arc<AtomicUsize>);

impl Drop for WaiterSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
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

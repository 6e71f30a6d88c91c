//! The table behind its mutex, and the task that ends its grants when they expire.

use std::sync::Arc;

use leasehold_lock::{
    Attempt, BackendError, Context, Grant, Instant, ResourceId, WaiterBudget, sleep_until,
};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;

use super::{
    slot::Ticket,
    table::{Entered, Table},
};

/// The table and its sweeper, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct SweptTable {
    shared: Arc<Shared>,
    _sweeper: AbortOnDropHandle<()>,
}

#[derive(Debug)]
struct Shared {
    table: Mutex<Table>,
    /// Notified when a grant expires earlier than the one that the sweeper waits for.
    sooner: Notify,
}

impl SweptTable {
    pub(super) fn new(context: &Context) -> Self {
        let table = Table::new(context.clock.clone(), &context.settings);
        let shared = Arc::new(Shared { table: Mutex::new(table), sooner: Notify::new() });
        let sweeper = tokio::spawn(Arc::clone(&shared).sweep());
        Self { shared, _sweeper: AbortOnDropHandle::new(sweeper) }
    }

    /// Runs one operation.
    pub(super) fn with<T>(&self, operation: impl FnOnce(&mut Table, Instant) -> T) -> T {
        self.shared.with_table(operation)
    }

    pub(super) async fn lock(
        &self,
        attempt: &Attempt,
        waiters: &WaiterBudget,
    ) -> Result<Grant, BackendError> {
        let entered = self.with(|table, now| table.enter(attempt, waiters, now))?;
        match entered {
            Entered::Granted(grant) => Ok(grant),
            Entered::Waiting(ticket, turn) => {
                let _place =
                    QueueGuard { shared: &self.shared, resource: &attempt.resource, ticket };
                // The sender is dropped without a grant only when tokens have run out.
                turn.await.unwrap_or_else(|_| {
                    Err(BackendError::Unavailable("there are no greater tokens".into()))
                })
            }
        }
    }

    /// Reads the table.
    pub(super) fn read<T>(&self, read: impl FnOnce(&Table, Instant) -> T) -> T {
        self.with(|table, now| {
            table.expire(now);
            read(table, now)
        })
    }
}

impl Shared {
    /// Runs one operation, and wakes the sweeper if the next expiry is now earlier.
    fn with_table<T>(&self, operation: impl FnOnce(&mut Table, Instant) -> T) -> T {
        let mut table = self.table.lock();
        let before = table.next_expiry();
        let result = operation(&mut table, Instant::now());
        let after = table.next_expiry();
        drop(table);
        if after.is_some_and(|after| before.is_none_or(|before| after < before)) {
            self.sooner.notify_one();
        }
        result
    }

    async fn sweep(self: Arc<Self>) {
        loop {
            let next = {
                let mut table = self.table.lock();
                table.expire(Instant::now());
                table.next_expiry()
            };
            match next {
                None => self.sooner.notified().await,
                Some(at) => tokio::select! {
                    () = sleep_until(at) => {}
                    () = self.sooner.notified() => {}
                },
            }
        }
    }
}

/// A waiter in a queue, which is removed when the wait is dropped. If the wait was
/// granted at that moment, the domain releases the grant by its attempt.
struct QueueGuard<'a> {
    shared: &'a Shared,
    resource: &'a ResourceId,
    ticket: Ticket,
}

impl Drop for QueueGuard<'_> {
    fn drop(&mut self) {
        self.shared.with_table(|table, now| table.leave(self.resource, self.ticket, now));
    }
}

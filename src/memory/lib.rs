//! Locks in the memory of this process. They end with the process. This backend is the
//! default, and the reference for the behaviour of the others.
//!
//! The locks are in one [`table::Table`] with a mutex, which is never held across an await. A
//! sweeper task ends grants when their TTL is over.

mod changes;
mod holders;
mod inspect;
#[cfg(test)]
mod inspect_tests;
mod ledger;
#[cfg(test)]
mod shared_tests;
mod slot;
mod swept;
mod table;
#[cfg(test)]
mod table_tests;

use std::{any::Any, sync::Arc};

use async_trait::async_trait;
use leasehold_lock::{
    Attempt, Backend, BackendError, Connect, Context, Feature, Grant, Kind, Release, Renewal,
    Renewed, Settings, WaiterBudget, inspect::Inspect, properties::Properties,
};
use tokio::time::Instant;

use swept::SweptTable;

/// The memory backend. Each instance is a separate store.
pub const KIND: Kind =
    Kind { name: "memory", commits_groups: false, features: FEATURES, url: None, read };

const FEATURES: &[Feature] = &[
    Feature::Fencing,
    Feature::ForceUnlock,
    Feature::Fair,
    Feature::Replay,
    Feature::Linearizable,
    Feature::Shared,
    Feature::Inspection,
    Feature::Watch,
];

fn read(_: &mut Properties) -> Connect {
    Box::new(|context| {
        Box::pin(async move {
            let before = context.before.as_deref();
            let before =
                before.and_then(|before| (before as &dyn Any).downcast_ref::<Memory>());
            let memory = match before {
                Some(before) => before.with_settings(&context.settings),
                None => Memory::new(&context),
            };
            Ok(Arc::new(memory) as Arc<dyn Backend>)
        })
    })
}

/// Locks kept in this process.
#[derive(Debug)]
pub struct Memory {
    /// Shared with the stores that this one replaces, and with those that replace it.
    table: Arc<SweptTable>,
    waiters: WaiterBudget,
}

impl Memory {
    /// An empty store. Must be called within a runtime.
    #[must_use]
    pub fn new(context: &Context) -> Self {
        Self::over(Arc::new(SweptTable::new(context)), &context.settings)
    }

    /// A store with the same locks and waiters, and other limits.
    fn with_settings(&self, settings: &Settings) -> Self {
        self.table.with(|table, now| table.set_limits(settings, now));
        Self::over(Arc::clone(&self.table), settings)
    }

    fn over(table: Arc<SweptTable>, settings: &Settings) -> Self {
        Self { table, waiters: WaiterBudget::new(settings.waiters_max) }
    }

    /// How many resources have a record: those held or waited for.
    #[must_use]
    pub fn records(&self) -> usize {
        self.table.with(|table, _| table.records())
    }
}

#[async_trait]
impl Backend for Memory {
    fn features(&self) -> &[Feature] {
        FEATURES
    }

    async fn try_lock(&self, attempt: &Attempt, _: Instant) -> Result<Grant, BackendError> {
        self.table.with(|table, now| table.try_lock(attempt, now))
    }

    async fn lock(&self, attempt: &Attempt) -> Result<Grant, BackendError> {
        self.table.lock(attempt, &self.waiters).await
    }

    async fn renew(&self, renewal: &Renewal, _: Instant) -> Result<Renewed, BackendError> {
        self.table.with(|table, now| table.renew(renewal, now))
    }

    async fn unlock(&self, release: &Release, _: Instant) -> Result<(), BackendError> {
        self.table.with(|table, now| table.unlock(release, now))
    }

    async fn ping(&self, _: Instant) -> Result<(), BackendError> {
        Ok(())
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        Some(self)
    }

    async fn close(&self) {}
}

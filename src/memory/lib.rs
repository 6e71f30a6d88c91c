//! Locks in the memory of this process. They end with the process. This backend is the
//! default, and the reference for the behaviour of the others.
//!
//! Resources are divided over several [`table::Table`]s by the hash of their names, so that
//! a table that grows does not delay all calls. Each table has a mutex, which is never held
//! across an await, and a sweeper task, which ends grants when their TTL is over.

mod changes;
mod holders;
mod inspect;
#[cfg(test)]
mod inspect_tests;
mod ledger;
mod shard;
#[cfg(test)]
mod shared_tests;
mod slot;
mod table;
#[cfg(test)]
mod table_tests;

use std::{
    any::Any,
    hash::{BuildHasher as _, RandomState},
    sync::Arc,
};

use async_trait::async_trait;
use leasehold_lock::{
    Attempt, Backend, BackendError, Connect, Context, Feature, Grant, Kind, Release, Renewal,
    Renewed, ResourceId, Settings, WaiterBudget, inspect::Inspect, properties::Properties,
};
use tokio::time::Instant;

use shard::Shard;

/// The memory backend. Each instance is a separate store.
pub const KIND: Kind = Kind { name: "memory", commits_groups: false, features: FEATURES, read };

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

/// Enough for the tables of a million locks to grow in short steps.
const SHARDS: usize = 16;

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
    shards: Arc<[Shard]>,
    hasher: RandomState,
    waiters: WaiterBudget,
}

impl Memory {
    /// An empty store. Must be called within a runtime.
    #[must_use]
    pub fn new(context: &Context) -> Self {
        Self::with_tables(context, SHARDS)
    }

    /// An empty store with this many tables, at least one. With one table, grants that end
    /// at the same instant end in the order of their tokens, so that a simulated schedule
    /// can be repeated.
    #[must_use]
    pub fn with_tables(context: &Context, tables: usize) -> Self {
        let shard = |_| Shard::new(context);
        Self {
            shards: (0..tables.max(1)).map(shard).collect(),
            hasher: RandomState::new(),
            waiters: WaiterBudget::new(context.settings.waiters_max),
        }
    }

    /// A store with the same locks and waiters, and other limits.
    fn with_settings(&self, settings: &Settings) -> Self {
        for shard in &*self.shards {
            shard.with(|table, now| table.set_limits(settings, now));
        }
        Self {
            shards: Arc::clone(&self.shards),
            hasher: self.hasher.clone(),
            waiters: WaiterBudget::new(settings.waiters_max),
        }
    }

    /// How many resources have a record: those held or waited for.
    #[must_use]
    pub fn records(&self) -> usize {
        self.shards.iter().map(|shard| shard.with(|table, _| table.records())).sum()
    }

    fn shard(&self, resource: &ResourceId) -> &Shard {
        let hash = self.hasher.hash_one(resource);
        &self.shards[usize::try_from(hash % self.shards.len() as u64).unwrap_or(0)]
    }
}

#[async_trait]
impl Backend for Memory {
    fn features(&self) -> &[Feature] {
        FEATURES
    }

    async fn try_lock(&self, attempt: &Attempt, _: Instant) -> Result<Grant, BackendError> {
        self.shard(&attempt.resource).with(|table, now| table.try_lock(attempt, now))
    }

    async fn lock(&self, attempt: &Attempt) -> Result<Grant, BackendError> {
        self.shard(&attempt.resource).lock(attempt, &self.waiters).await
    }

    async fn renew(&self, renewal: &Renewal, _: Instant) -> Result<Renewed, BackendError> {
        self.shard(&renewal.resource).with(|table, now| table.renew(renewal, now))
    }

    async fn unlock(&self, release: &Release, _: Instant) -> Result<(), BackendError> {
        self.shard(&release.resource).with(|table, now| table.unlock(release, now))
    }

    async fn ping(&self, _: Instant) -> Result<(), BackendError> {
        Ok(())
    }

    fn inspect(&self) -> Option<&dyn Inspect> {
        Some(self)
    }

    async fn close(&self) {}
}

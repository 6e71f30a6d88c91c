//! etcd: the safest backend.
//!
//! A grant is a key under a lease of its own; its token is the key's creation
//! revision. Two things make it fast: concurrent writes travel as nested
//! transactions of one etcd transaction ([`committer`]), and leases are kept
//! for reuse instead of being granted and revoked per lock ([`leases`]).
//!
//! ```text
//! backend ── acquire, wait, release, renew ── the verbs
//!    │            │        │
//!    │         queue ── mirror      who waits, and whose turn it is
//!    │            │
//!    │         watch ── stream      all queues' watches over one stream
//!    │            │
//!    ├── session ── sweep           its entries that nobody waits with
//!    │            │      grants     what this process itself made
//!    ├── moves    │       turns     to new leases, after an election
//!    ├── leases ──┴── keeper        leases for reuse, and what keeps them alive
//!    ├── looks                      reads that travel together
//!    └── committer ── batcher       group commit
//!             │
//!        connection ── failure      one endpoint at a time, the next on a loss
//!             └─ terms              of the leaders seen
//! ```

mod acquire;
mod backend;
mod background;
mod batcher;
mod committer;
mod config;
mod connection;
mod dial;
mod failure;
#[cfg(any(fuzzing, test))]
#[path = "../../fuzzing/etcd.rs"]
pub(crate) mod fuzzing;
mod grants;
mod keeper;
mod keys;
mod leases;
mod looks;
mod mirror;
mod moves;
mod op;
mod pool;
mod queue;
mod record;
mod release;
mod renew;
mod replay;
#[cfg(test)]
mod schedules;
mod session;
mod silence;
mod sweep;
mod terms;
mod turns;
mod wait;
mod watch;

use std::sync::Arc;

use super::{Kind, OpenError};
use backend::EtcdBackend;
use config::Config;

/// The kind.
pub(super) const KIND: Kind = Kind {
    name: "etcd",
    commits_groups: true,
    features: backend::FEATURES,
    read: |properties| {
        let config = Config::read(properties);
        Box::new(move |context| {
            Box::pin(async move {
                let backend = EtcdBackend::open(config, context.settings).await?;
                Ok::<Arc<dyn crate::lock::Backend>, OpenError>(Arc::new(backend))
            })
        })
    },
};

//! etcd: the safest backend.
//!
//! A grant is a key under a lease of its own; its token is the key's creation
//! revision. Two things make it fast: concurrent writes travel as nested
//! transactions of one etcd transaction ([`commit`]), and leases are kept
//! for reuse instead of being granted and revoked per lock ([`lease`]).
//!
//! ```text
//! backend            puts the parts together
//!    │
//!  verbs/             the port's verbs: try, wait, renew, release, inspect
//!    │
//!  grants/            finds grants, and writes each under a lease of its own
//!  queue/             who waits and whose turn it is: mirrors, watches, the session
//!  etcd               the connection, the writes and the reads, as all parts share them
//!  commit/            group commit: every write goes through it
//!  lease/             leases for reuse, their keep-alives, those to be revoked
//!  client/            one connection at a time, failures, reads that travel together
//! ```
//!
//! A folder imports only what stands below it.

mod backend;
mod background;
mod client;
mod commit;
mod config;
mod etcd;
#[cfg(any(fuzzing, test))]
#[doc(hidden)]
pub mod fuzzing;
mod grants;
mod keys;
mod lease;
mod queue;
mod record;
mod revision;
#[cfg(test)]
mod tests;
mod verbs;
mod waiter_record;

use std::sync::Arc;

use leasehold_lock::{Kind, OpenError, UrlForm};

use backend::EtcdBackend;
use config::Config;

/// The kind.
pub const KIND: Kind = Kind {
    name: "etcd",
    commits_groups: true,
    features: backend::FEATURES,
    url: Some(UrlForm {
        schemes: &[("etcd", &[])],
        hosts: "endpoints",
        path: "keyPrefixPath",
        path_has_slash: true,
        username: "username",
        password: "password",
        secrets: &["password", "key"],
        pem: &["ca", "cert"],
        refused: &["username", "password", "keyPrefixPath"],
    }),
    read: |properties| {
        let config = Config::read(properties);
        Box::new(move |context| {
            Box::pin(async move {
                let backend = EtcdBackend::open(config, context).await?;
                Ok::<Arc<dyn leasehold_lock::Backend>, OpenError>(Arc::new(backend))
            })
        })
    },
};

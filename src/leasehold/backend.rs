//! The backends, which keep the locks.
//!
//! [`KINDS`] is the only list of them.

use leasehold_lock::Kinds;

/// Every backend that this build has, each a cargo feature of its name, except memory, which the
/// tests compare the others with. To add one, add its [`Kind`](leasehold_lock::Kind) here.
pub const KINDS: Kinds = Kinds {
    built_in: &[
        #[cfg(feature = "etcd")]
        leasehold_etcd::KIND,
        leasehold_memory::KIND,
        #[cfg(feature = "redis")]
        leasehold_redis::KIND,
    ],
    features: &["etcd", "redis"],
};

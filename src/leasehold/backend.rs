//! The backends, which keep the locks.
//!
//! [`KINDS`] is the only list of them.

use leasehold_lock::Kind;

/// Every backend there is. To add one, add its [`Kind`] here.
pub const KINDS: &[Kind] =
    &[leasehold_etcd::KIND, leasehold_memory::KIND, leasehold_redis::KIND];

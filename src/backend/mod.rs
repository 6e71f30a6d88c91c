//! The backends, which keep the locks.
//!
//! [`KINDS`] is the only list of them.

pub(crate) mod etcd;
pub mod memory;
pub mod pluggable;
pub(crate) mod redis;

use leasehold_lock::Kind;

/// Every backend there is. To add one, add its [`Kind`] here.
pub const KINDS: &[Kind] = &[etcd::KIND, memory::KIND, redis::KIND];

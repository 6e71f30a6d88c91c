//! A distributed lock store for Dapr: a pluggable component over etcd leases,
//! Redis or memory.
//!
//! - [`lock`]: the domain and the port that backends implement.
//! - [`backend`]: memory, Redis, etcd: adapters of that port.
//!
//! Dependencies point inward: edges → `lock` ← backends.

pub mod backend;
pub mod lock;
pub mod properties;

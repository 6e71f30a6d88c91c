//! A distributed lock store for Dapr: a pluggable component over etcd leases,
//! Redis or memory.
//!
//! - [`backend`]: memory, Redis, etcd: adapters of that port.
//! - [`command`]: the command line, and the start of each command.
//! - [`runtime`], [`telemetry`]: what the process has once.
//!
//! Dependencies point inward: edges → `lock` ← backends.

pub mod backend;
pub mod command;
#[cfg(any(fuzzing, test))]
#[doc(hidden)]
pub mod fuzzing;
pub mod runtime;
pub mod telemetry;

//! A distributed lock store for Dapr: a pluggable component over etcd leases,
//! Redis or memory.
//!
//! - [`backend`]: memory, Redis, etcd: adapters of that port.
//! - [`command`]: the command line, and the start of each command.
//! - [`component`]: the pluggable component, on Unix sockets.
//! - [`front`]: the Redis front, for clients that speak the protocol of Redis.
//! - [`sidecar`]: the edge that speaks the Dapr API to an app.
//! - [`runtime`], [`telemetry`]: what the process has once.
//!
//! Dependencies point inward: edges → `lock` ← backends.

pub mod backend;
pub mod command;
pub mod component;
pub mod front;
#[cfg(any(fuzzing, test))]
#[doc(hidden)]
pub mod fuzzing;
pub mod runtime;
pub mod sidecar;
pub mod telemetry;

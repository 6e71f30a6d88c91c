//! A distributed lock store for Dapr: a pluggable component over etcd leases,
//! Redis or memory.
//!
//! - [`lock`]: the domain and the port that backends implement.
//! - [`backend`]: memory, Redis, etcd: adapters of that port.
//! - [`component`]: the pluggable component, on Unix sockets.
//! - [`sidecar`]: the edge that speaks the Dapr API to an app.
//! - `edge`: what both edges know of their transport.
//! - `net`: their sockets and connections.
//! - `retry` and `error_chain`: delays between tries, and the causes of errors.
//! - [`cork`]: connections that delay a flush by one scheduler turn.
//!
//! Dependencies point inward: edges → `lock` ← backends.

pub mod backend;
pub mod cli;
pub mod component;
pub mod cork;
mod edge;
mod error_chain;
#[cfg(any(fuzzing, test))]
#[doc(hidden)]
pub mod fuzzing;
pub mod lock;
pub mod manifest;
mod net;
pub mod properties;
mod retry;
pub mod runtime;
pub mod serve;
pub mod sidecar;
pub mod signals;
pub mod telemetry;

//! A distributed lock store for Dapr: a pluggable component over etcd leases,
//! Redis or memory.
//!
//! The program. What it puts together are crates of their own, beside this one:
//!
//! - `lock`: the domain, and the port that backends implement.
//! - `memory`, `redis`, `etcd`, `pluggable`: adapters of that port.
//! - `component`, `sidecar`, `front`: the edges; `held`: renews locks for the sidecar.
//! - `net`: the server under all three edges; `manifest`: component YAML.
//! - `util`: what all of them may use; `testing`: what their tests share.
//!
//! Here are:
//!
//! - [`backend`]: which backends there are.
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

//! A distributed lock store for Dapr: a pluggable component over etcd leases,
//! Redis or memory.
//!
//! The program. Its parts are crates beside this one:
//!
//! - `lock`: the domain, and the port that backends implement.
//! - `memory`, `redis`, `etcd`, `pluggable`: adapters of that port.
//! - `component`, `sidecar`, `front`, `tools`: the edges; `held`: renews locks for the sidecar.
//! - `net`: the server under all three edges; `manifest`: component YAML.
//! - `metrics`: what is observed, for Prometheus, and the probes.
//! - `util`: shared utilities; `testing`: shared code of tests.
//!
//! This crate has:
//!
//! - [`backend`]: the list of backends.
//! - [`command`]: the command line, and the start of each command.
//! - [`runtime`], [`telemetry`]: the process's threads and logs.
//!
//! Dependencies point inward: edges → `lock` ← backends.

pub mod backend;
pub mod command;
#[cfg(any(fuzzing, test))]
#[doc(hidden)]
pub mod fuzzing;
pub mod runtime;
pub mod telemetry;

//! Metrics for Prometheus, and the probes.
//!
//! - [`Metrics`]: every series of a process, and its text.
//! - `families`: the names, labels and buckets; `store`: the series of one store, which
//!   implement [`Observe`](leasehold_lock::observe::Observe); `waits`: how long the oldest wait
//!   lasts.
//! - `process`: the series of the process itself.
//! - [`Endpoint`]: `/metrics`, `/livez` and `/readyz`; [`MetricsArgs`]: its flags.
//!
//! What each series counts is described in `docs/metrics.md`.

mod args;
mod endpoint;
mod families;
mod metrics;
#[cfg(target_os = "linux")]
mod process;
mod store;
mod waits;

pub use args::MetricsArgs;
pub use endpoint::Endpoint;
pub use metrics::{Metrics, Role};
pub use prometheus::Error;

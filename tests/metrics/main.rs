//! Metrics and probes of the real binary, by its commands on the memory store.
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test"
)]

mod commands;
mod observability;
mod probed;
mod reconnects;
mod scrape;
mod sidecar;

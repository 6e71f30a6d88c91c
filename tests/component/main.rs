//! The component as a process: its sockets, its instances, its logs, its end.
//!
//! What any lock store must do is held by the conformance suite; here is what
//! leasehold's own command promises beyond it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    unreachable_pub,
    reason = "a test"
)]

mod client;

mod command_line;
mod connections;
mod drain;
mod errors;
mod inspection;
mod instances;
mod logs;
mod self_init;
mod services;
mod sockets;
mod stalled_log;

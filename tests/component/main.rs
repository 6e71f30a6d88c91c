//! The component as a process: its sockets, its instances, its logs, its end.
//!
//! The conformance suite checks what any lock store must do; here are the
//! promises of leasehold's own command.
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

//! `leasehold lock`, the program: real process trees, and what goes wrong around them.
//!
//! - [`stage`]: stores, the program, and who runs.
//! - [`running`]: commands that are run; [`trees`]: what they leave behind.
//! - [`losses`]: locks that end early; [`deaths`]: processes that are killed or suspended.
//! - [`sidecars`]: locks of a sidecar's app.
//! - [`signals`], [`terminals`]: signals, from a keyboard, too.
//! - [`random`]: random trees that random processes are killed in.
#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    unreachable_pub,
    reason = "a test"
)]

mod deaths;
mod losses;
mod random;
mod running;
mod sidecars;
mod signals;
mod stage;
mod terminals;
mod trees;

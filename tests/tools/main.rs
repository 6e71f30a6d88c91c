//! The commands that look at the locks of a store and end them, as programs.
//!
//! - [`stage`]: a store with locks, and the program.
//! - [`looking`]: `list` and `get`; [`watching`]: `watch`; [`forcing`]: `force-unlock`.
//! - [`opening`]: the ways to name a store, and the exit status of each failure.
#![allow(clippy::unwrap_used, unreachable_pub, reason = "a test")]

mod forcing;
mod looking;
mod opening;
mod stage;
mod watching;

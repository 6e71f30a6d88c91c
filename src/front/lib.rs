//! The Redis front: locks for clients that speak the protocol of Redis.
//!
//! ```text
//! server (connections) ─▶ connection (requests, replies), flights ─▶ session (commands)
//!        ─▶ command, set, scripts (what is asked) ─▶ locks (on a Store)
//! ```
//!
//! - [`request`], [`reply`]: the protocol, RESP2 and RESP3.
//! - [`verb`]: what can be asked of locks; [`arguments`]: how it is read.
//! - [`scripts`]: the scripts of lock libraries, by what they do.
//! - [`options`], [`password`], [`tls`]: how a front is started.

mod arguments;
mod command;
mod connection;
mod flights;
#[cfg(any(fuzzing, test))]
#[doc(hidden)]
pub mod fuzzing;
mod info;
mod locks;
mod options;
mod password;
mod reply;
mod request;
mod scripts;
mod server;
mod session;
mod set;
#[cfg(test)]
mod tests;
mod tls;
mod verb;

pub use locks::FindStore;
pub use options::{FrontArgs, FrontOptions};
pub use password::Password;
pub use server::Front;

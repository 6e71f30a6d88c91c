//! The pluggable component: the lock protocol on Unix sockets, one for each backend.
//!
//! ```text
//! net::server (connections, limits) ─▶ dispatch (deadlines, receipts)
//!        ─▶ service (proto ↔ domain) ─▶ instances ─▶ lock::Store
//! ```

mod dispatch;
mod folder;
#[cfg(any(fuzzing, test))]
#[doc(hidden)]
pub mod fuzzing;
mod inspection;
mod instances;
mod server;
mod service;
mod wire;

pub use folder::{DEFAULT_FOLDER, FOLDER_VARIABLES, socket_folder};
pub use instances::{Instances, Metadata, OpenInstance};
pub use server::{Component, DRAIN_MAX, ServeError};

pub use leasehold_net::socket::{Socket, SocketError, SocketMode};

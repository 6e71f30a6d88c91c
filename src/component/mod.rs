//! The pluggable component: the lock protocol on Unix sockets, one for each backend.
//!
//! ```text
//! net::server (connections, limits) ─▶ dispatch (deadlines, receipts)
//!        ─▶ service (proto ↔ domain) ─▶ instances ─▶ lock::Store
//! ```

mod dispatch;
mod folder;
mod inspection;
mod instances;
mod server;
pub(crate) mod service;
pub(crate) mod wire;

pub use folder::{DEFAULT_FOLDER, FOLDER_VARIABLES, socket_folder};
pub use instances::{Instances, Metadata, OpenInstance};
pub use server::{Answers, Component, DRAIN_MAX, ServeError};

pub use leasehold_net::socket::{Socket, SocketError, SocketMode};

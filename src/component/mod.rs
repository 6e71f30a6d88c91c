//! The pluggable component: the lock protocol on Unix sockets, one a backend.
//!
//! ```text
//! socket ─▶ server (streams, sizes, keep-alive) ─▶ edge::delivery (receipts)
//!        ─▶ service (proto ↔ domain, one funnel) ─▶ instances ─▶ lock::Store
//! ```

mod connections;
mod folder;
mod instances;
mod server;
pub(crate) mod service;
pub(crate) mod wire;

pub use connections::Answers;
pub use folder::{DEFAULT_FOLDER, FOLDER_VARIABLES, socket_folder};
pub use instances::{Instances, Metadata, OpenInstance};
pub use server::{Component, ServeError};

pub use crate::net::socket::{Socket, SocketError, SocketMode};

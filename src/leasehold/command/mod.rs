//! The commands of the program: its command line, and the start of each command.

mod error;
mod instances;
mod line;
#[cfg(target_os = "linux")]
pub mod lock;
mod metrics;
pub mod redis_front;
pub mod serve;
pub mod sidecar;
mod store;
pub mod tool;

pub use error::StartError;
pub use line::{Cli, Command, ServeOptions, ServerCommand, StoreOption};
pub use store::{Opened, StoreArgs};

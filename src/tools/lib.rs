//! Looks at the locks of a store from a shell, and ends them.
//!
//! - [`locks`]: the calls, the same on a store of this process and on a sidecar.
//! - [`list`], [`get`], [`watch`], [`force`]: the commands.
//! - [`table`], [`text`]: what is printed for people; [`output`]: where it is written.
//! - [`error`]: why a command failed, and its exit status.

pub mod error;
pub mod force;
pub mod get;
pub mod list;
pub mod locks;
pub mod names;
pub mod output;
mod table;
mod text;
pub mod watch;

pub use error::ToolError;
pub use locks::Locks;

//! The sidecar: the Dapr API towards an app, with the lock calls served here
//! and every other call passed on.
//!
//! - [`alpha1`], [`alpha2`]: the lock APIs, each a core and its two edges.
//! - [`held`]: what is held through this process, renewed in one place.
//! - [`callback`]: tells the app of locks that are lost.
//! - [`app`]: which service answers which path; [`server`]: the listeners.

pub mod alpha1;
pub mod alpha2;
pub(crate) mod app;
pub mod app_client;
pub mod app_health;
pub mod app_probe;
pub mod auth;
mod body;
pub mod browsers;
pub mod callback;
pub mod command;
pub mod daprd_flags;
mod error;
mod fallback;
pub mod held;
mod listen;
mod loader;
pub(crate) mod metadata;
pub mod options;
mod panics;
pub mod passthrough;
mod paths;
pub mod prefix;
mod run;
pub mod secrets;
mod server;
pub mod stores;

pub use error::{ApiError, HeldError};
pub use fallback::{Fallback, no_daprd_grpc, no_daprd_http};
pub use listen::ListenError;
pub use options::{AppProtocol, Options, SidecarArgs};
pub use run::{Hooks, Sidecar};

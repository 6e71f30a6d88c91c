//! The sidecar: the Dapr API towards an app, with the lock calls served here
//! and every other call passed on.
//!
//! - [`alpha1`], [`alpha2`]: the lock APIs, each a core and its two edges.
//! - [`callback`]: tells the app of locks that are lost.
//! - [`app`]: which service answers which path; [`listen`]: what it listens on.

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
pub(crate) mod daprd;
pub mod daprd_flags;
mod error;
mod fallback;
mod listen;
pub(crate) mod loader;
pub(crate) mod metadata;
pub mod options;
pub mod passthrough;
mod paths;
pub mod prefix;
mod run;
pub mod secrets;
pub mod stores;
#[cfg(test)]
mod tests;

pub use error::ApiError;
pub use fallback::{Fallback, no_daprd_grpc, no_daprd_http};
pub use listen::ListenError;
pub use options::{AppProtocol, Options, SidecarArgs};
pub use run::{Hooks, Sidecar};

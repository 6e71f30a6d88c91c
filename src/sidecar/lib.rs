//! The sidecar: the Dapr API towards an app, with the lock calls served here
//! and every other call passed on.
//!
//! - [`api`]: the lock calls, and what stands before them.
//! - [`app`]: the app's health, and the callbacks to it.
//! - [`daprd`]: the daprd behind, and its flags.
//! - [`failed_unlocks`]: releases the locks that the app reports it could not unlock.
//! - [`identity`]: the holder that is shown for the app's locks.
//! - [`name`]: the app's names of resources; [`app_names`]: their names in a store.
//! - [`stores`], [`loader`]: the app's lock stores.
//! - [`options`]: the command line; `usage`: its errors.
//! - [`listen`]: the listeners; [`run`]: start, serve, drain.

pub mod api;
pub mod app;
pub mod app_names;
pub mod daprd;
pub mod failed_unlocks;
#[cfg(any(fuzzing, test))]
#[doc(hidden)]
pub mod fuzzing;
pub mod identity;
mod listen;
pub mod loader;
pub mod name;
pub mod options;
mod run;
pub mod stores;
#[cfg(test)]
mod tests;
mod usage;

pub use api::error::ApiError;
pub use app::protocol::AppProtocol;
pub use options::{Options, SidecarArgs};
pub use run::{Hooks, Sidecar};
pub use usage::UsageError;

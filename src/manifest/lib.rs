//! Component YAML, read as daprd reads it.
//!
//! ```text
//! Resources ── folders → files → documents → Component (and Problems)
//! Component ── Environment, Secrets → properties, as a backend takes them
//! watch     ── Resources, read again → Changes
//! ```
//!
//! A document that cannot be read is reported as a [`Problem`] and skipped, as daprd does.
//! Only a folder that cannot be read and a duplicate name make the reading fail.

mod component;
mod document;
mod environment;
mod fields;
mod folder;
#[cfg(any(fuzzing, test))]
#[doc(hidden)]
pub mod fuzzing;
mod problem;
mod properties;
mod reloads;
mod scalar;
mod template;
mod watch;
mod yaml;

pub use component::{Component, Item, Reference};
pub use environment::Environment;
pub use folder::{LoadError, Loaded, Resources};
pub use problem::{Origin, Problem};
pub use properties::{NoSecrets, PropertyError, SecretError, Secrets};
pub use reloads::Reloads;
pub use watch::{Change, WatchError, watch};

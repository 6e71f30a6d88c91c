//! Component YAML, read as daprd reads it.
//!
//! ```text
//! Resources ── folders → files → documents → Component (and Problems)
//! Component ── Surroundings, Secrets → properties, as a backend takes them
//! watch     ── Resources, again and again → Changes
//! ```
//!
//! A document that cannot be read is told as a [`Problem`] and skipped, as
//! daprd does; only a folder that cannot be read and a name given twice stop
//! the reading.

mod component;
mod document;
mod fields;
mod folder;
#[cfg(any(fuzzing, test))]
pub(crate) mod fuzzing;
mod problem;
mod properties;
mod scalar;
mod surroundings;
mod watch;
mod yaml;

pub use component::{Component, Item, Reference};
pub use folder::{LoadError, Loaded, Resources};
pub use problem::{Origin, Problem};
pub use properties::{NoSecrets, PropertyError, SecretError, Secrets};
pub use surroundings::Surroundings;
pub use watch::{Change, WatchError, watch};

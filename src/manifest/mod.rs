//! Component YAML, read as daprd reads it.
//!
//! ```text
//! Resources ── folders → files → documents → Component (and Problems)
//! Component ── Environment, Secrets → properties, as a backend takes them
//! watch     ── Resources, again and again → Changes
//! ```
//!
//! A document that cannot be read is told as a [`Problem`] and skipped, as
//! daprd does; only a folder that cannot be read and a name given twice stop
//! the reading.

mod component;
pub(crate) mod document;
mod environment;
mod fields;
pub(crate) mod folder;
mod problem;
mod properties;
mod scalar;
mod watch;
pub(crate) mod yaml;

pub use component::{Component, Item, Reference};
pub use environment::Environment;
pub use folder::{LoadError, Loaded, Resources};
pub use problem::{Origin, Problem};
pub use properties::{NoSecrets, PropertyError, SecretError, Secrets};
pub use watch::{Change, WatchError, watch};

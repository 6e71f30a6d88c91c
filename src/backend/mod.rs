//! The backends, which keep the locks.
//!
//! [`KINDS`] is the only list of them.

pub(crate) mod etcd;
mod kind;
pub mod memory;
pub mod pluggable;
pub(crate) mod redis;

use crate::config::properties::nearest;

pub use kind::{Connect, Context, Kind, OpenError};

/// Every backend there is. To add one, add its [`Kind`] here.
pub const KINDS: &[Kind] = &[etcd::KIND, memory::KIND, redis::KIND];

/// The error for a type `lock.NAME` that is not built in and that no pluggable component
/// serves. Lists the built-in types, and suggests a similar one.
pub(crate) fn unknown_type(name: &str) -> String {
    let known: Vec<_> = KINDS.iter().map(|kind| format!("lock.{}", kind.name)).collect();
    let names = KINDS.iter().map(|kind| kind.name);
    let meant = nearest(name, names).map(|name| format!("; did you mean lock.{name}?"));
    format!(
        "lock.{name} is no built-in type, which are {}{}",
        known.join(", "),
        meant.unwrap_or_default()
    )
}

impl Kind {
    /// The kind of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        KINDS.iter().copied().find(|kind| kind.name == name)
    }
}

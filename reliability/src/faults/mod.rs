//! What is done to a world, and what that excuses.

use serde::{Deserialize, Serialize};

/// A fault that was injected, as the history records it. Times are of
/// [`clock`](crate::clock).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Injected {
    /// Its name in the catalogue.
    pub name: String,
    /// What exactly was done, for people.
    pub detail: String,
    /// When its injection began.
    pub from_ns: u64,
    /// When everything was as before again.
    pub until_ns: u64,
    /// What it takes away.
    pub voids: Voids,
}

/// What a fault takes away by itself, however right the lock store is: only
/// this is excused, and only for grants that were made before `until_ns` of the
/// fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Voids {
    /// Nothing: all promises hold.
    Nothing,
    /// Every grant that was live: the data set was lost, or the process that
    /// kept it. Tokens must rise all the same.
    Grants,
    /// The live grant of this resource: somebody removed its key or its lease.
    GrantOf(String),
    /// Every grant, and the order of tokens across the fault (etcd restored
    /// from an older snapshot without a revision bump).
    GrantsAndTokens,
}

//! The servers and the leasehold processes of one run.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Which backend keeps the locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// One process; its locks end with it.
    Memory,
    /// One Redis server.
    Redis,
    /// Three etcd members.
    Etcd,
}

/// How a world is started.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The backend.
    pub backend: Backend,
    /// The `leasehold` binary.
    pub leasehold: PathBuf,
    /// The etcd binary; Debian's on the path by default.
    pub etcd: PathBuf,
    /// leasehold processes (one for memory, whose locks are its own).
    pub processes: usize,
    /// Where logs and data go; kept after a failing run.
    pub folder: PathBuf,
}

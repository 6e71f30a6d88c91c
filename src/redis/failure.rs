//! Why a connection cannot be used.

use std::sync::Arc;

use ::redis::RedisError;

use super::{errors::describe, sentinel::Unresolved};

/// Why a server that answers cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unfit {
    /// It is a replica.
    Replica,
    /// It is a node of a Cluster, and the only server.
    Cluster,
    /// It is no node of a Cluster.
    Alone,
    /// It is a node of a Cluster that is too old.
    Old,
    /// It is a Sentinel.
    Sentinel,
}

/// Why a connection cannot be used.
#[derive(Debug)]
pub(super) enum Failure {
    /// An error of the server or the network.
    Error(RedisError),
    /// The server cannot grant locks.
    Unfit(Unfit),
    /// Sentinels do not name the master.
    Unresolved(Unresolved),
}

impl From<Unresolved> for Failure {
    fn from(unresolved: Unresolved) -> Self {
        Self::Unresolved(unresolved)
    }
}

impl From<RedisError> for Failure {
    fn from(error: RedisError) -> Self {
        Self::Error(error)
    }
}

pub(super) fn describe_failure(failure: &Failure) -> Arc<str> {
    match failure {
        Failure::Error(error) => describe(error),
        Failure::Unfit(Unfit::Replica) => "the server is a replica".into(),
        Failure::Unfit(Unfit::Cluster) => "the server is in cluster mode".into(),
        Failure::Unfit(Unfit::Alone) => "the server is not in cluster mode".into(),
        Failure::Unfit(Unfit::Old) => "the server is older than Redis 7.0".into(),
        Failure::Unfit(Unfit::Sentinel) => "the server is a Sentinel".into(),
        Failure::Unresolved(unresolved) => unresolved.to_string().into(),
    }
}

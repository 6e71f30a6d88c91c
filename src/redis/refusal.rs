//! Why a store cannot be opened: a property that is wrong, or a server that is not available.

use ::redis::ErrorKind;
use leasehold_lock::{OpenError, Violation};

use super::{
    failure::{Failure, Unfit, describe_failure},
    master::Master,
    sentinel::Unresolved,
};

const NO_CLUSTER: &str = "is a node in cluster mode, which is not supported; name a server with \
    cluster-enabled no";

/// The server that was to be used.
pub(super) struct Server<'a> {
    pub(super) master: &'a Master,
    /// Whether Sentinels named it.
    pub(super) is_named: bool,
}

impl Server<'_> {
    /// Says whether a property is wrong or the server is unavailable.
    pub(super) fn refusal(&self, failure: &Failure) -> OpenError {
        let said = describe_failure(failure);
        let error = match failure {
            // Sentinels name a server a moment before its role changes, and after.
            Failure::Unfit(Unfit::Replica) if self.is_named => {
                let address = self.master.address();
                return OpenError::Unavailable(
                    format!("Sentinels name {address}, which is a replica: a failover may be under way")
                        .into(),
                );
            }
            Failure::Unfit(Unfit::Replica) => {
                return refused(
                    "redisHost",
                    "is a replica, which grants no locks; name its master, or Sentinels and \
                     failover: true",
                );
            }
            Failure::Unfit(Unfit::Cluster) => return refused("redisHost", NO_CLUSTER),
            Failure::Unfit(Unfit::Sentinel) => return refused("redisHost", SENTINEL),
            Failure::Unresolved(unresolved) => return unresolved_refusal(unresolved),
            Failure::Error(error) => error,
        };
        let text = error.to_string();
        match (error.code(), error.kind()) {
            (Some("NOAUTH"), _) => refused(
                "redisPassword",
                format!("is missing; the server asks for one ({said})"),
            ),
            (Some("WRONGPASS"), _) | (_, ErrorKind::AuthenticationFailed) => refused(
                "redisPassword",
                format!("or redisUsername was refused by the server ({said})"),
            ),
            (Some("NOPERM"), _) => refused(
                "redisUsername",
                format!("lacks a permission that docs/redis.md lists ({said})"),
            ),
            // A node of a Cluster complains about the database first, since it has only one.
            _ if text.contains("in cluster mode") => refused("redisHost", NO_CLUSTER),
            // A Sentinel has no databases.
            _ if text.contains("unknown command 'SELECT'") => refused("redisHost", SENTINEL),
            _ if said.contains("DB index") || text.contains("SELECT") => {
                refused("redisDB", "is a database that the server does not have")
            }
            _ => self.unreached(&said),
        }
    }

    /// Names the server, so that an operator sees which one to look at.
    pub(super) fn unreached(&self, why: &str) -> OpenError {
        let address = self.master.address();
        let advice = if self.is_named {
            format!(
                "Sentinels name {address} as the master; this process must reach it at this \
                 address, with TLS if enableTLS is true"
            )
        } else {
            format!("start the server at {address}, or correct redisHost or enableTLS")
        };
        OpenError::Unavailable(format!("{why}; {advice}").into())
    }
}

const SENTINEL: &str = "is a Sentinel, which holds no data; set failover: true and \
    sentinelMasterName, or name the master that it watches";

/// Says which property is wrong if Sentinels do not name the master, if one is.
pub(super) fn unresolved_refusal(unresolved: &Unresolved) -> OpenError {
    match unresolved.field {
        Some(field) => refused(field, &*unresolved.problem),
        None => OpenError::Unavailable(unresolved.problem.clone()),
    }
}

fn refused(field: &'static str, problem: impl Into<String>) -> OpenError {
    OpenError::Refused(vec![Violation::new(field, problem)])
}

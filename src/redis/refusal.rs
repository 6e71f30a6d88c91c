//! Why a store cannot be opened: a property that is wrong, or a server that is not available.

use ::redis::ErrorKind;
use leasehold_lock::{OpenError, Violation};
use tokio::time::{Instant, timeout_at};

use super::{
    failure::{Failure, Unfit, describe_failure},
    master::{Master, is_deaf},
    sentinel::Unresolved,
};

const NO_CLUSTER: &str = "is a node of a Cluster; set redisType: cluster, or name a server with \
    cluster-enabled no";
const ALONE: &str = "is cluster, but a server in redisHost is not in cluster mode; remove redisType, \
    or name nodes of a Cluster";
const OLD: &str = "names a node of a Cluster that is older than Redis 7.0, which leasehold needs \
    there";

const DEAF: &str = "leads to a proxy or a server that does not know SUBSCRIBE, by which waiters \
    are called; name the server itself, or a proxy that passes connections on unread";
const NO_RESP3: &str = "leads to a proxy or a server that does not know HELLO 3; leasehold needs \
    Redis 6.2 or later, or a proxy that passes connections on unread";

/// Who has named a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NamedBy {
    Sentinels,
    Cluster,
}

/// The server that was to be used.
pub(super) struct Server<'a> {
    pub(super) master: &'a Master,
    /// Who named it; `None` if the configuration did.
    pub(super) named_by: Option<NamedBy>,
}

impl Server<'_> {
    /// The same as [`refusal`](Self::refusal), but a proxy without `SUBSCRIBE` is refused by that
    /// name, whatever it refused first.
    pub(super) async fn first_refusal(&self, failure: &Failure, until: Instant) -> OpenError {
        if let Failure::Error(error) = failure
            && !matches!(error.code(), Some("NOAUTH" | "WRONGPASS" | "NOPERM"))
            && let Ok(Ok(true)) = timeout_at(until, is_deaf(&self.master.client)).await
        {
            return refused("redisHost", DEAF);
        }
        self.refusal(failure)
    }

    /// Says whether a property is wrong or the server is unavailable.
    pub(super) fn refusal(&self, failure: &Failure) -> OpenError {
        let said = describe_failure(failure);
        let error = match failure {
            // Sentinels name a server a moment before its role changes, and after.
            Failure::Unfit(Unfit::Replica) if self.named_by.is_some() => {
                let address = self.master.address();
                let by = self.named_by.map_or("", NamedBy::who);
                return OpenError::Unavailable(
                    format!("{by} {address}, which is a replica: a failover may be under way")
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
            Failure::Unfit(Unfit::Alone) => return refused("redisType", ALONE),
            Failure::Unfit(Unfit::Old) => return refused("redisHost", OLD),
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
            (Some("NOPROTO"), _) | (_, ErrorKind::RESP3NotSupported) => {
                refused("redisHost", NO_RESP3)
            }
            _ if text.contains("unknown command 'HELLO'") => refused("redisHost", NO_RESP3),
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
        let advice = match self.named_by {
            Some(by) => format!(
                "{} {address} as a master; this process must reach it at this address, with TLS \
                 if enableTLS is true",
                by.who()
            ),
            None => format!("start the server at {address}, or correct redisHost or enableTLS"),
        };
        OpenError::Unavailable(format!("{why}; {advice}").into())
    }
}

impl NamedBy {
    fn who(self) -> &'static str {
        match self {
            Self::Sentinels => "Sentinels name",
            Self::Cluster => "the Cluster names",
        }
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

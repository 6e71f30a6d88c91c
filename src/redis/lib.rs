//! Redis: `lock.redis`.
//!
//! - `config`: the component's properties.
//! - `session`, `link`: one connection, and reconnecting; `owed`, `silence`: one that does not
//!   answer; `errors`: what errors mean.
//! - `library`: one atomic function for each operation; `keys`, `entry`, `reply`: their keys,
//!   data and results.
//! - `notice`: the messages between processes.
//! - `waiters`: the waiters of this process, and when to look at their resources.
//! - `backend`: the implementation of the trait; `core`: the shared state; `release`: the end
//!   of grants; `waiting`: one wait; `upkeep`: background tasks.
//! - `inspect`: lists and watches of locks.
//!
//! The layout of the keys is in `docs/redis.md`.

mod backend;
mod config;
mod core;
mod entry;
mod errors;
#[cfg(any(fuzzing, test))]
#[doc(hidden)]
pub mod fuzzing;
mod inspect;
mod keys;
mod library;
mod link;
mod notice;
mod owed;
mod release;
mod reply;
mod session;
mod silence;
mod upkeep;
mod waiters;
mod waiting;

use std::sync::Arc;

use ::redis::{Client, ErrorKind};
use leasehold_lock::{Backend, Context, Kind, OpenError, Violation};
use tokio::time::timeout;
use tracing::warn;

use self::session::{Failure, Unfit};

/// The Redis backend.
pub const KIND: Kind = Kind {
    name: "redis",
    commits_groups: false,
    features: backend::FEATURES,
    read: |properties| {
        let client = config::read(properties);
        Box::new(move |context| {
            Box::pin(async move {
                // Refused properties are reported before this is called.
                let client = client.ok_or_else(|| {
                    OpenError::Unavailable("the properties were refused".into())
                })?;
                open(client, context).await
            })
        })
    },
};

async fn open(client: Client, context: Context) -> Result<Arc<dyn Backend>, OpenError> {
    let waiters = Arc::new(waiters::Waiters::new());
    let opened = session::Session::open(&client, 1, &[], Some(&waiters));
    let session = timeout(session::OPEN_TIMEOUT, opened)
        .await
        .map_err(|_| unreached(&client, "Redis did not answer in time"))?
        .map_err(|failure| why_not_open(&client, &failure))?;
    if let Ok(true) =
        timeout(session::OPEN_TIMEOUT, session.asks_for_no_password(&client)).await
    {
        let server = client.get_connection_info().addr();
        warn!(%server, "redisPassword is set, but the server asks for none: anybody can use it");
    }
    if let Ok(Some(policy)) = timeout(session::OPEN_TIMEOUT, session.eviction_policy()).await {
        let server = client.get_connection_info().addr();
        warn!(
            %server,
            policy,
            "Redis may evict locks, which ends them early; set maxmemory-policy to noeviction"
        );
    }
    Ok(Arc::new(backend::RedisBackend::new(client, session, waiters, context.settings)))
}

const NO_CLUSTER: &str = "is a node in cluster mode, which is not supported; name a server with \
    cluster-enabled no";

/// Says whether a property is wrong or the server is unavailable.
fn why_not_open(client: &Client, failure: &Failure) -> OpenError {
    let said = errors::describe_failure(failure);
    let refused =
        |field, problem: String| OpenError::Refused(vec![Violation::new(field, problem)]);
    let error = match failure {
        Failure::Unfit(Unfit::Replica) => {
            return refused(
                "redisHost",
                "is a replica, which grants no locks; name its master".into(),
            );
        }
        Failure::Unfit(Unfit::Cluster) => return refused("redisHost", NO_CLUSTER.into()),
        Failure::Unfit(Unfit::Sentinel) => {
            return refused(
                "redisHost",
                "is a Sentinel, which holds no data; name the master that it watches".into(),
            );
        }
        Failure::Error(error) => error,
    };
    match (error.code(), error.kind()) {
        (Some("NOAUTH"), _) => {
            refused("redisPassword", format!("is missing; the server asks for one ({said})"))
        }
        (Some("WRONGPASS"), _) | (_, ErrorKind::AuthenticationFailed) => refused(
            "redisPassword",
            format!("or redisUsername was refused by the server ({said})"),
        ),
        (Some("NOPERM"), _) => refused(
            "redisUsername",
            format!("lacks a permission that docs/redis.md lists ({said})"),
        ),
        // A node of a Cluster complains about the database first, since it has only one.
        _ if error.to_string().contains("in cluster mode") => {
            refused("redisHost", NO_CLUSTER.into())
        }
        _ if said.contains("DB index") || error.to_string().contains("SELECT") => {
            refused("redisDB", "is a database that the server does not have".into())
        }
        _ => unreached(client, &said),
    }
}

/// Names the server, so that an operator sees which one to look at.
fn unreached(client: &Client, why: &str) -> OpenError {
    let address = client.get_connection_info().addr();
    OpenError::Unavailable(
        format!("{why}; start the server at {address}, or correct redisHost").into(),
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use leasehold_lock::properties::Properties;

    use super::*;

    #[test]
    fn the_schema_has_exactly_the_keys_that_are_read() {
        let schema: serde_yaml_ng::Value = serde_yaml_ng::from_str(include_str!(
            "../../components/schema/redis.metadata.yaml"
        ))
        .unwrap();
        let names = |items: &serde_yaml_ng::Value| -> Vec<String> {
            let items = items["metadata"].as_sequence().unwrap();
            items.iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect()
        };
        let mut documented: BTreeSet<String> = names(&schema).into_iter().collect();
        for profile in schema["authenticationProfiles"].as_sequence().unwrap() {
            documented.extend(names(profile));
        }
        let mut properties = Properties::new([("redisHost".to_owned(), "h".to_owned())]);
        properties.settings();
        let _ = (KIND.read)(&mut properties);
        assert_eq!(documented, properties.known().map(str::to_owned).collect());
    }
}

//! Redis: `lock.redis`.
//!
//! - `config`: the component's properties.
//! - `route`, `sentinel`: which server is the master; `master`: connecting to it; `refusal`,
//!   `warnings`: what Init says of servers.
//! - `session`, `link`: one connection, and reconnecting; `owed`, `silence`: one that does not
//!   answer; `peer`: the end of a lost one; `errors`: what errors mean; `failure`: why a
//!   connection cannot be used.
//! - `library`: one atomic function for each operation; `keys`, `entry`, `reply`: their keys,
//!   data and results.
//! - `notice`: the messages between processes.
//! - `waiters`: the waiters of this process, and when to look at their resources; `times`: how long
//!   things take.
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
mod failure;
#[cfg(any(fuzzing, test))]
#[doc(hidden)]
pub mod fuzzing;
mod inspect;
mod keys;
mod library;
mod link;
mod master;
mod notice;
mod owed;
mod peer;
mod refusal;
mod release;
mod reply;
mod route;
mod sentinel;
mod session;
mod silence;
mod times;
mod upkeep;
mod waiters;
mod waiting;
mod warnings;

use std::sync::Arc;

use leasehold_lock::{Backend, Context, Kind, OpenError};
use tokio::time::{Instant, timeout_at};

use self::{
    refusal::{Server, unresolved_refusal},
    route::Route,
    session::{OPEN_TIMEOUT, Session},
    waiters::Waiters,
};

/// The Redis backend.
pub const KIND: Kind = Kind {
    name: "redis",
    commits_groups: false,
    features: backend::FEATURES,
    read: |properties| {
        let servers = config::read(properties);
        Box::new(move |context| {
            Box::pin(async move {
                // Refused properties are reported before this is called.
                let servers = servers.ok_or_else(|| {
                    OpenError::Unavailable("the properties were refused".into())
                })?;
                open(Route::new(servers), context).await
            })
        })
    },
};

async fn open(route: Route, context: Context) -> Result<Arc<dyn Backend>, OpenError> {
    let waiters = Arc::new(Waiters::new());
    let session = connect(&route, &waiters).await?;
    warnings::check(&route, &session).await;
    Ok(Arc::new(backend::RedisBackend::new(
        Arc::new(route),
        session,
        waiters,
        context.settings,
    )))
}

/// Opens the first connection.
async fn connect(route: &Route, waiters: &Arc<Waiters>) -> Result<Session, OpenError> {
    let until = Instant::now() + OPEN_TIMEOUT;
    let master = route.master().await.map_err(|why| unresolved_refusal(&why))?;
    let opening = timeout_at(until, Session::open(master.clone(), 1, &[], Some(waiters)));
    let server = Server { master: &master, is_named: route.has_sentinels() };
    match opening.await {
        Ok(opened) => opened.map_err(|failure| server.refusal(&failure)),
        Err(_) => Err(server.unreached("Redis did not answer in time")),
    }
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

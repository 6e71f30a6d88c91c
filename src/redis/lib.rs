//! Redis: `lock.redis`.
//!
//! - `config`: the component's properties.
//! - `route`, `sentinel`: which server is the master; `master`: connecting to it; `refusal`,
//!   `warnings`: what Init says of servers.
//! - `cluster`, `table`, `member`: the nodes of a Cluster, and their slots.
//! - `router`, `way`, `exchange`: calls, and which server they go to.
//! - `session`, `link`: one connection, and reconnecting; `owed`, `silence`: one that does not
//!   answer; `peer`: the end of a lost one; `errors`: what errors mean; `failure`: why a
//!   connection cannot be used.
//! - `library`: one atomic function for each operation; `keys`, `entry`, `reply`: their keys,
//!   data and results.
//! - `notice`, `hearing`: the messages between processes.
//! - `waiters`: the waiters of this process, and when to look at their resources; `times`: how long
//!   things take.
//! - `backend`: the implementation of the trait; `core`: the shared state; `release`: the end
//!   of grants; `waiting`: one wait; `upkeep`: background tasks.
//! - `inspect`, `view`: lists and watches of locks.
//!
//! The layout of the keys is in `docs/redis.md`.

mod backend;
mod cluster;
mod config;
mod core;
mod entry;
mod errors;
mod exchange;
mod failure;
#[cfg(any(fuzzing, test))]
#[doc(hidden)]
pub mod fuzzing;
mod hearing;
mod inspect;
mod keys;
mod library;
mod link;
mod master;
mod member;
mod notice;
mod owed;
mod peer;
mod refusal;
mod release;
mod reply;
mod route;
mod router;
mod sentinel;
mod session;
mod silence;
mod table;
mod times;
mod upkeep;
mod view;
mod waiters;
mod waiting;
mod warnings;
mod way;

use std::sync::Arc;

use futures_util::future::join_all;
use leasehold_lock::{Backend, Context, Kind, OpenError, UrlForm};
use tokio::time::{Instant, timeout_at};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{
    backend::RedisBackend,
    cluster::Cluster,
    config::Setup,
    hearing::Hearing,
    link::Link,
    refusal::{NamedBy, Server, unresolved_refusal},
    route::Route,
    router::{Router, Servers},
    sentinel::Sentinels,
    session::{OPEN_TIMEOUT, Session},
    waiters::Waiters,
};

/// The Redis backend.
pub const KIND: Kind = Kind {
    name: "redis",
    commits_groups: false,
    features: backend::FEATURES,
    url: Some(UrlForm {
        schemes: &[("redis", &[]), ("rediss", &[("enableTLS", "true")])],
        hosts: "redisHost",
        path: "redisDB",
        path_has_slash: false,
        username: "redisUsername",
        password: "redisPassword",
        secrets: &["redisPassword", "sentinelPassword", "clientKey"],
        pem: &["clientCert"],
        refused: &["redisUsername", "redisPassword", "sentinelUsername", "sentinelPassword"],
    }),
    read: |properties| {
        let servers = config::read(properties);
        Box::new(move |context| {
            Box::pin(async move {
                // Refused properties are reported before this is called.
                let servers = servers.ok_or_else(|| {
                    OpenError::Unavailable("the properties were refused".into())
                })?;
                open(servers, context).await
            })
        })
    },
};

async fn open(servers: Setup, context: Context) -> Result<Arc<dyn Backend>, OpenError> {
    let Context { settings, observer, .. } = context;
    let waiters = Arc::new(Waiters::new());
    let hearing = Hearing::of(Arc::clone(&waiters));
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    // Ends the tasks if this is given up.
    let unfinished = stop.clone().drop_guard();
    let route = match servers {
        Setup::Node(client) => Route::Fixed(client),
        Setup::Sentinel(setup) => Route::Sentinels(Sentinels::new(setup)),
        Setup::Cluster(setup) => {
            let within = settings.operation_timeout;
            let cluster =
                Cluster::open(setup, hearing, within, observer, tasks.clone(), stop.clone())
                    .await?;
            let sessions = cluster.sessions();
            join_all(sessions.iter().map(|session| warnings::check(false, session))).await;
            let router = Router::new(Servers::Cluster(cluster));
            unfinished.disarm();
            return Ok(Arc::new(RedisBackend::new(router, waiters, settings, tasks, stop)));
        }
    };
    let session = connect(&route, &hearing).await?;
    warnings::check(route.has_sentinels(), &session).await;
    let link = Arc::new(Link::new(Some(session), settings.operation_timeout));
    let route = Arc::new(route);
    let keeping = Arc::clone(&link).keep(Arc::clone(&route), hearing, observer, stop.clone());
    tasks.spawn(keeping);
    let router = Router::new(Servers::One { link, route });
    unfinished.disarm();
    Ok(Arc::new(RedisBackend::new(router, waiters, settings, tasks, stop)))
}

/// Opens the first connection.
async fn connect(route: &Route, hearing: &Hearing) -> Result<Session, OpenError> {
    let until = Instant::now() + OPEN_TIMEOUT;
    let master = route.master().await.map_err(|why| unresolved_refusal(&why))?;
    let opening = timeout_at(until, Session::open(master.clone(), &[], hearing));
    let named_by = route.has_sentinels().then_some(NamedBy::Sentinels);
    let server = Server { master: &master, named_by };
    match opening.await {
        Ok(Ok(session)) => Ok(session),
        Ok(Err(failure)) => Err(server.first_refusal(&failure, until).await),
        Err(_) => Err(server.unreached("Redis did not answer in time")),
    }
}

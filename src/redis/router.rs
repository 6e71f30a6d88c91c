//! Calls: to the one server that has all locks, or to the node of a Cluster that has the slot.

use std::{collections::HashSet, sync::Arc, time::Duration};

use ::redis::{Cmd, Value, cmd};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use leasehold_lock::{self as lock, BackendError, ResourceId};
use leasehold_util::retry::pause_before;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{
    cluster::Cluster,
    errors::{is_out_of_memory, may_be_partial, refused},
    exchange::{Exchange, exchange},
    keys::{Keys, Slot},
    library::{Unheard, Verb},
    link::{Link, Post, Sessions},
    reply::Reply,
    route::Route,
    session::Session,
    way::{Next, Way},
};

/// How long to wait before a request is repeated that the server refused temporarily.
const BUSY_DELAY: Duration = Duration::from_millis(50);
/// Why a resource cannot be read as a whole.
pub(super) const OPEN: &str = "the slot is open";
/// How many resources with shared grants are remembered.
const SHARED_MAX: usize = 10_000;

/// The servers that have the locks.
pub(super) enum Servers {
    /// One has all of them.
    One { link: Arc<Link>, route: Arc<Route> },
    /// Each node has the locks of some slots.
    Cluster(Arc<Cluster>),
}

/// Calls verbs where their resources are.
pub(super) struct Router {
    pub(super) servers: Servers,
    /// Resources that had shared grants, or a doubt.
    shared: Mutex<HashSet<ResourceId>>,
    /// When a resource that inspection cannot read was last logged.
    pub(super) unreadable_logged: Mutex<Option<Instant>>,
}

/// The answer to a call.
pub(super) struct Answer {
    /// The value that the function returned.
    pub(super) value: Value,
    /// When the request that it answers was sent.
    pub(super) since: lock::Instant,
    /// Whether an earlier sending of the request may have been executed.
    pub(super) again: bool,
    /// The connection that has received notices about the resource since before the call.
    pub(super) post: Post,
}

impl Router {
    pub(super) fn new(servers: Servers) -> Self {
        Self { servers, shared: Mutex::default(), unreadable_logged: Mutex::default() }
    }

    /// What a notice means that reached nobody.
    pub(super) fn unheard(&self) -> Unheard {
        match &self.servers {
            Servers::One { link, route } if !route.has_sentinels() => link.unheard(),
            // After a failover processes that live may not be subscribed yet. And a node of a
            // Cluster counts its own subscribers only.
            _ => Unheard::InDoubt,
        }
    }

    /// Calls a verb for a resource until it is answered or `until` has passed. `arguments` adds
    /// its arguments; its second parameter says whether an earlier sending may have been
    /// executed.
    pub(super) async fn run(
        &self,
        verb: Verb,
        resource: &ResourceId,
        arguments: impl Fn(&mut Cmd, bool),
        until: Instant,
    ) -> Result<Answer, BackendError> {
        let all = Keys::All(std::slice::from_ref(resource));
        let is_expected = self.shared.lock().contains(resource);
        let keys = match verb {
            _ if is_expected || verb == Verb::Target => all,
            Verb::Renew => Keys::Grant(resource),
            // It finds a queue at a free resource only if something went wrong.
            Verb::Try => Keys::WithoutQuestion(resource),
            Verb::Release if self.unheard() != Unheard::InDoubt => {
                Keys::WithoutQuestion(resource)
            }
            _ => Keys::Exclusive(resource),
        };
        let answer = self.call(verb, keys, &arguments, false, until).await?;
        if !Reply::asks_for_more_keys(&answer.value) {
            return Ok(answer);
        }
        self.expect_readers(resource);
        self.call(verb, all, &arguments, answer.again, until).await
    }

    /// Remembers that this resource has shared grants, so that calls declare their keys at
    /// once.
    pub(super) fn expect_readers(&self, resource: &ResourceId) {
        // A Cluster has none. All keys at a renewal would fail while its slot is open.
        if self.has_several() {
            return;
        }
        let mut shared = self.shared.lock();
        if shared.len() >= SHARED_MAX {
            shared.clear();
        }
        if !shared.contains(resource) {
            shared.insert(resource.clone());
        }
    }

    /// Calls a verb with these keys. `lost` says whether an earlier sending may have been
    /// executed.
    pub(super) async fn call(
        &self,
        verb: Verb,
        keys: Keys<'_>,
        arguments: impl Fn(&mut Cmd, bool),
        lost: bool,
        until: Instant,
    ) -> Result<Answer, BackendError> {
        self.call_over(self.way(keys.slot()), verb, keys, arguments, lost, until).await
    }

    /// The same, beginning with this way.
    pub(super) async fn call_over(
        &self,
        mut way: Way,
        mut verb: Verb,
        keys: Keys<'_>,
        arguments: impl Fn(&mut Cmd, bool),
        mut lost: bool,
        until: Instant,
    ) -> Result<Answer, BackendError> {
        loop {
            let Some(session) = way.session(until).await else {
                let why = way.down();
                return Err(if lost {
                    BackendError::Unknown(why)
                } else {
                    way.explain(BackendError::Unavailable(why))
                });
            };
            let since = lock::Instant::now();
            let request = |form| {
                let mut request = session.master.library().call(form, verb, keys);
                arguments(&mut request, lost);
                request
            };
            match exchange(&session, way.is_asking(), request, until).await {
                Exchange::Answered(value) if way.holds() => {
                    let post = way.post(&session);
                    return Ok(Answer { value, since, again: lost, post });
                }
                // The slot is another node's by now, which does not know of this.
                Exchange::Answered(_) => lost = true,
                Exchange::Lost => {
                    lost = true;
                    session.dead.cancel();
                    way.lost();
                }
                // The new master is asked.
                Exchange::Refused(error) if session.is_outdated() => {
                    lost |= may_be_partial(&error);
                }
                Exchange::Refused(error) => {
                    // It has no memory for a new grant or place. The attempt may have one.
                    if is_out_of_memory(&error)
                        && let Some(instead) = verb.without_memory()
                    {
                        verb = instead;
                        continue;
                    }
                    lost |= may_be_partial(&error);
                    let next = way.refused(&session, &error);
                    if way.is_open() && verb == Verb::Inspect {
                        return Err(BackendError::Unsupported(OPEN.into()));
                    }
                    let may_pass = match next {
                        Next::Now => true,
                        // The last sending, too, has time for its answer.
                        Next::Later => pause_before(until - BUSY_DELAY, BUSY_DELAY).await,
                        Next::Never => false,
                    };
                    if !may_pass {
                        return Err(way.explain(refused(&error, lost)));
                    }
                }
                Exchange::Silent => {
                    return Err(BackendError::Unknown(
                        "Redis did not answer within operationTimeout".into(),
                    ));
                }
            }
        }
    }

    /// Returns once an answer to a plain command has come from one server.
    pub(super) async fn ping(&self, until: Instant) -> Result<(), BackendError> {
        let links = match &self.servers {
            Servers::One { link, .. } => vec![Arc::clone(link)],
            Servers::Cluster(cluster) => cluster.links(),
        };
        let mut pings: FuturesUnordered<_> = links
            .into_iter()
            .map(|link| async move { link.send(&cmd("PING"), until).await })
            .collect();
        let mut last = Err(BackendError::Unavailable("no node of the Cluster is known".into()));
        while let Some(answer) = pings.next().await {
            last = answer;
            if last.is_ok() {
                break;
            }
        }
        last
    }

    /// Whether several servers share the locks.
    pub(super) fn has_several(&self) -> bool {
        matches!(self.servers, Servers::Cluster(_))
    }

    /// The link to the server that has the resource, as far as is known.
    pub(super) fn link(&self, resource: &ResourceId) -> Option<Arc<Link>> {
        match &self.servers {
            Servers::One { link, .. } => Some(Arc::clone(link)),
            Servers::Cluster(cluster) => cluster.link_of(Slot::of(resource)),
        }
    }

    /// A number of the server that has the resource. May be called outside a runtime.
    pub(super) fn server_of(&self, resource: &ResourceId) -> u64 {
        match &self.servers {
            Servers::One { .. } => 0,
            Servers::Cluster(cluster) => cluster.server_of(Slot::of(resource)),
        }
    }

    /// Whether there is a connection to the server that has the resource.
    pub(super) fn is_connected(&self, resource: &ResourceId) -> bool {
        self.link(resource).is_some_and(|link| link.is_connected())
    }

    /// Returns the link to that server once it has a connection, or an error at `until`.
    pub(super) async fn connected(
        &self,
        resource: &ResourceId,
        until: Instant,
    ) -> Result<Arc<Link>, BackendError> {
        let mut way = self.way(Some(Slot::of(resource)));
        let session = way.session(until).await;
        let link = session.and_then(|_| way.link());
        link.ok_or_else(|| BackendError::Unavailable(way.down()))
    }

    /// Returns when notices about the resource are received over another connection than this,
    /// or over none.
    pub(super) async fn left(&self, resource: &ResourceId, post: Post) {
        match &self.servers {
            Servers::One { link, .. } => another_than(post, &mut link.sessions()).await,
            Servers::Cluster(cluster) => {
                let slot = Slot::of(resource);
                let mut tables = cluster.tables();
                loop {
                    tables.mark_unchanged();
                    let Some(link) = cluster.link_of(slot) else { return };
                    let mut sessions = link.sessions();
                    tokio::select! {
                        () = another_than(post, &mut sessions) => return,
                        _ = tables.changed() => {}
                    }
                }
            }
        }
    }

    /// The way to the server that has this slot.
    pub(super) fn way(&self, slot: Option<Slot>) -> Way {
        match &self.servers {
            Servers::One { link, .. } => Way::One(Arc::clone(link)),
            Servers::Cluster(cluster) => {
                Way::through(Arc::clone(cluster), slot.unwrap_or(Slot(0)))
            }
        }
    }
}

/// Returns when this connection is no longer in use.
async fn another_than(post: Post, sessions: &mut Sessions) {
    let number = |now: &Option<Arc<Session>>| now.as_ref().map(|session| session.number);
    let _ = sessions.wait_for(|now| number(now) != post).await.map(drop);
}

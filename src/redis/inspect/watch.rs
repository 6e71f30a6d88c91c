//! The poller of watches: it reads the watched resources over its own connection.
//!
//! The functions of locks publish no changes, because that would cost each lock commands.

use std::{
    collections::{BTreeSet, HashSet},
    convert::Infallible,
    sync::Arc,
    time::Duration,
};

use futures_util::future::try_join_all;
use leasehold_lock::{
    BackendError, OpenError, ResourceId,
    inspect::{GRANTS_SHOWN_MAX, LockView, Mirror, Selection, WatchFilter},
};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    super::{
        cluster::Cluster,
        failure::describe_failure,
        hearing::Hearing,
        link::Link,
        router::{Router, Servers},
        session::{OPEN_TIMEOUT, Session},
    },
    pace::Pace,
    reads::{FOUND_MAX, RESOURCES_MAX},
    walk::Walk,
};

/// How many resources are read at a time. Their functions are called together, and block the
/// server for a few milliseconds.
const STEP: usize = 4 * RESOURCES_MAX;
/// How often single resources are read.
const RESOURCES_EVERY: Duration = Duration::from_secs(1);
/// How often the resources of a scope are searched for.
const SCOPES_EVERY: Duration = Duration::from_secs(2);

/// Keeps the mirror up to date. Returns if the connection or a reading failed.
pub(super) async fn watch(
    router: &Router,
    operation_timeout: Duration,
    mirror: &Mirror,
) -> BackendError {
    let route = match &router.servers {
        Servers::One { route, .. } => route,
        Servers::Cluster(cluster) => {
            return watch_cluster(cluster, operation_timeout, mirror).await;
        }
    };
    // No waiter is called over it, and it sends nothing that a later connection would have
    // to stop.
    let hearing = Hearing::default();
    let opening = async { Session::open(route.master().await?, &[], &hearing).await };
    let session = match timeout(OPEN_TIMEOUT, opening).await {
        Ok(Ok(session)) => session,
        Ok(Err(failure)) => return BackendError::Unavailable(describe_failure(&failure)),
        Err(_) => return BackendError::Unavailable("Redis did not answer in time".into()),
    };
    let (dead, master) = (session.dead.clone(), session.master.clone());
    let link = Arc::new(Link::new(Some(session), operation_timeout));
    let router = Router::new(Servers::One { link, route: Arc::clone(route) });
    let mut poller = Poller::new(&router, operation_timeout, mirror);
    tokio::select! {
        biased;
        // What the former master says is not believed.
        why = route.moved_from(&master) => BackendError::Unavailable(why.into()),
        error = poller.run() => error,
        () = dead.cancelled() => BackendError::Unavailable("the connection was lost".into()),
    }
}

/// The same over connections to all nodes of a Cluster. Those that are lost are opened again, as
/// long as no reading fails.
async fn watch_cluster(
    cluster: &Cluster,
    operation_timeout: Duration,
    mirror: &Mirror,
) -> BackendError {
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    let _stopped = stop.clone().drop_guard();
    match cluster.again(tasks, stop).await {
        Ok(cluster) => {
            let router = Router::new(Servers::Cluster(cluster));
            Poller::new(&router, operation_timeout, mirror).run().await
        }
        Err(OpenError::Unavailable(why)) => BackendError::Unavailable(why),
        Err(refused) => BackendError::Unavailable(refused.to_string().into()),
    }
}

/// Reads the watched resources. One reading is under way at a time, so that later states are
/// applied later.
struct Poller<'a> {
    router: &'a Router,
    operation_timeout: Duration,
    mirror: &'a Mirror,
    /// Is notified whenever a watch begins or ends.
    subscriptions: watch::Receiver<()>,
    /// The watched resources.
    filter: WatchFilter,
    resources: Pace,
    scopes: Pace,
    /// The search under way.
    search: Option<Search>,
}

impl<'a> Poller<'a> {
    fn new(router: &'a Router, operation_timeout: Duration, mirror: &'a Mirror) -> Self {
        let mut subscriptions = mirror.subscriptions_changed();
        subscriptions.mark_changed();
        Self {
            router,
            operation_timeout,
            mirror,
            subscriptions,
            filter: WatchFilter::default(),
            resources: Pace::new(RESOURCES_EVERY),
            scopes: Pace::new(SCOPES_EVERY),
            search: None,
        }
    }

    async fn run(&mut self) -> BackendError {
        match self.poll().await {
            Err(error) => error,
            Ok(never) => match never {},
        }
    }

    async fn poll(&mut self) -> Result<Infallible, BackendError> {
        loop {
            // The sender lives as long as the mirror.
            if self.subscriptions.has_changed().unwrap_or(false) {
                self.subscriptions.mark_unchanged();
                self.filter = self.mirror.forget_unwatched();
                self.search.take_if(|_| self.filter.prefix.is_none());
            }
            let now = Instant::now();
            let resources = self.resources.due(self.filter.last_resource);
            let scopes = self.scopes.due(self.filter.last_scope);
            if resources.is_some_and(|due| due <= now) {
                self.read_resources().await?;
            } else if let Some(mut search) = self.search.take() {
                self.scopes.step();
                if self.step(&mut search).await? {
                    self.scopes.end();
                    self.mirror.complete_scopes(self.scopes.last);
                } else {
                    self.search = Some(search);
                }
            } else if scopes.is_some_and(|due| due <= now) {
                self.scopes.begin(self.filter.last_scope);
                self.search = self.filter.prefix.clone().map(Search::new);
            } else {
                let due = resources.into_iter().chain(scopes).min();
                tokio::select! {
                    _ = self.subscriptions.changed() => self.subscriptions.mark_changed(),
                    () = sleep_until(due.unwrap_or(now)), if due.is_some() => {}
                }
            }
        }
    }

    /// Reads the single resources.
    async fn read_resources(&mut self) -> Result<(), BackendError> {
        self.resources.begin(self.filter.last_resource);
        let resources: Vec<_> = self.filter.resources.iter().cloned().collect();
        for some in resources.chunks(STEP) {
            self.resources.step();
            self.note(self.read(some).await?);
        }
        self.resources.end();
        self.mirror.complete_resources(self.resources.last);
        Ok(())
    }

    /// Makes a step of a search. Returns whether it was the last.
    async fn step(&self, search: &mut Search) -> Result<bool, BackendError> {
        let rest = search.found.split_off(search.found.len().min(STEP));
        let some = std::mem::replace(&mut search.found, rest);
        let from = search.cursor.clone().filter(|_| search.found.is_empty());
        // Both are sent at the same time.
        let (scanned, locks) =
            tokio::try_join!(self.scan(from, &search.prefix), self.read(&some))?;
        self.note(locks);
        if let Some((end, found)) = scanned {
            search.cursor = end;
            let seen = &mut search.seen;
            search.found.extend(found.into_iter().filter(|it| seen.insert(it.clone())));
        }
        let is_over = search.cursor.is_none() && search.found.is_empty();
        if is_over && !search.is_checked {
            // A resource that was not found is free, unless it was locked during the
            // search.
            search.is_checked = true;
            search.found = self.mirror.held(|resource| search.misses(resource));
        }
        Ok(search.cursor.is_none() && search.found.is_empty())
    }

    async fn scan(
        &self,
        from: Option<Walk>,
        prefix: &str,
    ) -> Result<Option<(Option<Walk>, BTreeSet<ResourceId>)>, BackendError> {
        let Some(from) = from else { return Ok(None) };
        self.router.scan(&from, prefix, FOUND_MAX, self.until()).await.map(Some)
    }

    /// Reads up to [`STEP`] resources.
    async fn read(&self, resources: &[ResourceId]) -> Result<Vec<LockView>, BackendError> {
        let (until, all) = (self.until(), Selection::default());
        let parts = resources.chunks(RESOURCES_MAX);
        let parts = parts.map(|some| self.router.see(some, None, GRANTS_SHOWN_MAX, until));
        let seen = try_join_all(parts).await?.into_iter().flatten();
        let mut locks = Vec::with_capacity(resources.len());
        for (resource, seen) in resources.iter().zip(seen) {
            locks.push(self.router.select(resource.clone(), seen, &all, until).await?);
        }
        Ok(locks)
    }

    /// Applies the states that were read, unless they are no longer watched.
    fn note(&self, locks: Vec<LockView>) {
        for lock in locks {
            if self.filter.accepts(&lock.resource) {
                self.mirror.note_read(lock);
            }
        }
    }

    fn until(&self) -> Instant {
        Instant::now() + self.operation_timeout
    }
}

/// A walk through all keys for held resources.
struct Search {
    prefix: String,
    /// How far it has searched; `None` at the end.
    cursor: Option<Walk>,
    /// Resources that were found and not read yet.
    found: Vec<ResourceId>,
    /// All found resources, because a SCAN may find one again.
    seen: HashSet<ResourceId>,
    /// Whether resources that were not found are being read.
    is_checked: bool,
}

impl Search {
    fn new(prefix: String) -> Self {
        Self {
            prefix,
            cursor: Some(Walk::default()),
            found: Vec::new(),
            seen: HashSet::new(),
            is_checked: false,
        }
    }

    /// Whether the resource was not found, but would have been if it had been held all the time.
    fn misses(&self, resource: &ResourceId) -> bool {
        resource.as_str().starts_with(&self.prefix) && !self.seen.contains(resource)
    }
}

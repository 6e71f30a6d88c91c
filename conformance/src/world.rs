//! What a case stands on: the store, names of its own, and clean-up.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use anyhow::Context as _;
use tokio::{sync::RwLock, time::Instant};
use uuid::Uuid;

use crate::{
    connection::Connection,
    expect::{Expect as _, Reason},
    feature::Feature,
    lacks::Lacks,
    store::{Ask, Grant, Scope, Store},
    suite::Subject,
};

const POLL: Duration = Duration::from_millis(10);

/// How long after its end a grant may still block its resource: stores with
/// coarse expiry take a second or two more.
pub(crate) const EXPIRY_SLACK: Duration = Duration::from_secs(6);

/// How soon a resource is free that nothing holds any more. Far below the
/// TTL of what a case would find left behind.
pub(crate) const FREE_MAX: Duration = Duration::from_secs(5);

/// One case's own corner of the store.
#[derive(Clone)]
pub(crate) struct World {
    subject: Arc<Subject>,
    scope: Arc<Scope>,
    names: Arc<Names>,
}

struct Names {
    prefix: String,
    next: AtomicU32,
}

impl World {
    pub(crate) fn new(subject: Arc<Subject>, case_index: usize) -> Self {
        let prefix = format!("{}-{case_index}", subject.run);
        let names = Arc::new(Names { prefix, next: AtomicU32::new(0) });
        let scope = Arc::new(Scope { lacks: subject.lacks, ..Scope::default() });
        Self { subject, scope, names }
    }

    /// A resource that nobody else uses.
    pub(crate) fn resource(&self) -> String {
        let number = self.names.next.fetch_add(1, Ordering::Relaxed);
        format!("{}-{number}", self.names.prefix)
    }

    /// A lock ID or request ID that nobody else uses.
    pub(crate) fn secret() -> String {
        Uuid::new_v4().to_string()
    }

    /// The store, over the connection that all cases share.
    pub(crate) fn store(&self) -> Store {
        self.on(&self.subject.connection)
    }

    /// The store, over a connection of its own.
    pub(crate) fn fresh(&self) -> Store {
        self.on(&Connection::new(&self.subject.socket))
    }

    /// The store behind the second socket, over a connection of its own.
    pub(crate) fn second(&self) -> anyhow::Result<Store> {
        let socket =
            self.subject.second_socket.as_ref().context("no second socket was given")?;
        Ok(self.on(&Connection::new(socket)))
    }

    /// An instance that does not exist yet.
    pub(crate) fn new_instance(&self) -> anyhow::Result<Store> {
        let name = format!("{}-{}", self.subject.instance_name, self.resource());
        let instance = Some(name.parse().context("the instance's name is not ASCII")?);
        Ok(Store::new(self.subject.connection.clone(), instance, Arc::clone(&self.scope)))
    }

    /// The instance of calls that name none.
    pub(crate) fn unnamed_instance(&self) -> Store {
        Store::new(self.subject.connection.clone(), None, Arc::clone(&self.scope))
    }

    /// The properties of the component YAML.
    pub(crate) fn properties(&self) -> HashMap<String, String> {
        self.subject.properties.clone()
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.subject.connection
    }

    pub(crate) fn declares(&self, feature: Feature) -> bool {
        self.subject.features.contains(&feature)
    }

    pub(crate) fn lacks(&self) -> Lacks {
        self.scope.lacks
    }

    /// Whether the case called RenewLock on a store without it.
    pub(crate) fn missed_renewal(&self) -> bool {
        self.scope.missed.renewal()
    }

    /// What cases that run alone keep the others from.
    pub(crate) fn floor(&self) -> &RwLock<()> {
        &self.subject.floor
    }

    pub(crate) async fn clean_up(&self) {
        self.scope.litter.clear(self.declares(Feature::ForceUnlock)).await;
    }

    fn on(&self, connection: &Connection) -> Store {
        let instance = Some(self.subject.instance.clone());
        Store::new(connection.clone(), instance, Arc::clone(&self.scope))
    }
}

/// A grant of a resource that is free now.
pub(crate) async fn hold(store: &Store, ask: &Ask) -> anyhow::Result<Grant> {
    store.try_lock(ask).await.or_fail("a TryLock of a free resource was refused")
}

/// A grant of a resource that must be free by `deadline`, asked for again and
/// again.
pub(crate) async fn hold_by(
    store: &Store,
    ask: &Ask,
    deadline: Instant,
    what: &str,
) -> anyhow::Result<Grant> {
    loop {
        let last_try = Instant::now() >= deadline;
        match store.try_lock(ask).await {
            Ok(grant) => return Ok(grant),
            refused => refused.refused(Reason::ResourceLocked).context(what.to_owned())?,
        };
        anyhow::ensure!(!last_try, "{what}: the resource is still held");
        tokio::time::sleep(POLL).await;
    }
}

/// A grant of a resource that nothing should hold any more.
pub(crate) async fn hold_soon(store: &Store, ask: &Ask, what: &str) -> anyhow::Result<Grant> {
    hold_by(store, ask, Instant::now() + FREE_MAX, what).await
}

/// Fails if the resource is free.
pub(crate) async fn must_be_held(
    store: &Store,
    resource: &str,
    what: &str,
) -> anyhow::Result<()> {
    let refused = store.try_lock(&Ask::of(resource)).await.refused(Reason::ResourceLocked);
    refused.with_context(|| format!("{what}: a TryLock must be refused")).map(drop)
}

/// Milliseconds.
pub(crate) const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Seconds.
pub(crate) const fn secs(count: u64) -> Duration {
    Duration::from_secs(count)
}

//! The environment of a case: the store, unique names, and clean-up.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, ensure};
use tokio::{sync::RwLock, time::Instant};
use tonic::metadata::{Ascii, MetadataValue};
use uuid::Uuid;

use crate::{
    connection::{Connection, Instance},
    expect::Expect as _,
    feature::Feature,
    grant::{Ask, Grant},
    lacks::Lacks,
    reason::Reason,
    stop::Stop,
    store::{Scope, Store},
    subject::Subject,
};

const POLL: Duration = Duration::from_millis(10);

/// How long after its end a grant may still block its resource: stores with
/// coarse expiry take a second or two more.
pub(crate) const EXPIRY_SLACK: Duration = Duration::from_secs(6);

/// How soon a resource must be free after its holder is gone. Far shorter than the TTLs
/// of the cases, so a grant that was left behind is noticed.
pub(crate) const FREE_MAX: Duration = Duration::from_secs(5);

/// How soon the store must answer after a restart.
const RESTART_MAX: Duration = Duration::from_secs(30);

/// The store as one case sees it, with names that no other case uses.
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

    /// A resource with a unique name.
    pub(crate) fn resource(&self) -> String {
        let number = self.names.next.fetch_add(1, Ordering::Relaxed);
        format!("{}-{number}", self.names.prefix)
    }

    /// A unique lock ID or request ID.
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

    /// An instance that was not initialised yet.
    pub(crate) fn new_instance(&self) -> anyhow::Result<Store> {
        let name = format!("{}-{}", self.subject.instance_name, self.resource());
        let instance = Some(name.parse().context("the instance's name is not ASCII")?);
        Ok(self.instance(&self.subject.connection, instance))
    }

    /// The instance for calls without an instance name.
    pub(crate) fn unnamed_instance(&self) -> Store {
        self.instance(&self.subject.connection, None)
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

    /// See [`Subject::running`].
    pub(crate) fn running(&self) -> &RwLock<()> {
        &self.subject.running
    }

    /// Whether and why the run has ended.
    pub(crate) fn stop(&self) -> &Stop {
        &self.subject.stop
    }

    /// Restarts the store and initialises the instance again.
    pub(crate) async fn restart(&self) -> anyhow::Result<()> {
        let restart = self.subject.restart.clone().context("no restart was given")?;
        tokio::task::spawn_blocking(move || restart.run()).await??;
        let deadline = Instant::now() + RESTART_MAX;
        while self.fresh().ping().await.is_err() {
            ensure!(Instant::now() < deadline, "the store does not answer after its restart");
            tokio::time::sleep(POLL).await;
        }
        self.fresh().init(self.properties()).await.or_fail("Init after the restart")
    }

    pub(crate) async fn clean_up(&self) {
        self.scope.clean_up(self.declares(Feature::ForceUnlock)).await;
    }

    fn on(&self, connection: &Connection) -> Store {
        self.instance(connection, Some(self.subject.instance.clone()))
    }

    fn instance(&self, connection: &Connection, name: Option<MetadataValue<Ascii>>) -> Store {
        let instance = Instance { connection: connection.clone(), name };
        Store::new(instance, Arc::clone(&self.scope))
    }
}

/// Locks a resource that is free now.
pub(crate) async fn hold(store: &Store, ask: &Ask) -> anyhow::Result<Grant> {
    store.try_lock(ask).await.or_fail("a TryLock of a free resource was refused")
}

/// Locks a resource that must be free by `deadline`, by trying again and again.
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
        ensure!(!last_try, "{what}: the resource is still held");
        tokio::time::sleep(POLL).await;
    }
}

/// Locks a resource whose holder is gone.
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

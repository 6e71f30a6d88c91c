//! One connection to Redis.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use ::redis::{PushInfo, PushKind, RedisError, Value, aio::MultiplexedConnection, cmd};
use tokio::{time::Instant, try_join};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::{
    errors::{allowed, is_denied},
    failure::{Failure, Unfit},
    hearing::Hearing,
    library::{Form, Library},
    master::{Master, connect},
    notice::NOBODYS_CHANNEL,
    owed::Owed,
    peer::{Peer, fence, identify},
};

/// The oldest version whose nodes of a Cluster say which keys are missing while a slot is moved.
const OLDEST_IN_CLUSTER: u32 = 7;

/// How long opening a connection may take.
pub(super) const OPEN_TIMEOUT: Duration = Duration::from_millis(3500);
/// The number of the last connection. No two of a process have the same.
static LAST: AtomicU64 = AtomicU64::new(0);

/// A connection to a server that can grant locks. It carries no lock calls yet, because the
/// earlier connections have not been ended.
pub(super) struct Greeted {
    pub(super) master: Master,
    connection: MultiplexedConnection,
    dead: CancellationToken,
    peer: Peer,
}

impl Greeted {
    /// Connects, and checks the server's role.
    pub(super) async fn dial(master: Master, hearing: &Hearing) -> Result<Self, Failure> {
        let dead = CancellationToken::new();
        let pushed = {
            let (dead, hearing) = (dead.clone(), hearing.clone());
            move |push: PushInfo| match push.kind {
                PushKind::Disconnection => dead.cancel(),
                PushKind::Message => hearing.heard(&push.data),
                _ => {}
            }
        };
        let connection = connect(&master.client, pushed).await?;
        // Independent requests share a round trip, so that a connection to a distant server
        // can be opened in time.
        let role = check_role(connection.clone(), master.in_cluster, true);
        let ((), peer) =
            try_join!(role, async { identify(&connection).await.map_err(Failure::from) })?;
        Ok(Self { master, connection, dead, peer })
    }

    /// Returns once the server answers. While clients that write are paused, it does not.
    pub(super) async fn answers(&self) -> Result<(), RedisError> {
        observe(&self.connection).await.map(drop)
    }
}

/// A connection that is ready for use.
pub(super) struct Session {
    /// The server that it leads to.
    pub(super) master: Master,
    connection: MultiplexedConnection,
    /// Cancelled when the connection is lost or not used any more.
    pub(super) dead: CancellationToken,
    /// Whether another server is known to be the master.
    is_outdated: AtomicBool,
    /// The answers that the server owes.
    pub(super) owed: Owed,
    /// The number of this connection: no other has the same.
    pub(super) number: u64,
    /// When it was opened.
    pub(super) opened: Instant,
    /// Whether, when it was opened, other clients received the messages to processes, such as
    /// clients that subscribe to the pattern `*`.
    pub(super) is_monitored: bool,
    /// Whether the library runs as a script.
    runs_script: AtomicBool,
    /// Identifies this connection, so that a later one can end it.
    pub(super) peer: Peer,
}

impl Session {
    /// Connects, and makes the connection ready for use.
    pub(super) async fn open(
        master: Master,
        before: &[Peer],
        hearing: &Hearing,
    ) -> Result<Self, Failure> {
        Self::over(Greeted::dial(master, hearing).await?, before, hearing).await
    }

    /// Ends the earlier connections, subscribes and loads the library. Requests that were sent
    /// over the earlier connections can then no longer take effect (trap 7).
    pub(super) async fn over(
        greeted: Greeted,
        before: &[Peer],
        hearing: &Hearing,
    ) -> Result<Self, Failure> {
        let Greeted { master, mut connection, dead, peer } = greeted;
        fence(&mut connection, &peer, before).await?;
        let (is_monitored, (), form) = try_join!(
            observe(&connection),
            subscribe(connection.clone(), hearing),
            load(master.library(), &connection),
        )?;
        let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        let runs_script = AtomicBool::new(form == Form::Script);
        Ok(Self {
            master,
            connection,
            dead,
            is_outdated: AtomicBool::new(false),
            owed: Owed::default(),
            number,
            opened: Instant::now(),
            is_monitored,
            runs_script,
            peer,
        })
    }

    /// Ends its use, because another server is known to be the master. What the former master
    /// still answers is not believed: the other does not know of it.
    pub(super) fn outdate(&self) {
        self.is_outdated.store(true, Ordering::Relaxed);
        self.dead.cancel();
    }

    /// Whether another server is known to be the master.
    pub(super) fn is_outdated(&self) -> bool {
        self.is_outdated.load(Ordering::Relaxed)
    }

    /// Checks that the server is still a master. Returns whether other clients receive the
    /// messages to processes. A library that could not be loaded is loaded again.
    pub(super) async fn check(&self) -> Result<bool, Failure> {
        let role = check_role(self.connection(), self.master.in_cluster, true);
        self.owed.answer(role).await?;
        let library = self.master.library();
        if self.form() == Form::Script
            && self.owed.answer(load_functions(library, &self.connection)).await?
        {
            self.runs_script.store(false, Ordering::Relaxed);
        }
        Ok(self.owed.answer(observe(&self.connection)).await?)
    }

    /// How calls run the library.
    pub(super) fn form(&self) -> Form {
        if self.runs_script.load(Ordering::Relaxed) { Form::Script } else { Form::Functions }
    }

    /// Loads the library.
    pub(super) async fn load(&self) -> Result<(), RedisError> {
        let form = load(self.master.library(), &self.connection).await?;
        self.runs_script.store(form == Form::Script, Ordering::Relaxed);
        Ok(())
    }

    /// A handle to send requests with.
    pub(super) fn connection(&self) -> MultiplexedConnection {
        self.connection.clone()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.dead.cancel();
    }
}

async fn subscribe(
    mut connection: MultiplexedConnection,
    hearing: &Hearing,
) -> Result<(), RedisError> {
    match hearing.channel() {
        Some(channel) => connection.subscribe(channel).await,
        None => Ok(()),
    }
}

/// Loads the library, as functions if the server has them and allows it. A server without
/// memory or replicas refuses to load functions, but not a script.
async fn load(
    library: &Library,
    connection: &MultiplexedConnection,
) -> Result<Form, RedisError> {
    if load_functions(library, connection).await? {
        return Ok(Form::Functions);
    }
    let mut connection = connection.clone();
    library.script.load_async(&mut connection).await.map(|_: String| Form::Script)
}

/// Loads the library as functions. `false` if the server refuses that.
async fn load_functions(
    library: &Library,
    connection: &MultiplexedConnection,
) -> Result<bool, RedisError> {
    match library.load().exec_async(&mut connection.clone()).await {
        Ok(()) => Ok(true),
        Err(error) if error.to_string().contains("already exists") => Ok(true),
        Err(error) if is_refusal(&error) => {
            debug!(%error, "the library runs as a script, because it cannot be loaded");
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Whether the server refused to load functions, but may run a script.
fn is_refusal(error: &RedisError) -> bool {
    is_denied(error) || matches!(error.code(), Some("OOM" | "NOREPLICAS"))
}

/// Whether other clients receive the messages to processes.
async fn observe(connection: &MultiplexedConnection) -> Result<bool, RedisError> {
    // No process has this channel, so all subscribers that receive the message use a pattern.
    let mut publish = cmd("PUBLISH");
    publish.arg(NOBODYS_CHANNEL).arg("");
    let receivers = allowed(publish.query_async::<u64>(&mut connection.clone()).await)?;
    // Without the permission it is unknown, so each hand-over counts direct subscribers.
    Ok(receivers.is_none_or(|receivers| receivers > 0))
}

/// Fails if the server cannot be used, or, if asked, if it cannot grant locks. `HELLO` says so and
/// needs no other permission.
pub(super) async fn check_role(
    mut connection: MultiplexedConnection,
    in_cluster: bool,
    grants: bool,
) -> Result<(), Failure> {
    let hello: HashMap<String, Value> =
        cmd("HELLO").arg("3").query_async(&mut connection).await?;
    match unfit(&hello, in_cluster) {
        None => Ok(()),
        Some(Unfit::Replica) if !grants => Ok(()),
        Some(unfit) => Err(Failure::Unfit(unfit)),
    }
}

fn unfit(hello: &HashMap<String, Value>, in_cluster: bool) -> Option<Unfit> {
    let field = |name| match hello.get(name) {
        Some(Value::BulkString(text)) => text.as_slice(),
        Some(Value::SimpleString(text)) => text.as_bytes(),
        _ => b"",
    };
    let is_old = || {
        let version = String::from_utf8_lossy(field("version"));
        let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
        major.is_some_and(|major| major < OLDEST_IN_CLUSTER)
    };
    match (field("mode"), field("role")) {
        (b"sentinel", _) => Some(Unfit::Sentinel),
        (b"cluster", _) if !in_cluster => Some(Unfit::Cluster),
        (b"standalone", _) if in_cluster => Some(Unfit::Alone),
        _ if in_cluster && is_old() => Some(Unfit::Old),
        (_, b"replica" | b"slave") => Some(Unfit::Replica),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(fields: &[(&str, &str)]) -> HashMap<String, Value> {
        let text = |text: &str| Value::BulkString(text.into());
        fields.iter().map(|(name, value)| ((*name).to_owned(), text(value))).collect()
    }

    #[test]
    fn only_a_standalone_master_is_accepted() {
        let unfit = |hello| unfit(&hello, false);
        assert_eq!(unfit(hello(&[("mode", "standalone"), ("role", "master")])), None);
        assert_eq!(unfit(hello(&[])), None, "a proxy that does not say");
        let replica = hello(&[("mode", "standalone"), ("role", "replica")]);
        assert_eq!(unfit(replica), Some(Unfit::Replica));
        let cluster = hello(&[("mode", "cluster"), ("role", "master")]);
        assert_eq!(unfit(cluster), Some(Unfit::Cluster));
        assert_eq!(unfit(hello(&[("mode", "sentinel")])), Some(Unfit::Sentinel));
    }

    #[test]
    fn a_cluster_is_of_masters_of_redis_7_or_later() {
        let unfit = |mode, role, version| {
            unfit(&hello(&[("mode", mode), ("role", role), ("version", version)]), true)
        };
        assert_eq!(unfit("cluster", "master", "7.0.0"), None);
        assert_eq!(unfit("cluster", "master", "10.1"), None);
        assert_eq!(unfit("cluster", "master", "6.2.14"), Some(Unfit::Old));
        assert_eq!(unfit("cluster", "replica", "7.0.15"), Some(Unfit::Replica));
        assert_eq!(unfit("standalone", "master", "7.0.15"), Some(Unfit::Alone));
    }
}

//! One connection to Redis.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use ::redis::{PushInfo, PushKind, RedisError, Value, aio::MultiplexedConnection, cmd};
use tokio::{time::Instant, try_join};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::{
    errors::{allowed, is_denied},
    failure::{Failure, Unfit},
    library::{Form, LIBRARY},
    master::{Master, connect},
    notice::Notice,
    owed::Owed,
    peer::{Peer, fence, identify},
    waiters::{NOBODYS_CHANNEL, Waiters},
};

/// How long opening a connection may take.
pub(super) const OPEN_TIMEOUT: Duration = Duration::from_millis(3500);
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
    pub(super) async fn dial(
        master: Master,
        waiters: Option<&Arc<Waiters>>,
    ) -> Result<Self, Failure> {
        let dead = CancellationToken::new();
        let pushed = {
            let (dead, waiters) = (dead.clone(), waiters.cloned());
            move |push: PushInfo| match push.kind {
                PushKind::Disconnection => dead.cancel(),
                PushKind::Message => {
                    waiters.iter().for_each(|waiters| heard(waiters, &push.data));
                }
                _ => {}
            }
        };
        let connection = connect(&master.client, pushed).await?;
        // Independent requests share a round trip, so that a connection to a distant server
        // can be opened in time.
        let ((), peer) = try_join!(check_role(connection.clone()), async {
            identify(&connection).await.map_err(Failure::from)
        })?;
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
    /// The number of this connection in its backend, from 1; 0 for one that only watches.
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
        number: u64,
        before: &[Peer],
        waiters: Option<&Arc<Waiters>>,
    ) -> Result<Self, Failure> {
        Self::over(Greeted::dial(master, waiters).await?, number, before, waiters).await
    }

    /// Ends the earlier connections, subscribes and loads the library. Requests that were sent
    /// over the earlier connections can then no longer take effect (trap 7). Without `waiters`
    /// it does not subscribe, because no waiter is called over it.
    pub(super) async fn over(
        greeted: Greeted,
        number: u64,
        before: &[Peer],
        waiters: Option<&Arc<Waiters>>,
    ) -> Result<Self, Failure> {
        let Greeted { master, mut connection, dead, peer } = greeted;
        fence(&mut connection, &peer, before).await?;
        let (is_monitored, (), form) = try_join!(
            observe(&connection),
            subscribe(connection.clone(), waiters),
            load(&connection),
        )?;
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
        self.owed.answer(check_role(self.connection())).await?;
        if self.form() == Form::Script
            && self.owed.answer(load_functions(&self.connection)).await?
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
        let form = load(&self.connection).await?;
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
    waiters: Option<&Arc<Waiters>>,
) -> Result<(), RedisError> {
    match waiters {
        Some(waiters) => connection.subscribe(waiters.channel()).await,
        None => Ok(()),
    }
}

/// Loads the library, as functions if the server has them and allows it. A server without
/// memory or replicas refuses to load functions, but not a script.
async fn load(connection: &MultiplexedConnection) -> Result<Form, RedisError> {
    if load_functions(connection).await? {
        return Ok(Form::Functions);
    }
    let mut connection = connection.clone();
    LIBRARY.script.load_async(&mut connection).await.map(|_: String| Form::Script)
}

/// Loads the library as functions. `false` if the server refuses that.
async fn load_functions(connection: &MultiplexedConnection) -> Result<bool, RedisError> {
    match LIBRARY.load().exec_async(&mut connection.clone()).await {
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

/// Fails if the server cannot grant locks. `HELLO` says so and needs no other permission.
async fn check_role(mut connection: MultiplexedConnection) -> Result<(), Failure> {
    let hello: HashMap<String, Value> =
        cmd("HELLO").arg("3").query_async(&mut connection).await?;
    unfit(&hello).map_or(Ok(()), |unfit| Err(Failure::Unfit(unfit)))
}

fn unfit(hello: &HashMap<String, Value>) -> Option<Unfit> {
    let field = |name| match hello.get(name) {
        Some(Value::BulkString(text)) => text.as_slice(),
        Some(Value::SimpleString(text)) => text.as_bytes(),
        _ => b"",
    };
    match (field("mode"), field("role")) {
        (b"cluster", _) => Some(Unfit::Cluster),
        (b"sentinel", _) => Some(Unfit::Sentinel),
        (_, b"replica" | b"slave") => Some(Unfit::Replica),
        _ => None,
    }
}

pub(crate) fn heard(waiters: &Waiters, data: &[Value]) {
    let [Value::BulkString(_), Value::BulkString(message)] = data else { return };
    if let Some(notice) = std::str::from_utf8(message).ok().and_then(Notice::read) {
        waiters.handle(&notice);
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
        assert_eq!(unfit(&hello(&[("mode", "standalone"), ("role", "master")])), None);
        assert_eq!(unfit(&hello(&[])), None, "a proxy that does not say");
        let replica = hello(&[("mode", "standalone"), ("role", "replica")]);
        assert_eq!(unfit(&replica), Some(Unfit::Replica));
        let cluster = hello(&[("mode", "cluster"), ("role", "master")]);
        assert_eq!(unfit(&cluster), Some(Unfit::Cluster));
        assert_eq!(unfit(&hello(&[("mode", "sentinel")])), Some(Unfit::Sentinel));
    }
}

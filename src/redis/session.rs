//! One connection to Redis.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use ::redis::{
    AsyncConnectionConfig, Client, PushInfo, PushKind, RedisError, Value,
    aio::MultiplexedConnection, cmd,
};
use tokio::{time::sleep, try_join};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::{
    library::{Form, LIBRARY},
    notice::Notice,
    owed::Owed,
    route::Master,
    sentinel::Unresolved,
    waiters::{NOBODYS_CHANNEL, Waiters},
};

/// How long opening a connection may take.
pub(super) const OPEN_TIMEOUT: Duration = Duration::from_millis(3500);
/// How many requests may be queued for the socket before their senders are delayed.
const REQUESTS_AHEAD: usize = 1024;
/// How long to wait before a new connection is used if the old one could not be ended. By
/// then the requests in its buffers have been executed or lost on almost any network.
const UNFENCED_REST: Duration = Duration::from_secs(1);

/// Identifies a connection on its server, so that another connection can end it.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    /// The ID of the server's process; `None` without the permission to read it.
    run_id: Option<String>,
    /// The connection's ID and address; `None` without the permission to read them.
    client: Option<(String, String)>,
}

impl Peer {
    /// Whether both may be connections to the same server.
    pub(super) fn may_share_server(&self, other: &Self) -> bool {
        match (&self.run_id, &other.run_id) {
            (Some(one), Some(another)) => one == another,
            _ => true,
        }
    }
}

/// Why a server that answers cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unfit {
    /// It is a replica.
    Replica,
    /// It is a node of a Cluster.
    Cluster,
    /// It is a Sentinel.
    Sentinel,
}

/// Why a connection cannot be used.
#[derive(Debug)]
pub(super) enum Failure {
    /// An error of the server or the network.
    Error(RedisError),
    /// The server cannot grant locks.
    Unfit(Unfit),
    /// Sentinels do not name the master.
    Unresolved(Unresolved),
}

impl From<Unresolved> for Failure {
    fn from(unresolved: Unresolved) -> Self {
        Self::Unresolved(unresolved)
    }
}

impl From<RedisError> for Failure {
    fn from(error: RedisError) -> Self {
        Self::Error(error)
    }
}

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

/// Opens a connection. `pushed` gets what the server sends unasked.
pub(super) async fn connect(
    client: &Client,
    pushed: impl Fn(PushInfo) + Send + Sync + 'static,
) -> Result<MultiplexedConnection, RedisError> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(REQUESTS_AHEAD)
        .set_push_sender(move |push| {
            pushed(push);
            Ok::<_, ()>(())
        });
    client.get_multiplexed_async_connection_with_config(&config).await
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

    /// Whether a password is configured that the server does not ask for. A server accepts
    /// any password for a default user without one.
    pub(super) async fn asks_for_no_password(&self) -> bool {
        let settings = self.master.client.get_connection_info().redis_settings();
        let (None, Some(password)) = (settings.username(), settings.password()) else {
            return false;
        };
        let again = cmd("AUTH").arg(password).exec_async(&mut self.connection()).await;
        again.is_err_and(|error| error.to_string().contains("without any password"))
    }

    /// The server's policy of evicting keys, if it is known and may evict locks.
    pub(super) async fn eviction_policy(&self) -> Option<String> {
        let mut info = cmd("INFO");
        info.arg("memory");
        let info = info.query_async::<String>(&mut self.connection()).await.ok()?;
        info_field(&info, "maxmemory_policy").filter(|policy| policy != "noeviction")
    }

    /// Whether the master goes on granting while it is cut off from its replicas.
    pub(super) async fn needs_no_replicas(&self) -> bool {
        let mut info = cmd("INFO");
        info.arg("replication");
        let Ok(info) = info.query_async::<String>(&mut self.connection()).await else {
            return false;
        };
        // The field is there only if replicas are needed.
        info_field(&info, "min_slaves_good_slaves").is_none()
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

/// Ends the earlier connections to this server. Requests to other servers cannot reach it,
/// so connections to those are left alone.
async fn fence(
    connection: &mut MultiplexedConnection,
    here: &Peer,
    before: &[Peer],
) -> Result<(), RedisError> {
    let mut all_ended = true;
    for peer in before.iter().filter(|peer| peer.may_share_server(here)) {
        all_ended &= end(connection, peer).await?;
    }
    if !all_ended {
        sleep(UNFENCED_REST).await;
    }
    Ok(())
}

/// Ends one connection; `false` without the permission to do so.
async fn end(connection: &mut MultiplexedConnection, peer: &Peer) -> Result<bool, RedisError> {
    let Some((id, address)) = &peer.client else { return Ok(false) };
    let mut kill = cmd("CLIENT");
    kill.arg("KILL").arg("ID").arg(id).arg("ADDR").arg(address);
    match kill.query_async::<i64>(connection).await {
        Ok(_) => Ok(true),
        Err(error) if is_denied(&error) => {
            warn!(
                code = error.code(),
                "the lost connection could not be ended; allow the user +client|kill"
            );
            Ok(false)
        }
        // The server may be busy. It is unknown whether the earlier connection still exists.
        Err(error) => Err(error),
    }
}

/// Without the permissions, a later connection has less to identify this one by.
async fn identify(connection: &MultiplexedConnection) -> Result<Peer, RedisError> {
    let ask = |command: &'static str, about: &'static str| {
        let mut connection = connection.clone();
        async move { allowed(cmd(command).arg(about).query_async::<String>(&mut connection).await) }
    };
    let (server, client) = try_join!(ask("INFO", "server"), ask("CLIENT", "INFO"))?;
    let run_id = server.and_then(|info| info_field(&info, "run_id"));
    let client = client.and_then(|info| {
        let field = |name: &str| {
            info.split_whitespace()
                .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
                .map(str::to_owned)
        };
        Some((field("id")?, field("addr")?))
    });
    Ok(Peer { run_id, client })
}

/// A field of the answer to `INFO`.
fn info_field(info: &str, name: &str) -> Option<String> {
    info.lines()
        .find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim().to_owned()))
}

/// An answer, or `None` without the permission for the command.
fn allowed<T>(answer: Result<T, RedisError>) -> Result<Option<T>, RedisError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if is_denied(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether the user lacks the permission, or the server (a proxy) lacks the command.
fn is_denied(error: &RedisError) -> bool {
    matches!(error.code(), Some("NOPERM" | "ERR"))
}

pub(crate) fn heard(waiters: &Waiters, data: &[Value]) {
    let [Value::BulkString(_), Value::BulkString(message)] = data else { return };
    if let Some(notice) = std::str::from_utf8(message).ok().and_then(Notice::read) {
        waiters.handle(&notice);
    }
}

#[cfg(test)]
mod tests {
    use ::redis::parse_redis_value;

    use super::*;

    fn peer(run_id: Option<&str>) -> Peer {
        Peer { run_id: run_id.map(str::to_owned), client: None }
    }

    fn hello(fields: &[(&str, &str)]) -> HashMap<String, Value> {
        let text = |text: &str| Value::BulkString(text.into());
        fields.iter().map(|(name, value)| ((*name).to_owned(), text(value))).collect()
    }

    #[test]
    fn connections_to_another_server_are_not_ended_here() {
        let here = peer(Some("a"));
        assert!(peer(Some("a")).may_share_server(&here));
        assert!(!peer(Some("b")).may_share_server(&here));
        assert!(peer(None).may_share_server(&here), "who knows");
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

    #[test]
    fn a_busy_server_does_not_count_as_a_missing_permission() {
        let answer = |line: &str| {
            let value = parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
            allowed(value.extract_error().map(drop))
        };
        assert!(matches!(answer("NOPERM this user has no permissions"), Ok(None)));
        for passing in ["BUSY Redis is busy running a script", "LOADING Redis is loading"] {
            assert!(answer(passing).is_err(), "{passing}");
        }
    }
}

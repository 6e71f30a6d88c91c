//! One connection to Redis, from its opening to its loss.

use std::{collections::HashMap, sync::Arc, time::Duration};

use ::redis::{
    AsyncConnectionConfig, Client, PushInfo, PushKind, RedisError, Script, Value,
    aio::MultiplexedConnection, cmd,
};
use futures_util::future::try_join_all;
use tokio::{join, time::sleep, try_join};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{
    notice::Notice,
    scripts::SCRIPTS,
    server_time::ServerTime,
    waiters::{NOBODYS_CHANNEL, Waiters},
};

/// How many requests may lie before the socket without slowing their senders.
const REQUESTS_AHEAD: usize = 1024;
/// How long a new connection rests where the old one could not be ended: what
/// lay in its buffers has been served or lost by then, in all but odd networks.
const UNFENCED_REST: Duration = Duration::from_secs(1);

/// A connection as its server knows it, so that it can be ended from another.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    /// Names the server's process; `None` without permission to ask.
    run_id: Option<String>,
    /// The connection's ID and address; `None` without permission to ask.
    client: Option<(String, String)>,
}

impl Peer {
    /// Whether both are connections to one server, as far as is known.
    pub(super) fn may_share_server(&self, other: &Self) -> bool {
        match (&self.run_id, &other.run_id) {
            (Some(one), Some(another)) => one == another,
            _ => true,
        }
    }
}

/// Why a server cannot be used, though it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unfit {
    /// It follows a master.
    Replica,
    /// It is a node of a Cluster.
    Cluster,
    /// It is a Sentinel.
    Sentinel,
}

/// Why a connection is not in service, or no longer.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server or the network said no.
    Error(RedisError),
    /// The server is none that grants locks.
    Unfit(Unfit),
}

impl From<RedisError> for Failure {
    fn from(error: RedisError) -> Self {
        Self::Error(error)
    }
}

/// What is asked of the server when a connection is opened, and regularly since.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observed {
    pub(super) time: ServerTime,
    /// Whether other clients receive the messages to processes, as those do that
    /// subscribe to the pattern `*`.
    pub(super) is_monitored: bool,
}

/// One connection that is in service.
pub(super) struct Session {
    connection: MultiplexedConnection,
    /// Cancelled when the connection is lost or given up.
    pub(super) dead: CancellationToken,
    /// Which connection of its backend this is, counted from 1.
    pub(super) number: u64,
    /// What was observed of the server when the connection was opened.
    pub(super) opened: Observed,
    /// What a later connection must end.
    pub(super) peer: Peer,
}

impl Session {
    /// Connects, ends the connections of before (so that nothing that was sent
    /// on them can take effect any more: trap 7), subscribes and loads the
    /// scripts.
    pub(super) async fn open(
        client: &Client,
        number: u64,
        before: &[Peer],
        waiters: &Arc<Waiters>,
    ) -> Result<Self, Failure> {
        let dead = CancellationToken::new();
        let pushed = {
            let (dead, waiters) = (dead.clone(), Arc::clone(waiters));
            move |push: PushInfo| -> Result<(), ()> {
                match push.kind {
                    PushKind::Disconnection => dead.cancel(),
                    PushKind::Message => heard(&waiters, &push.data),
                    _ => {}
                }
                Ok(())
            }
        };
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(REQUESTS_AHEAD)
            .set_push_sender(pushed);
        let mut connection =
            client.get_multiplexed_async_connection_with_config(&config).await?;
        // Requests that do not depend on each other share a round trip: a server that
        // is far away must be reached within the time for opening, too.
        let ((), peer) = try_join!(check_role(connection.clone()), async {
            identify(&connection).await.map_err(Failure::from)
        })?;
        fence(&mut connection, &peer, before).await?;
        let channel = waiters.channel();
        let (opened, (), ()) = try_join!(
            observe(&connection),
            subscribe(connection.clone(), &channel),
            load_scripts(&connection),
        )?;
        Ok(Self { connection, dead, number, opened, peer })
    }

    /// Whether there is a password, and the server lets its default user in
    /// without one. Servers take any password for such a user when a connection
    /// begins.
    pub(super) async fn asks_for_no_password(&self, client: &Client) -> bool {
        let settings = client.get_connection_info().redis_settings();
        let (None, Some(password)) = (settings.username(), settings.password()) else {
            return false;
        };
        let again = cmd("AUTH").arg(password).exec_async(&mut self.connection()).await;
        again.is_err_and(|error| error.to_string().contains("without any password"))
    }

    /// Asks whether the server is a master still, and what else is to be observed.
    pub(super) async fn check(&self) -> Result<Observed, Failure> {
        check_role(self.connection()).await?;
        Ok(observe(&self.connection).await?)
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
    channel: &str,
) -> Result<(), RedisError> {
    connection.subscribe(channel).await
}

async fn load_scripts(connection: &MultiplexedConnection) -> Result<(), RedisError> {
    let load = |script: &'static Script| {
        let mut connection = connection.clone();
        async move { script.load_async(&mut connection).await.map(|_: String| ()) }
    };
    try_join_all(SCRIPTS.all().map(load)).await.map(|_| ())
}

async fn observe(connection: &MultiplexedConnection) -> Result<Observed, RedisError> {
    let (mut asking, mut publishing) = (connection.clone(), connection.clone());
    // No process has this channel, so all who receive the message use a pattern.
    let mut publish = cmd("PUBLISH");
    publish.arg(NOBODYS_CHANNEL).arg("");
    let time = cmd("TIME");
    let (time, receivers) = join!(
        time.query_async::<(u64, u64)>(&mut asking),
        publish.query_async::<u64>(&mut publishing),
    );
    let (secs, us) = time?;
    let time = ServerTime::new(secs * 1_000_000 + us);
    let receivers = allowed(receivers)?;
    // Not known without permission: then each hand-over counts direct subscribers.
    let is_monitored = receivers.is_none_or(|receivers| receivers > 0);
    Ok(Observed { time, is_monitored })
}

/// Fails if the server is none that grants locks. `HELLO` says so without a
/// further permission.
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

/// Ends the connections of before. What was sent to another server cannot reach
/// this one: those connections are left alone.
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

/// Ends one connection; `false` if the server does not let us.
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
        // A busy server, say: nothing is known of the connection before yet.
        Err(error) => Err(error),
    }
}

/// Without permission for it there is less to tell a later connection.
async fn identify(connection: &MultiplexedConnection) -> Result<Peer, RedisError> {
    let ask = |command: &'static str, about: &'static str| {
        let mut connection = connection.clone();
        async move { allowed(cmd(command).arg(about).query_async::<String>(&mut connection).await) }
    };
    let (server, client) = try_join!(ask("INFO", "server"), ask("CLIENT", "INFO"))?;
    let run_id = server.and_then(|info| {
        info.lines().find_map(|line| Some(line.strip_prefix("run_id:")?.trim().to_owned()))
    });
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

/// An answer, or `None` without permission for it.
fn allowed<T>(answer: Result<T, RedisError>) -> Result<Option<T>, RedisError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if is_denied(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether the user may not, or the server (a proxy) has no such command.
fn is_denied(error: &RedisError) -> bool {
    matches!(error.code(), Some("NOPERM" | "ERR"))
}

pub(crate) fn heard(waiters: &Waiters, data: &[Value]) {
    let [Value::BulkString(_), Value::BulkString(message)] = data else { return };
    if let Some(notice) = std::str::from_utf8(message).ok().and_then(Notice::read) {
        waiters.hear(&notice);
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
    fn only_a_master_on_its_own_is_fit() {
        assert_eq!(unfit(&hello(&[("mode", "standalone"), ("role", "master")])), None);
        assert_eq!(unfit(&hello(&[])), None, "a proxy that does not say");
        let replica = hello(&[("mode", "standalone"), ("role", "replica")]);
        assert_eq!(unfit(&replica), Some(Unfit::Replica));
        let cluster = hello(&[("mode", "cluster"), ("role", "master")]);
        assert_eq!(unfit(&cluster), Some(Unfit::Cluster));
        assert_eq!(unfit(&hello(&[("mode", "sentinel")])), Some(Unfit::Sentinel));
    }

    #[test]
    fn a_busy_server_is_no_missing_permission() {
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

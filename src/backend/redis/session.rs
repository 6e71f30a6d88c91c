//! One connection to Redis, from its opening to its loss.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use ::redis::{
    AsyncConnectionConfig, Client, PushInfo, PushKind, RedisError, Value,
    aio::MultiplexedConnection, cmd,
};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{notice::Notice, scripts::SCRIPTS, server_time::ServerTime, waiters::Waiters};

/// How many requests may lie before the socket without slowing their senders.
const REQUESTS_AHEAD: usize = 1024;
/// How long a new connection rests where the old one could not be ended: what
/// lay in its buffers has been served or lost by then, in all but odd networks.
const UNFENCED_REST: Duration = Duration::from_secs(1);

/// A connection as the server knows it, so that it can be ended from another.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    id: String,
    address: String,
}

/// Which connection a new one takes the place of.
#[derive(Clone, Debug)]
pub(super) enum Before {
    /// None: it is the first.
    None,
    /// One that can be ended from here.
    Known(Peer),
    /// One of which the server told nothing.
    Unknown,
}

/// One connection that is in service.
pub(super) struct Session {
    connection: MultiplexedConnection,
    /// Cancelled when the connection is lost or given up.
    pub(super) dead: CancellationToken,
    /// Which connection of its backend this is, counted from 1.
    pub(super) number: u64,
    /// What the server's clock said at last.
    time: Mutex<ServerTime>,
    peer: Option<Peer>,
}

impl Session {
    /// Connects, ends the connection before (so that nothing that was sent on
    /// it can take effect any more: trap 7), subscribes and loads the scripts.
    pub(super) async fn open(
        client: &Client,
        number: u64,
        before: &Before,
        waiters: &Arc<Waiters>,
    ) -> Result<Self, RedisError> {
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
        match before {
            Before::None => {}
            Before::Known(peer) => fence(&mut connection, peer).await?,
            Before::Unknown => sleep(UNFENCED_REST).await,
        }
        let peer = identify(&mut connection).await;
        let time = Mutex::new(read_time(&mut connection).await?);
        connection.subscribe(waiters.channel()).await?;
        for script in SCRIPTS.all() {
            let _: String = script.load_async(&mut connection).await?;
        }
        Ok(Self { connection, dead, number, time, peer })
    }

    /// What the next connection must end.
    pub(super) fn as_before(&self) -> Before {
        self.peer.clone().map_or(Before::Unknown, Before::Known)
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

    /// Reads the server's clock, which also shows that it answers.
    pub(super) async fn refresh_time(&self) -> Result<(), RedisError> {
        let time = read_time(&mut self.connection()).await?;
        *self.time.lock().unwrap_or_else(PoisonError::into_inner) = time;
        Ok(())
    }

    /// What the server's clock says about now.
    pub(super) fn time(&self) -> ServerTime {
        *self.time.lock().unwrap_or_else(PoisonError::into_inner)
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

async fn read_time(connection: &mut MultiplexedConnection) -> Result<ServerTime, RedisError> {
    let (secs, us): (u64, u64) = cmd("TIME").query_async(connection).await?;
    Ok(ServerTime::new(secs * 1_000_000 + us))
}

async fn fence(
    connection: &mut MultiplexedConnection,
    before: &Peer,
) -> Result<(), RedisError> {
    let killed: Result<i64, RedisError> = cmd("CLIENT")
        .arg("KILL")
        .arg("ID")
        .arg(&before.id)
        .arg("ADDR")
        .arg(&before.address)
        .query_async(connection)
        .await;
    match killed {
        Ok(_) => Ok(()),
        Err(error) if error.is_unrecoverable_error() => Err(error),
        Err(error) => {
            warn!(
                code = error.code().unwrap_or("ERR"),
                "the lost connection could not be ended; allow the user +client|kill"
            );
            sleep(UNFENCED_REST).await;
            Ok(())
        }
    }
}

/// Without permission for it there is no peer to end later.
async fn identify(connection: &mut MultiplexedConnection) -> Option<Peer> {
    let info: String = cmd("CLIENT").arg("INFO").query_async(connection).await.ok()?;
    let field = |name: &str| {
        info.split_whitespace()
            .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
            .map(str::to_owned)
    };
    Some(Peer { id: field("id")?, address: field("addr")? })
}

pub(super) fn heard(waiters: &Waiters, data: &[Value]) {
    let [Value::BulkString(_), Value::BulkString(message)] = data else { return };
    if let Some(notice) = std::str::from_utf8(message).ok().and_then(Notice::read) {
        waiters.hear(&notice);
    }
}

//! Ends a lost connection at its server.

use std::time::Duration;

use ::redis::{RedisError, aio::MultiplexedConnection, cmd};
use tokio::{time::sleep, try_join};
use tracing::warn;

use super::errors::{allowed, is_denied};

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

/// Ends the earlier connections to this server. Requests to other servers cannot reach it,
/// so connections to those are left alone.
pub(super) async fn fence(
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
pub(super) async fn identify(connection: &MultiplexedConnection) -> Result<Peer, RedisError> {
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
pub(super) fn info_field(info: &str, name: &str) -> Option<String> {
    info.lines()
        .find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(run_id: Option<&str>) -> Peer {
        Peer { run_id: run_id.map(str::to_owned), client: None }
    }

    #[test]
    fn connections_to_another_server_are_not_ended_here() {
        let here = peer(Some("a"));
        assert!(peer(Some("a")).may_share_server(&here));
        assert!(!peer(Some("b")).may_share_server(&here));
        assert!(peer(None).may_share_server(&here), "who knows");
    }
}

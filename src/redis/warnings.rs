//! Settings of the server that weaken locks.

use std::time::Duration;

use ::redis::cmd;
use tokio::time::timeout;
use tracing::warn;

use super::{peer::info_field, session::Session};

/// How long all questions together may take. Init is to end within 4 s.
const WARNINGS_MAX: Duration = Duration::from_millis(500);

/// Warns of settings of the server that weaken locks. A server that does not answer has no warnings.
pub(super) async fn check(has_sentinels: bool, session: &Session) {
    let _ = timeout(WARNINGS_MAX, check_all(has_sentinels, session)).await;
}

async fn check_all(has_sentinels: bool, session: &Session) {
    let server = session.master.address();
    if asks_for_no_password(session).await {
        warn!(%server, "redisPassword is set, but the server asks for none: anybody can use it");
    }
    if let Some(policy) = eviction_policy(session).await {
        warn!(
            %server,
            policy,
            "Redis may evict locks, which ends them early; set maxmemory-policy to noeviction"
        );
    }
    if has_sentinels && needs_no_replicas(session).await {
        warn!(
            %server,
            "a master that is cut off goes on granting locks that the next master does not know; \
             set min-replicas-to-write to 1 or more"
        );
    }
}

/// Whether a password is configured that the server does not ask for. A server accepts
/// any password for a default user without one.
async fn asks_for_no_password(session: &Session) -> bool {
    let settings = session.master.client.get_connection_info().redis_settings();
    let (None, Some(password)) = (settings.username(), settings.password()) else {
        return false;
    };
    let again = cmd("AUTH").arg(password).exec_async(&mut session.connection()).await;
    again.is_err_and(|error| error.to_string().contains("without any password"))
}

/// The server's policy of evicting keys, if it is known and may evict locks.
async fn eviction_policy(session: &Session) -> Option<String> {
    let info = info(session, "memory").await?;
    info_field(&info, "maxmemory_policy").filter(|policy| policy != "noeviction")
}

/// Whether the master goes on granting while it is cut off from its replicas.
async fn needs_no_replicas(session: &Session) -> bool {
    let info = info(session, "replication").await;
    // The field is there only if replicas are needed.
    info.is_some_and(|info| info_field(&info, "min_slaves_good_slaves").is_none())
}

/// A section of what the server says of itself; `None` without the permission to read it.
async fn info(session: &Session, section: &str) -> Option<String> {
    cmd("INFO").arg(section).query_async(&mut session.connection()).await.ok()
}

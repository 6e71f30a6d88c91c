//! Removes entries that came back with an older data set.
//!
//! The watch of a queue finds those of its own. This finds the rest, in queues
//! that nobody of this process waits in any more: their session is kept alive,
//! and without this they would stand before everybody else for as long.

use std::{collections::HashSet, sync::Arc, time::Duration};

use tokio::time::{Instant, interval};
use tracing::{debug, info, warn};

use crate::backend::etcd::{client::failure::Failure, core::Core};

const INTERVAL: Duration = Duration::from_secs(1);
/// How often one is tried again.
const RETRIES_MAX: u32 = 5;
/// How long one look may take.
const LOOK_TIMEOUT: Duration = Duration::from_secs(5);

/// Looks once for each connection that was opened anew, and a few times if it
/// cannot: etcd is not restored under one that lives.
pub(crate) async fn keep(core: Arc<Core>) {
    let (mut swept, mut failed) = (core.connection.generation(), 0);
    let mut ticks = interval(INTERVAL);
    loop {
        ticks.tick().await;
        let generation = core.connection.generation();
        if generation == swept {
            continue;
        }
        match sweep(&core, Instant::now() + LOOK_TIMEOUT).await {
            Err(failure) if failed < RETRIES_MAX => {
                failed += 1;
                debug!(why = %failure.why(), "old entries could not be looked for yet");
            }
            looked => {
                if let Err(failure) = looked {
                    warn!(why = %failure.why(), "old entries could not be looked for");
                }
                (swept, failed) = (generation, 0);
            }
        }
    }
}

async fn sweep(core: &Core, until: Instant) -> Result<(), Failure> {
    let Some(session) = core.sessions.kept().await else { return Ok(()) };
    let mut found = core.leases.keys_under(session.lease_id(), until).await?;
    // Read the local entries after listing: a waiter registers before its key is written.
    let known: HashSet<String> = core
        .queues
        .entries()
        .iter()
        .map(|(resource, entry)| core.keys.entry(resource, entry))
        .collect();
    found.retain(|key| *key != session.key(&core.keys) && !known.contains(key));
    for key in &found {
        info!(key, "removing a waiter's entry that nobody waits with");
        core.sessions
            .delete_entry(key, until)
            .await
            .map_err(|error| Failure::Unknown(error.why()))?;
    }
    Ok(())
}

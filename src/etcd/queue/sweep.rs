//! Removes entries that came back with an older data set.
//!
//! Whoever follows a queue removes the orphans in it. This finds the others, in queues that
//! nobody of this process waits in any more. Their session is kept alive, so that otherwise
//! they would stand before all other waiters for as long.

use std::{collections::HashSet, sync::Arc, time::Duration};

use tokio::time::{Instant, interval};
use tracing::{debug, info, warn};

use crate::{client::failure::Failure, lease::leases::Leases, queue::queues::Queues};

const INTERVAL: Duration = Duration::from_secs(1);
/// How often a sweep that failed is tried again.
const RETRIES_MAX: u32 = 5;
/// How long one sweep may take.
const SWEEP_TIMEOUT: Duration = Duration::from_secs(5);

/// Sweeps once after each reconnect, and retries a few times if that fails. etcd cannot be
/// restored while a connection to it lives.
pub(crate) async fn keep(queues: Arc<Queues>, leases: Arc<Leases>) {
    let (mut swept, mut failed) = (queues.etcd.connection.generation(), 0);
    let mut ticks = interval(INTERVAL);
    loop {
        ticks.tick().await;
        let generation = queues.etcd.connection.generation();
        if generation == swept {
            continue;
        }
        match sweep(&queues, &leases, Instant::now() + SWEEP_TIMEOUT).await {
            Err(failure) if failed < RETRIES_MAX => {
                failed += 1;
                debug!(why = %failure.why(), "old entries could not be looked for yet");
            }
            result => {
                if let Err(failure) = result {
                    warn!(why = %failure.why(), "old entries could not be looked for");
                }
                (swept, failed) = (generation, 0);
            }
        }
    }
}

async fn sweep(queues: &Queues, leases: &Leases, until: Instant) -> Result<(), Failure> {
    let Some(session) = queues.sessions.kept().await else { return Ok(()) };
    let mut found = leases.keys_under(session.lease_id(), until).await?;
    // Read the local entries after listing: a waiter registers before its key is written.
    let known: HashSet<String> = queues
        .entries()
        .iter()
        .map(|(resource, entry)| queues.etcd.keys.entry(resource, entry))
        .collect();
    found.retain(|key| *key != session.key(&queues.etcd.keys) && !known.contains(key));
    for key in &found {
        info!(key, "removing a waiter's entry that nobody waits with");
        queues.sessions.delete_entry(key, until).await?;
    }
    Ok(())
}

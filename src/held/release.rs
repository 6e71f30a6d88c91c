//! Releasing what nobody holds any more.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use tokio::{
    sync::Semaphore,
    task::JoinHandle,
    time::{Instant, sleep},
};
use tracing::debug;

use super::record::Record;
use crate::lock::LockError;

const RETRY_DELAY_MIN: Duration = Duration::from_millis(50);
const RETRY_DELAY_MAX: Duration = Duration::from_secs(1);

/// Cancels a renewal and waits until nothing of it is left.
pub(super) async fn join(renewal: Option<JoinHandle<()>>) {
    if let Some(renewal) = renewal {
        renewal.abort();
        let _ = renewal.await;
    }
}

/// Unlocks until it is confirmed, or until the TTL has ended it (trap 24).
pub(super) async fn until_gone(record: &Record, places: &Semaphore) {
    let give_up = Instant::now() + record.schedule.ttl();
    let mut delays = ExponentialBuilder::new()
        .with_min_delay(RETRY_DELAY_MIN)
        .with_max_delay(RETRY_DELAY_MAX)
        .without_max_times()
        .with_jitter()
        .build();
    while Instant::now() < give_up {
        let place = places.acquire().await;
        let result = record.target().unlock(&record.lock_id).await;
        drop(place);
        match result {
            // What is unknown the store goes on settling by itself.
            Ok(()) | Err(LockError::NotFound { .. } | LockError::OutcomeUnknown(_)) => return,
            Err(error) => {
                debug!(resource = record.resource.as_str(), %error, "not released yet");
                sleep(delays.next().unwrap_or(RETRY_DELAY_MAX)).await;
            }
        }
    }
}

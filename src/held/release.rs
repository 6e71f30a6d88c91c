//! Releases a grant that nobody holds any more.

use std::time::Duration;

use tokio::sync::Semaphore;
use tracing::debug;

use super::record::Record;
use crate::lock::Instant;
use crate::{lock::LockError, retry::Backoff};

const RETRY_DELAY_MIN: Duration = Duration::from_millis(50);
const RETRY_DELAY_MAX: Duration = Duration::from_secs(1);

/// Releases what this process got until the store confirms it, or until the TTL has ended the
/// grant (trap 24).
pub(super) async fn until_gone(record: &Record, places: &Semaphore) {
    let give_up = Instant::now() + record.schedule.belief().ttl();
    let mut delays = Backoff::new(RETRY_DELAY_MIN, RETRY_DELAY_MAX);
    while Instant::now() < give_up {
        let place = places.acquire().await;
        let result = record.target().release(&record.lock_id, record.attempt).await;
        drop(place);
        match result {
            // After an unknown outcome the store goes on releasing it by itself.
            Ok(()) | Err(LockError::NotFound { .. } | LockError::OutcomeUnknown(_)) => return,
            Err(error) => {
                debug!(resource = record.resource.as_str(), %error, "not released yet");
                delays.pause().await;
            }
        }
    }
}

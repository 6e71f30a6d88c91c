//! Releases a grant that nobody holds any more.

use std::time::Duration;

use leasehold_lock::{Instant, LockError, LockId};
use leasehold_util::retry::Backoff;
use tokio::sync::Semaphore;
use tracing::debug;

use super::{Target, claims::Claims};

const RETRY_DELAY_MIN: Duration = Duration::from_millis(50);
const RETRY_DELAY_MAX: Duration = Duration::from_secs(1);

/// A grant that nobody holds any more.
pub(super) struct Abandoned {
    pub(super) target: Target,
    pub(super) lock_id: LockId,
    pub(super) claims: Claims,
    pub(super) ttl: Duration,
}

/// Releases what this process got until the store confirms it, or until the TTL has ended the
/// grant (trap 24).
pub(super) async fn until_gone(grant: &Abandoned, places: &Semaphore) {
    let give_up = Instant::now() + grant.ttl;
    let mut delays = Backoff::new(RETRY_DELAY_MIN, RETRY_DELAY_MAX);
    while Instant::now() < give_up {
        let place = places.acquire().await;
        let result = grant.target.release(&grant.lock_id, &grant.claims).await;
        drop(place);
        match result {
            // After an unknown outcome the store goes on releasing it by itself.
            Ok(()) | Err(LockError::NotFound { .. } | LockError::OutcomeUnknown(_)) => return,
            Err(error) => {
                debug!(resource = grant.target.resource.as_str(), %error, "not released yet");
                delays.pause().await;
            }
        }
    }
}

//! For how long calls have failed, while a wait goes on.

use std::time::Duration;

use leasehold_util::retry::Backoff;
use tokio::time::Instant;

/// The first delay between attempts to wait. It grows to [`RETRY_DELAY_MAX`], plus a random
/// part of up to as much, longer than the idle time for which a draining store waits.
const RETRY_DELAY_MIN: Duration = Duration::from_millis(100);
const RETRY_DELAY_MAX: Duration = Duration::from_secs(1);
/// A call that lasted longer than this had reached the store, so an outage that ended it is
/// a new one.
pub(super) const CALL_MAX: Duration = Duration::from_secs(2);

/// The outage of a store, as one wait sees it.
pub(super) struct Outage {
    since: Instant,
    delays: Backoff,
}

impl Outage {
    pub(super) fn new() -> Self {
        let delays = Backoff::new(RETRY_DELAY_MIN, RETRY_DELAY_MAX);
        Self { since: Instant::now(), delays }
    }

    /// Notes that a call failed which had begun at `begun`. Returns how long the outage has
    /// lasted.
    pub(super) fn note(&mut self, begun: Instant) -> Duration {
        if begun.elapsed() > CALL_MAX {
            *self = Self::new();
        }
        self.since.elapsed()
    }

    /// Waits until the next attempt.
    pub(super) async fn pause(&mut self) {
        self.delays.pause().await;
    }
}

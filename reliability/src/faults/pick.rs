//! How long, and whom.

use std::{ops::RangeInclusive, time::Duration};

use tokio::time::sleep;

/// A moment between these.
pub(super) fn duration_ms(rng: &mut fastrand::Rng, range: RangeInclusive<u64>) -> Duration {
    Duration::from_millis(rng.u64(range))
}

/// How long an outage lasts: often longer than a session of etcd or a waiter's
/// sign of life in Redis, now and then longer than `operationTimeout`.
pub(super) fn outage(rng: &mut fastrand::Rng) -> Duration {
    match rng.u8(0..12) {
        0 => duration_ms(rng, 5_500..=6_500),
        1..5 => duration_ms(rng, 2_000..=5_500),
        _ => duration_ms(rng, 100..=3_000),
    }
}

/// Lets it last.
pub(super) async fn last(duration: Duration) {
    sleep(duration).await;
}

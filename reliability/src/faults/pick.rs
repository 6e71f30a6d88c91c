//! Random durations of faults.

use std::{ops::RangeInclusive, time::Duration};

use tokio::time::sleep;

/// A random duration in the range.
pub(super) fn duration_ms(rng: &mut fastrand::Rng, range: RangeInclusive<u64>) -> Duration {
    Duration::from_millis(rng.u64(range))
}

/// The duration of an outage: often longer than a session of etcd or a waiter's
/// sign of life in Redis, sometimes longer than `operationTimeout`.
pub(super) fn outage(rng: &mut fastrand::Rng) -> Duration {
    match rng.u8(0..12) {
        0 => duration_ms(rng, 5_500..=6_500),
        1..5 => duration_ms(rng, 2_000..=5_500),
        _ => duration_ms(rng, 100..=3_000),
    }
}

/// Waits for the duration of a fault.
pub(super) async fn last(duration: Duration) {
    sleep(duration).await;
}

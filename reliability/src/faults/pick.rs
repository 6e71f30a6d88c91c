//! How long, and whom.

use std::{ops::RangeInclusive, time::Duration};

use tokio::time::sleep;

/// A moment between these.
pub(super) fn duration_ms(rng: &mut fastrand::Rng, range: RangeInclusive<u64>) -> Duration {
    Duration::from_millis(rng.u64(range))
}

/// How long an outage lasts: now and then longer than `operationTimeout`.
pub(super) fn outage(rng: &mut fastrand::Rng) -> Duration {
    if rng.u8(0..12) == 0 {
        duration_ms(rng, 5_500..=6_500)
    } else {
        duration_ms(rng, 100..=3_000)
    }
}

/// Lets it last.
pub(super) async fn last(duration: Duration) {
    sleep(duration).await;
}

//! How long the oldest of many waits lasts.

use std::{collections::BTreeMap, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

/// The waits under way, by when they began. As many as a store may have waiters.
#[derive(Default)]
pub(crate) struct Waits(Mutex<BTreeMap<Instant, usize>>);

impl Waits {
    pub(crate) fn begin(&self, at: Instant) {
        *self.0.lock().entry(at).or_default() += 1;
    }

    /// A wait that began then has ended.
    pub(crate) fn end(&self, began: Instant) {
        let mut waits = self.0.lock();
        let Some(count) = waits.get_mut(&began) else { return };
        *count -= 1;
        if *count == 0 {
            waits.remove(&began);
        }
    }

    /// For how long the oldest wait has lasted; zero if there is none.
    pub(crate) fn oldest(&self, now: Instant) -> Duration {
        let oldest = self.0.lock().keys().next().copied();
        oldest.map_or(Duration::ZERO, |began| now.saturating_duration_since(began))
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn the_oldest_wait_that_has_not_ended_counts() {
        let waits = Waits::default();
        let first = Instant::now();
        assert_eq!(waits.oldest(first), Duration::ZERO);
        waits.begin(first);
        advance(3 * SECOND).await;
        let second = Instant::now();
        waits.begin(second);
        assert_eq!(waits.oldest(Instant::now()), 3 * SECOND);
        waits.end(first);
        assert_eq!(waits.oldest(Instant::now()), Duration::ZERO);
        advance(2 * SECOND).await;
        assert_eq!(waits.oldest(Instant::now()), 2 * SECOND);
        waits.end(second);
        assert_eq!(waits.oldest(Instant::now()), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_of_an_hour_is_not_hidden_by_later_ones() {
        let waits = Waits::default();
        let first = Instant::now();
        waits.begin(first);
        for _ in 0..3600 {
            advance(SECOND).await;
            waits.begin(Instant::now());
            waits.end(Instant::now());
        }
        assert_eq!(waits.oldest(Instant::now()), 3600 * SECOND);
    }
}

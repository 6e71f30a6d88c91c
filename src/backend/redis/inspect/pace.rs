//! How often a watch reads.

use std::time::Duration;

use tokio::time::Instant;

/// The shortest time between two readings, if others have begun to watch since the first.
const NEWCOMERS_EVERY: Duration = Duration::from_millis(100);

/// A reading is followed by a rest so many times as long, so that locks are served at least four
/// fifths of the time.
const REST_FACTOR: u32 = 4;

/// When to read again.
#[derive(Debug)]
pub(super) struct Pace {
    every: Duration,
    /// When the last reading began.
    began: Option<Instant>,
    /// The end of the rest after the last reading.
    rested: Instant,
    /// The number of the last watch that the last reading was for.
    pub(super) last: u64,
}

impl Pace {
    /// A pace with this time between the beginnings of two readings.
    pub(super) fn new(every: Duration) -> Self {
        Self { every, began: None, rested: Instant::now(), last: 0 }
    }

    /// When the next reading is due, if the last watch has this number; `None` if there is
    /// nothing to read.
    pub(super) fn due(&self, last: u64) -> Option<Instant> {
        let every = if last > self.last { NEWCOMERS_EVERY } else { self.every };
        let due = self.began.map_or(self.rested, |began| self.rested.max(began + every));
        (last > 0).then_some(due)
    }

    /// Notes that a reading begins, for watches up to this number.
    pub(super) fn begin(&mut self, last: u64) {
        self.began = Some(Instant::now());
        self.last = last;
    }

    /// Notes that the reading is over.
    pub(super) fn end(&mut self) {
        let now = Instant::now();
        self.rested = self.began.map_or(now, |began| now + (now - began) * REST_FACTOR);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const EVERY: Duration = Duration::from_secs(2);

    /// A pace after a reading for watch 1 that took so long.
    async fn after(reading: Duration) -> Pace {
        let mut pace = Pace::new(EVERY);
        pace.begin(1);
        advance(reading).await;
        pace.end();
        pace
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_watches_is_not_read() {
        assert_eq!(Pace::new(EVERY).due(0), None);
        assert_eq!(after(Duration::ZERO).await.due(0), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_reading_is_due_at_once_and_the_next_after_the_time_between_them() {
        assert_eq!(Pace::new(EVERY).due(1), Some(Instant::now()));
        let now = Instant::now();
        assert_eq!(after(EVERY / 10).await.due(1), Some(now + EVERY));
    }

    #[tokio::test(start_paused = true)]
    async fn a_reading_for_a_newcomer_is_due_soon() {
        let now = Instant::now();
        assert_eq!(after(Duration::ZERO).await.due(2), Some(now + NEWCOMERS_EVERY));
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_long_reading_comes_a_rest_that_is_longer() {
        let now = Instant::now();
        let pace = after(EVERY).await;
        assert_eq!(pace.due(1), Some(now + EVERY * (1 + REST_FACTOR)));
        assert_eq!(pace.due(2), Some(now + EVERY * (1 + REST_FACTOR)));
    }
}

//! How often a watch reads.

use std::time::Duration;

use tokio::time::Instant;

/// The shortest time between two readings, if a watch has begun since the first.
const NEWCOMERS_EVERY: Duration = Duration::from_millis(100);

/// The pause after a reading, for each of its steps. A step takes about 1 ms of the server's time,
/// so locks have at least four fifths of it, whatever the network's latency.
const STEP_REST: Duration = Duration::from_millis(5);

/// When to read again.
#[derive(Debug)]
pub(super) struct Pace {
    every: Duration,
    /// When the last reading began.
    began: Option<Instant>,
    /// How many steps the reading under way has made.
    steps: u32,
    /// The end of the rest after the last reading.
    rested: Instant,
    /// The number of the last watch that the last reading was for.
    pub(super) last: u64,
}

impl Pace {
    /// A pace with this time between the beginnings of two readings.
    pub(super) fn new(every: Duration) -> Self {
        Self { every, began: None, steps: 0, rested: Instant::now(), last: 0 }
    }

    /// When the next reading is due, if the last watch has this number; `None` if there is
    /// nothing to read.
    pub(super) fn due(&self, last: u64) -> Option<Instant> {
        let every = if last > self.last { NEWCOMERS_EVERY } else { self.every };
        let due = self.began.map_or(self.rested, |began| self.rested.max(began + every));
        (last > 0).then_some(due)
    }

    /// Begins a reading for watches up to this number.
    pub(super) fn begin(&mut self, last: u64) {
        self.began = Some(Instant::now());
        self.last = last;
    }

    /// Counts a step of the reading.
    pub(super) fn step(&mut self) {
        self.steps = self.steps.saturating_add(1);
    }

    /// Ends the reading.
    pub(super) fn end(&mut self) {
        self.rested = Instant::now() + STEP_REST * std::mem::take(&mut self.steps);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const EVERY: Duration = Duration::from_secs(2);

    /// A pace after a reading for watch 1 with these steps and this duration.
    async fn after(steps: u32, reading: Duration) -> Pace {
        let mut pace = Pace::new(EVERY);
        pace.begin(1);
        (0..steps).for_each(|_| pace.step());
        advance(reading).await;
        pace.end();
        pace
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_watches_is_not_read() {
        assert_eq!(Pace::new(EVERY).due(0), None);
        assert_eq!(after(1, Duration::ZERO).await.due(0), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_reading_is_due_at_once_and_the_next_after_the_time_between_them() {
        assert_eq!(Pace::new(EVERY).due(1), Some(Instant::now()));
        let now = Instant::now();
        assert_eq!(after(10, EVERY / 2).await.due(1), Some(now + EVERY));
    }

    #[tokio::test(start_paused = true)]
    async fn a_reading_for_a_newcomer_is_due_soon() {
        let now = Instant::now();
        assert_eq!(after(10, Duration::ZERO).await.due(2), Some(now + NEWCOMERS_EVERY));
    }

    #[tokio::test(start_paused = true)]
    async fn a_rest_is_as_long_as_the_reading_had_steps() {
        let now = Instant::now();
        let pace = after(1000, Duration::from_secs(1)).await;
        assert_eq!(pace.due(1), Some(now + Duration::from_secs(6)));
        assert_eq!(pace.due(2), Some(now + Duration::from_secs(6)));
    }

    /// The pause was once a multiple of the reading, so watches across a slow network reported
    /// changes half a minute late.
    #[tokio::test(start_paused = true)]
    async fn a_reading_across_a_slow_network_is_followed_by_no_longer_rest() {
        let now = Instant::now();
        let slow = Duration::from_secs(8);
        let pace = after(100, slow).await;
        assert_eq!(pace.due(1), Some(now + slow + Duration::from_millis(500)));
    }
}

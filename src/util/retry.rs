//! How long to wait before the next try.

use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use tokio::time::{Instant, sleep, sleep_until};

/// The delays between tries. Each is twice the one before, up to a maximum, plus a
/// random part of itself, so that callers which failed together do not retry
/// together. The sequence is endless.
#[derive(Debug)]
pub struct Backoff {
    delays: ExponentialBackoff,
    delay_max: Duration,
}

impl Backoff {
    /// Delays from `delay_min` to `delay_max`.
    pub fn new(delay_min: Duration, delay_max: Duration) -> Self {
        let delays = ExponentialBuilder::new()
            .with_min_delay(delay_min)
            .with_max_delay(delay_max)
            .without_max_times()
            .with_jitter()
            .build();
        Self { delays, delay_max }
    }

    /// The next delay.
    pub fn next_delay(&mut self) -> Duration {
        self.delays.next().unwrap_or(self.delay_max)
    }

    /// Waits for the next delay.
    pub async fn pause(&mut self) {
        sleep(self.next_delay()).await;
    }
}

/// Waits for `delay`, unless that would end at `deadline` or later. Returns whether it
/// waited, so whether there is time for another try.
pub async fn pause_before(deadline: Instant, delay: Duration) -> bool {
    let next_try = Instant::now() + delay;
    if next_try >= deadline {
        return false;
    }
    sleep_until(next_try).await;
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIN: Duration = Duration::from_millis(20);
    const MAX: Duration = Duration::from_secs(1);

    #[test]
    fn delays_double_up_to_the_maximum_and_never_end() {
        let mut backoff = Backoff::new(MIN, MAX);
        let first = backoff.next_delay();
        assert!(first >= MIN && first <= MIN * 2, "{first:?}");
        for _ in 0..100 {
            assert!(backoff.next_delay() <= MAX * 2);
        }
        assert!(backoff.next_delay() >= MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn a_try_that_would_come_after_the_deadline_is_not_waited_for() {
        let (begun, deadline) = (Instant::now(), Instant::now() + Duration::from_secs(10));
        let mut backoff = Backoff::new(MIN, MAX);
        while pause_before(deadline, backoff.next_delay()).await {}
        assert!(Instant::now() < deadline && begun.elapsed() > Duration::from_secs(8));
    }
}

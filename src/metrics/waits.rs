//! How long the oldest of many waits lasts, without a lock.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use tokio::time::Instant;

/// How many seconds have a cell of their own. Waits that began this long apart share one.
const CELLS: usize = 1024;

/// The waits under way, by the second in which they began.
///
/// Each cell has a count and the second of its first wait: of waits in one cell, the oldest
/// counts until all of them have ended. So a wait may look older than it is if another, which
/// began a multiple of 1,024 s before it, has ended.
pub(crate) struct Waits {
    start: Instant,
    /// The second in the upper half, the count in the lower.
    cells: Box<[AtomicU64]>,
}

impl Waits {
    pub(crate) fn new() -> Self {
        let cells = (0..CELLS).map(|_| AtomicU64::new(0)).collect();
        Self { start: Instant::now(), cells }
    }

    pub(crate) fn begin(&self, at: Instant) {
        let second = self.second(at);
        self.change(
            second,
            |cell| if count(cell) == 0 { (second << 32) | 1 } else { cell + 1 },
        );
    }

    /// A wait that began then has ended.
    pub(crate) fn end(&self, began: Instant) {
        self.change(self.second(began), |cell| cell - u64::from(count(cell) > 0));
    }

    /// For how long the oldest wait has lasted, to the second; zero if there is none.
    pub(crate) fn oldest(&self, now: Instant) -> Duration {
        let cells = self.cells.iter().map(|cell| cell.load(Ordering::Relaxed));
        let first = cells.filter(|cell| count(*cell) > 0).map(|cell| cell >> 32).min();
        let began = first.map(|second| self.start + Duration::from_secs(second));
        began.map_or(Duration::ZERO, |began| now.saturating_duration_since(began))
    }

    fn second(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.start).as_secs() & u64::from(u32::MAX)
    }

    fn change(&self, second: u64, change: impl Fn(u64) -> u64) {
        // Less than CELLS, so it fits into any usize.
        let cell = &self.cells[(second % CELLS as u64) as usize];
        let _ = cell
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |before| Some(change(before)));
    }
}

fn count(cell: u64) -> u32 {
    // The lower half.
    (cell & u64::from(u32::MAX)) as u32
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn the_oldest_wait_that_has_not_ended_counts() {
        let waits = Waits::new();
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
        let waits = Waits::new();
        let first = Instant::now();
        waits.begin(first);
        for _ in 0..3600 {
            advance(SECOND).await;
            waits.begin(Instant::now());
            waits.end(Instant::now());
        }
        assert_eq!(waits.oldest(Instant::now()), 3600 * SECOND);
    }

    /// A request may have arrived before its store was opened.
    #[tokio::test(start_paused = true)]
    async fn a_wait_from_before_the_start_counts_from_the_start() {
        let early = Instant::now();
        advance(SECOND).await;
        let waits = Waits::new();
        waits.begin(early);
        advance(SECOND).await;
        assert_eq!(waits.oldest(Instant::now()), SECOND);
        waits.end(early);
        assert_eq!(waits.oldest(Instant::now()), Duration::ZERO);
    }
}

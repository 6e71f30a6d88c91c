//! Elapsed time, which passes while the machine is suspended, too.
//!
//! tokio's clock stands still during a suspension, and grants expire meanwhile. So whatever
//! decides whether a grant is still good uses the [`Instant`] of this module: the ends of
//! TTLs, safe deadlines, and what they count from. The deadlines of calls use tokio's.

use std::{
    ops::{Add, AddAssign, Sub},
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};
use tokio::time;

/// CLOCK_MONOTONIC counts suspensions elsewhere.
#[cfg(not(target_os = "linux"))]
const COUNTS_SUSPENSIONS: ClockId = ClockId::Monotonic;
#[cfg(target_os = "linux")]
const COUNTS_SUSPENSIONS: ClockId = ClockId::Boottime;
/// A shorter suspension is not noticed. Drift allowances cover it.
const SUSPENSION_MIN_US: u64 = 10_000;
/// How often [`sleep_until`] looks at the clock, because timers do not fire earlier after a
/// suspension.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// A moment of a monotonic clock that counts suspensions of the machine. Tests can pause it
/// as they pause tokio's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(time::Instant);

impl Instant {
    /// The present moment.
    #[must_use]
    pub fn now() -> Self {
        // In this order: a suspension in between must not make the result too early.
        let running = time::Instant::now();
        Self(running + suspended())
    }

    /// The time since then.
    #[must_use]
    pub fn elapsed(self) -> Duration {
        Self::now().saturating_duration_since(self)
    }

    /// The same moment on tokio's clock, for timers and deadlines of calls. It comes too late
    /// by what the machine is suspended until then.
    #[must_use]
    pub fn running(self) -> time::Instant {
        let (running, now) = (time::Instant::now(), Self::now());
        match now.saturating_duration_since(self) {
            Duration::ZERO => running + self.saturating_duration_since(now),
            past => running.checked_sub(past).unwrap_or(running),
        }
    }

    /// The moment after `duration`, unless the clock cannot count so far.
    #[must_use]
    pub fn checked_add(self, duration: Duration) -> Option<Self> {
        self.0.checked_add(duration).map(Self)
    }

    /// The time since `earlier`; zero if that is later.
    #[must_use]
    pub fn saturating_duration_since(self, earlier: Self) -> Duration {
        self.0.saturating_duration_since(earlier.0)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0 + duration)
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;

    fn sub(self, duration: Duration) -> Self {
        Self(self.0 - duration)
    }
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.saturating_duration_since(earlier)
    }
}

/// Waits until `deadline`. After a suspension it ends at most a second late.
pub async fn sleep_until(deadline: Instant) {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        time::sleep(left.min(LOOK_INTERVAL)).await;
    }
}

/// For how long the machine has been suspended in the life of this process, as far as
/// noticed. It never shrinks.
#[allow(clippy::disallowed_types, reason = "tokio's clock can be paused, and this one cannot")]
fn suspended() -> Duration {
    use std::time::Instant;

    /// A moment on the clock that tokio uses, and on the one that counts suspensions.
    static START: OnceLock<(Instant, Duration)> = OnceLock::new();
    /// In microseconds.
    static NOTICED: AtomicU64 = AtomicU64::new(0);

    let (start, start_since_boot) = START.get_or_init(|| {
        let looks = (0..10).map(|_| (Instant::now(), since_boot()));
        // The two clocks are not read at once; in this look they nearly were.
        let nearest = looks.min_by_key(|(start, _)| start.elapsed());
        nearest.unwrap_or_else(|| (Instant::now(), since_boot()))
    });
    let all = since_boot().saturating_sub(*start_since_boot);
    let suspended = all.saturating_sub(start.elapsed());
    let suspended_us = u64::try_from(suspended.as_micros()).unwrap_or(u64::MAX);
    let mut noticed_us = NOTICED.load(Ordering::Relaxed);
    if suspended_us >= noticed_us.saturating_add(SUSPENSION_MIN_US) {
        noticed_us = NOTICED.fetch_max(suspended_us, Ordering::Relaxed).max(suspended_us);
    }
    let noticed = Duration::from_micros(noticed_us);
    #[cfg(any(test, feature = "test-util"))]
    let noticed = noticed + SUSPENDED.get();
    noticed
}

/// The time since the machine was started, suspensions included.
fn since_boot() -> Duration {
    let now = clock_gettime(COUNTS_SUSPENSIONS);
    let nanos = u32::try_from(now.tv_nsec).unwrap_or(0);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), nanos)
}

#[cfg(any(test, feature = "test-util"))]
thread_local! {
    static SUSPENDED: std::cell::Cell<Duration> = const { std::cell::Cell::new(Duration::ZERO) };
}

/// Lets time pass as during a suspension, for this thread: only [`Instant`] counts it.
#[cfg(any(test, feature = "test-util"))]
pub fn suspend(duration: Duration) {
    SUSPENDED.set(SUSPENDED.get() + duration);
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_instant_counts_a_suspension_and_tokios_time() {
        let start = Instant::now();
        advance(Duration::from_secs(2)).await;
        suspend(Duration::from_secs(3));
        assert_eq!(start.elapsed(), Duration::from_secs(5));
    }

    #[tokio::test(start_paused = true)]
    async fn a_sleep_notices_a_suspension_within_a_second() {
        let (start, running) = (Instant::now(), time::Instant::now());
        let sleeping = sleep_until(start + Duration::from_secs(60));
        let suspending = async {
            time::sleep(Duration::from_millis(1_500)).await;
            suspend(Duration::from_secs(100));
        };
        tokio::join!(sleeping, suspending);
        assert_eq!(running.elapsed(), Duration::from_secs(2));
    }
}

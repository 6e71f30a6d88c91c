//! Elapsed time, which passes while the machine is suspended, too.
//!
//! tokio's clock stands still during a suspension, and grants expire meanwhile. So whatever
//! decides whether a grant is still good uses the [`Instant`] of this module: the ends of
//! TTLs, safe deadlines, and what they count from. The deadlines of calls use tokio's.
//!
//! A program calls [`count_suspensions`] first. Tests do not, so that an [`Instant`] follows
//! tokio's clock, which they can pause.

use std::{
    ops::{Add, AddAssign, Sub},
    sync::OnceLock,
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};
use tokio::time;

/// CLOCK_MONOTONIC counts suspensions elsewhere.
#[cfg(not(target_os = "linux"))]
const COUNTS_SUSPENSIONS: ClockId = ClockId::Monotonic;
#[cfg(target_os = "linux")]
const COUNTS_SUSPENSIONS: ClockId = ClockId::Boottime;
/// How often [`sleep_until`] looks at the clock, because timers do not fire earlier after a
/// suspension.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// A moment of a monotonic clock that counts suspensions of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(time::Instant);

impl Instant {
    /// The present moment.
    #[must_use]
    pub fn now() -> Self {
        let now = match START.get() {
            Some((start, start_since_boot)) => {
                *start + since_boot().saturating_sub(*start_since_boot)
            }
            None => time::Instant::now(),
        };
        #[cfg(any(test, feature = "test-util"))]
        let now = now + SUSPENDED.get();
        Self(now)
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

/// A moment on tokio's clock, and on the one that counts suspensions.
static START: OnceLock<(time::Instant, Duration)> = OnceLock::new();

/// Lets [`Instant`] count suspensions from now on, whether tokio's clock is paused or not.
pub fn count_suspensions() {
    START.get_or_init(|| (time::Instant::now(), since_boot()));
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

//! The clock of deadlines: CLOCK_BOOTTIME, which counts while the machine is suspended, and which
//! all processes of the machine share.

use std::{
    ops::{Add, Sub},
    time::Duration,
};

use rustix::time::{ClockId, Timespec, clock_gettime};

/// A moment, in nanoseconds since the machine was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct BootTime(pub u64);

impl BootTime {
    /// The present moment.
    #[must_use]
    pub fn now() -> Self {
        let now = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        Self(seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0))
    }

    /// The time since `earlier`; zero if that is later.
    #[must_use]
    pub fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The same moment for a timer.
    pub(crate) fn timespec(self) -> Timespec {
        Timespec {
            tv_sec: i64::try_from(self.0 / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(self.0 % 1_000_000_000).unwrap_or(0),
        }
    }
}

impl Add<Duration> for BootTime {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }
}

impl Sub<Duration> for BootTime {
    type Output = Self;

    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(duration)))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

//! The clock by which locks end.

use std::time::Duration;

#[cfg(test)]
use tests::slept;
use tokio::time::{self, Instant};

/// Now. Unlike `Instant::now`, this counts the time in which a Linux machine was suspended.
pub(crate) fn now() -> Instant {
    Instant::now() + slept()
}

/// Waits until `now` has reached `time`, unless the machine is suspended meanwhile.
pub(crate) async fn sleep_until(time: Instant) {
    time::sleep_until(time.checked_sub(slept()).unwrap_or_else(Instant::now)).await;
}

/// For how long the machine was suspended since this was called first.
#[cfg(all(target_os = "linux", not(test)))]
fn slept() -> Duration {
    system::slept()
}

#[cfg(not(any(target_os = "linux", test)))]
fn slept() -> Duration {
    Duration::ZERO
}

#[cfg(target_os = "linux")]
mod system {
    use std::{sync::OnceLock, time::Duration};

    use rustix::time::{ClockId, clock_gettime};

    pub(super) fn slept() -> Duration {
        static BEFORE: OnceLock<Duration> = OnceLock::new();
        let suspended = suspended();
        suspended.saturating_sub(*BEFORE.get_or_init(|| suspended))
    }

    /// For how long the machine was suspended since its start.
    pub(super) fn suspended() -> Duration {
        // In this order a pause between the two makes `now` earlier, and never later.
        let boot = clock_gettime(ClockId::Boottime);
        Duration::try_from(boot - clock_gettime(ClockId::Monotonic)).unwrap_or_default()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        /// For how long the test lets the machine be suspended.
        pub(crate) static SLEPT: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    }

    pub(super) fn slept() -> Duration {
        SLEPT.get()
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_system_reports_for_how_long_the_machine_was_suspended() {
        let uptime = || {
            let text = std::fs::read_to_string("/proc/uptime").unwrap();
            Duration::from_secs_f64(text.split(' ').next().unwrap().parse().unwrap())
        };
        let awake =
            Duration::try_from(rustix::time::clock_gettime(rustix::time::ClockId::Monotonic));
        let expected = uptime().saturating_sub(awake.unwrap());
        // The uptime may be that of a container, which is shorter.
        assert!(system::suspended() + Duration::from_secs(1) > expected);
        assert!(system::slept() < Duration::from_secs(1), "nothing since the first call");
    }
}

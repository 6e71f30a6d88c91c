//! How long a grant lasts, and until when its holder may rely on it.

use std::time::Duration;

use super::{Instant, Violation};

/// How long a grant lasts without renewal: whole milliseconds, at least 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ttl(Duration);

impl Ttl {
    /// The shortest TTL. A shorter wish is raised to it.
    pub const MIN: Self = Self(Duration::from_millis(100));

    /// Takes a wish: rounded up to whole milliseconds (never down, trap 30),
    /// raised to [`Ttl::MIN`], refused above `max`. The violation names `ttl`.
    pub fn new(wish: Duration, max: Duration) -> Result<Self, Violation> {
        if wish > max {
            return Err(Violation::new(
                "ttl",
                format!("is {wish:?}; at most {max:?} is allowed (the store's maxTTL)"),
            ));
        }
        Ok(Self(round_up_to_ms(wish)).max(Self::MIN))
    }

    /// The TTL as a duration of whole milliseconds.
    #[must_use]
    pub fn duration(self) -> Duration {
        self.0
    }

    /// The TTL in milliseconds.
    #[must_use]
    pub fn as_ms(self) -> u64 {
        u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX)
    }

    /// The TTL in seconds, rounded up: for a backend that counts in them.
    #[must_use]
    pub fn as_secs_ceil(self) -> u64 {
        self.0.as_secs() + u64::from(self.0.subsec_nanos() > 0)
    }
}

/// By how much earlier than its TTL a holder must give a grant up: a twentieth of the TTL
/// for clock drift, and 20 ms for the notification.
#[must_use]
pub fn drift_allowance(ttl: Duration) -> Duration {
    ttl / 20 + Duration::from_millis(20)
}

/// The moment until which the holder may rely on a grant whose backend operation was sent
/// at `since` (trap 15: it never counts from the reply).
#[must_use]
pub fn safe_deadline(since: Instant, ttl: Duration) -> Instant {
    since + ttl.saturating_sub(drift_allowance(ttl))
}

fn round_up_to_ms(wish: Duration) -> Duration {
    let part_ns = wish.subsec_nanos() % 1_000_000;
    if part_ns == 0 {
        wish
    } else {
        wish + Duration::from_nanos(u64::from(1_000_000 - part_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    /// Trap: domain 30
    #[test]
    fn a_ttl_is_rounded_up_to_whole_milliseconds() {
        let ttl = Ttl::new(Duration::from_nanos(1_500_000_001), DAY).unwrap();
        assert_eq!(ttl.as_ms(), 1501);
        assert_eq!(ttl.as_secs_ceil(), 2);
    }

    #[test]
    fn a_ttl_under_100_ms_is_raised_to_it() {
        assert_eq!(Ttl::new(Duration::from_nanos(1), DAY).unwrap(), Ttl::MIN);
    }

    #[test]
    fn a_ttl_above_the_maximum_is_refused() {
        assert!(Ttl::new(DAY, DAY).is_ok());
        assert_eq!(Ttl::new(DAY + Duration::from_nanos(1), DAY).unwrap_err().field, "ttl");
    }

    /// Trap: domain 15
    #[tokio::test(start_paused = true)]
    async fn the_safe_deadline_lies_a_drift_allowance_before_the_ttl_ends() {
        let since = Instant::now();
        let ttl = Duration::from_secs(10);
        assert_eq!(safe_deadline(since, ttl) - since, Duration::from_millis(9480));
    }
}

//! The wall clock, injected.

use std::{
    fmt,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

/// The wall clock, which is read only for the start of fencing tokens, and for times that are
/// shown.
///
/// Expiry never depends on it (trap 19): that uses [`Instant`](super::Instant), which is
/// monotonic, and which tests can pause.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> u64 + Send + Sync>);

impl Clock {
    /// The system's clock.
    #[must_use]
    #[allow(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
    pub fn system() -> Self {
        Self::from_fn(|| {
            let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX)
        })
    }

    /// A clock that calls `unix_us`, in microseconds since the Unix epoch.
    pub fn from_fn(unix_us: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(unix_us))
    }

    /// Microseconds since the Unix epoch. May jump either way.
    #[must_use]
    pub fn unix_us(&self) -> u64 {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

//! An estimate of the server's clock.

use leasehold_lock::Instant;

/// A reading of the server's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerTime {
    unix_us: u64,
    /// The latest moment at which it can have been read.
    read: Instant,
}

impl ServerTime {
    /// Wraps a reading that has just arrived.
    pub(super) fn new(unix_us: u64) -> Self {
        Self { unix_us, read: Instant::now() }
    }

    /// A time that the server's clock has certainly reached at `at`, if it runs as fast as
    /// ours. It is never later than the clock, so no later grant is mistaken for an earlier
    /// one.
    pub(super) fn reached(&self, at: Instant) -> u64 {
        let since_us = at.saturating_duration_since(self.read).as_micros();
        self.unix_us.saturating_add(u64::try_from(since_us).unwrap_or(u64::MAX))
    }
}

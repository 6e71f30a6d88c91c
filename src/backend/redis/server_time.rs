//! What time it is at the server, as far as one can know here.

use tokio::time::Instant;

/// A reading of the server's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerTime {
    unix_us: u64,
    /// When it was read at the latest.
    read: Instant,
}

impl ServerTime {
    /// A reading that has just come.
    pub(super) fn new(unix_us: u64) -> Self {
        Self { unix_us, read: Instant::now() }
    }

    /// A time that the server's clock has reached at `at`, if it runs as ours:
    /// no later than the truth, so that no later grant is taken for an earlier.
    pub(super) fn reached(&self, at: Instant) -> u64 {
        let since_us = at.saturating_duration_since(self.read).as_micros();
        self.unix_us.saturating_add(u64::try_from(since_us).unwrap_or(u64::MAX))
    }
}

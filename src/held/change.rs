//! Changes by a renewal of the app, besides the TTL.

use std::time::Duration;

/// The change if the app's renewal succeeds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Change {
    /// Nothing but the TTL.
    #[default]
    Nothing,
    /// The lock is released this long after the renewal was sent, instead of an earlier
    /// limit.
    MaxHold(Duration),
    /// The engine stops renewing the lock, and only the TTL limits it. Its stream ends
    /// without releasing it.
    Detach,
}

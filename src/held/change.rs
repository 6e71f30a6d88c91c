//! What a renewal by the app may change besides the TTL.

use std::time::Duration;

/// What changes if the app's renewal succeeds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Change {
    /// Nothing but the TTL.
    #[default]
    Nothing,
    /// The lock is released this long after the renewal was sent, in place of any limit
    /// before.
    MaxHold(Duration),
    /// The engine renews the lock no more, and nothing but the TTL limits it. Its stream
    /// ends without releasing it.
    Detach,
}

//! Why a lock was lost.

use std::fmt;

/// Why a lock was lost.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// Nobody renewed it in time.
    Expired,
    /// Somebody else ended it.
    Forced,
    /// The sidecar could not reach the store.
    Unreachable,
    /// It was held for as long as [`max_hold`](crate::LockBuilder::max_hold) allows.
    MaxHold,
    /// The app was unhealthy, so the sidecar did not renew it.
    Unhealthy,
    /// The sidecar is stopping and has released it.
    ShuttingDown,
    /// It was unlocked or taken over by another call, or the sidecar does not hold it any more.
    Ended,
    /// The stream broke: the sidecar died, or the connection was cut.
    Disconnected,
    /// Nobody confirmed it until the safe deadline less
    /// [`stop_before`](crate::LockBuilder::stop_before).
    Unconfirmed,
    /// A cause that is new to this version of the crate, as the sidecar spells it.
    Other(Box<str>),
}

impl Cause {
    /// Its name in all clients, such as `max_hold`.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Expired => "expired",
            Self::Forced => "forced",
            Self::Unreachable => "unreachable",
            Self::MaxHold => "max_hold",
            Self::Unhealthy => "unhealthy",
            Self::ShuttingDown => "shutting_down",
            Self::Ended => "ended",
            Self::Disconnected => "disconnected",
            Self::Unconfirmed => "unconfirmed",
            Self::Other(name) => name,
        }
    }

    /// The cause that a sidecar names; without a name, the lock has ended.
    pub(crate) fn of_sidecar(name: &str) -> Self {
        match name {
            "" => Self::Ended,
            "expired" => Self::Expired,
            "forced" => Self::Forced,
            "unreachable" => Self::Unreachable,
            "max_hold" => Self::MaxHold,
            "unhealthy" => Self::Unhealthy,
            other => Self::Other(other.into()),
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

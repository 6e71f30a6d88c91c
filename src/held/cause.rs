//! How a held lock ended, and why it was lost.

use leasehold_lock::observe::End;

/// How a held lock ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldEnd {
    /// The holder unlocked it.
    Unlocked,
    /// It was lost.
    Lost(Cause),
    /// A repeated request took it over.
    Superseded,
    /// The holder left it to its TTL.
    Detached,
}

/// Why a lock was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It was not renewed: its app should have done so, or its unlock failed.
    Expired,
    /// Another caller ended it.
    Forced,
    /// The backend could not be reached to renew it.
    Unreachable,
    /// It was held for the longest allowed time.
    MaxHold,
    /// The app was unhealthy, so it was not renewed.
    Unhealthy,
}

impl Cause {
    /// Whether the store may still have the grant: nobody is known to have ended it, and
    /// another process may have renewed it.
    pub(super) fn may_still_be_held(self) -> bool {
        match self {
            Self::Expired | Self::Unreachable | Self::Unhealthy => true,
            Self::Forced | Self::MaxHold => false,
        }
    }

    /// Its name in the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        End::from(self).name()
    }
}

impl From<Cause> for End {
    fn from(cause: Cause) -> Self {
        match cause {
            Cause::Expired => Self::Expired,
            Cause::Forced => Self::Forced,
            Cause::Unreachable => Self::Unreachable,
            Cause::MaxHold => Self::MaxHold,
            Cause::Unhealthy => Self::Unhealthy,
        }
    }
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

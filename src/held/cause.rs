//! How a held lock ended, and why it was lost.

/// How a lock that was held ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
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
    /// Nobody renewed it: its app should have, or an unlock of it failed.
    Expired,
    /// Somebody else ended it.
    Forced,
    /// The backend could not be reached to renew it.
    Unreachable,
    /// It was held for as long as is allowed.
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
        match self {
            Self::Expired => "expired",
            Self::Forced => "forced",
            Self::Unreachable => "unreachable",
            Self::MaxHold => "max_hold",
            Self::Unhealthy => "unhealthy",
        }
    }
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

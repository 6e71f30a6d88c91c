//! Why a lock was lost.

/// Why a lock was lost, in the words of the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Nobody renewed it: the app was to, or an unlock of it failed.
    Expired,
    /// Somebody else ended it.
    Forced,
    /// The backend could not be reached to renew it.
    Unreachable,
    /// The app asked for it to be released after this long.
    MaxHold,
    /// The app was unhealthy, so it was not renewed.
    Unhealthy,
}

impl Cause {
    /// Whether the store may have the grant yet: nobody ended it as far as is
    /// known, and another process may have renewed it.
    pub(super) fn may_be_held_yet(self) -> bool {
        match self {
            Self::Expired | Self::Unreachable | Self::Unhealthy => true,
            Self::Forced | Self::MaxHold => false,
        }
    }

    /// The wire's word.
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

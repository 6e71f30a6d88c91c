//! The features that a store may declare.

use std::fmt;

/// A capability that a store names in its answer to `Features`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feature {
    /// Grants carry tokens that rise with every grant of the resource.
    Fencing,
    /// `Unlock` with `force` ends anybody's grant.
    ForceUnlock,
    /// Waiters are served first come, first served.
    Fair,
    /// A request with a repeated `request_id` finds its own grant again.
    Replay,
    /// Every operation takes effect at one moment between its call and its answer.
    Linearizable,
    /// A resource may have many shared grants instead of one exclusive grant.
    Shared,
    /// The service Inspection reports who holds what, and ends grants by their grant IDs.
    Inspection,
    /// Inspection reports changes.
    Watch,
}

impl Feature {
    /// Every feature, in the order of the documentation.
    pub const ALL: [Self; 8] = [
        Self::Fencing,
        Self::ForceUnlock,
        Self::Fair,
        Self::Replay,
        Self::Linearizable,
        Self::Shared,
        Self::Inspection,
        Self::Watch,
    ];

    /// The feature's name on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Fencing => "FENCING",
            Self::ForceUnlock => "FORCE_UNLOCK",
            Self::Fair => "FAIR",
            Self::Replay => "REPLAY",
            Self::Linearizable => "LINEARIZABLE",
            Self::Shared => "SHARED",
            Self::Inspection => "INSPECTION",
            Self::Watch => "WATCH",
        }
    }

    /// The feature with this name on the wire; `None` if the suite does not know it, since a
    /// store may declare features of its own.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|feature| feature.name() == name)
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

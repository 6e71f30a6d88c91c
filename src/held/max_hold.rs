//! How long a lock may be held.

use std::time::Duration;

use leasehold_lock::Instant;

/// How long a lock may be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaxHold {
    /// Without limit: something else ends it.
    Unlimited,
    /// A limit of this process, because nothing else would end the lock of an app that
    /// is gone.
    Default(Duration),
    /// The limit that the app asked for.
    Asked(Duration),
}

impl MaxHold {
    /// The limit that the app asked for; `None` is none.
    #[must_use]
    pub fn asked_for(max_hold: Option<Duration>) -> Self {
        max_hold.map_or(Self::Unlimited, Self::Asked)
    }
}

/// When a lock is released; see [`MaxHold`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReleaseAt {
    Never,
    Default(Instant),
    Asked(Instant),
}

impl ReleaseAt {
    pub(super) fn new(since: Instant, max_hold: MaxHold) -> Self {
        // A moment beyond the clock's range never comes.
        let at = |after| since.checked_add(after);
        match max_hold {
            MaxHold::Unlimited => Self::Never,
            MaxHold::Default(after) => at(after).map_or(Self::Never, Self::Default),
            MaxHold::Asked(after) => at(after).map_or(Self::Never, Self::Asked),
        }
    }

    pub(super) fn instant(self) -> Option<Instant> {
        match self {
            Self::Never => None,
            Self::Default(at) | Self::Asked(at) => Some(at),
        }
    }

    /// The limit of a lock that a replay found: it does not start again.
    pub(super) fn after_replay(self, replay: Self) -> Self {
        match (self, replay) {
            (Self::Asked(first), Self::Asked(again)) => Self::Asked(first.min(again)),
            (asked @ Self::Asked(_), _) | (_, asked @ Self::Asked(_)) => asked,
            (Self::Default(first), Self::Default(again)) => Self::Default(first.min(again)),
            // A stream, or an app that renews by itself, ends the lock now.
            (_, replay) => replay,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_replay_never_moves_a_limit_to_later() {
        use MaxHold::{Asked, Default, Unlimited};
        let ttl = Duration::from_secs(30);
        let since = Instant::now();
        let again = since + ttl;
        let hour = Duration::from_secs(3600);
        for (first, replay, released_at) in [
            (Default(hour), Default(hour), Some(since + hour)),
            (Asked(hour), Asked(hour), Some(since + hour)),
            (Asked(hour), Default(ttl), Some(since + hour)),
            (Asked(hour), Unlimited, Some(since + hour)),
            (Asked(hour), Asked(ttl), Some(again + ttl)),
            // There was no limit before, or something else ends it now.
            (Unlimited, Default(hour), Some(again + hour)),
            (Default(hour), Asked(ttl), Some(again + ttl)),
            (Default(hour), Unlimited, None),
        ] {
            let release_at = ReleaseAt::new(since, first);
            let release_at = release_at.after_replay(ReleaseAt::new(again, replay));
            assert_eq!(release_at.instant(), released_at, "{first:?} {replay:?}");
        }
    }
}

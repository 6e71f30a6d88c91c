//! The operations of Redis clients on locks, independent of the command or script.

use std::time::Duration;

use leasehold_lock::{LockId, ResourceId};

use super::reply::Reply;

/// A value under a key: the lock ID of its holder, and the resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Pair {
    pub(super) key: ResourceId,
    pub(super) value: LockId,
}

/// An operation on locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    /// Takes the lock if it is free.
    Acquire(Pair, Duration),
    /// Restarts the TTL of the holder's lock.
    Renew(Pair, Duration),
    /// Adds to what is left of the TTL of the holder's lock.
    Prolong(Pair, Duration),
    /// Renews the lock if the value holds it, else takes it if it is free.
    RenewOrAcquire(Pair, Duration),
    /// Ends the holder's lock.
    Release(Pair),
    /// How long the holder's lock still lasts.
    RemainingOf(Pair),
    /// Compares the key with a value that cannot be a holder's.
    Mismatch(ResourceId),
    /// Ends the locks of these keys, whoever holds them.
    Delete(Vec<ResourceId>),
    /// The value under the key.
    Get(ResourceId),
    /// How long the lock of the key still lasts.
    Remaining(ResourceId),
    /// How many of these keys are locked.
    Count(Vec<ResourceId>),
}

impl Verb {
    /// Whether both concern the same key, so that the later one must wait for the earlier.
    pub(super) fn shares_a_key_with(&self, other: &Self) -> bool {
        self.keys().iter().any(|key| other.keys().contains(key))
    }

    /// Whether it may keep or end a lock of its caller.
    pub(super) fn is_of_a_holder(&self) -> bool {
        matches!(
            self,
            Self::Renew(..) | Self::Prolong(..) | Self::RenewOrAcquire(..) | Self::Release(..)
        )
    }

    fn keys(&self) -> &[ResourceId] {
        match self {
            Self::Acquire(Pair { key, .. }, _)
            | Self::Renew(Pair { key, .. }, _)
            | Self::Prolong(Pair { key, .. }, _)
            | Self::RenewOrAcquire(Pair { key, .. }, _)
            | Self::Release(Pair { key, .. })
            | Self::RemainingOf(Pair { key, .. })
            | Self::Mismatch(key)
            | Self::Get(key)
            | Self::Remaining(key) => std::slice::from_ref(key),
            Self::Delete(keys) | Self::Count(keys) => keys,
        }
    }
}

/// How a [`Verb`] ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The verb was carried out.
    Done,
    /// Somebody else holds the lock.
    HeldByAnother,
    /// Nobody holds the lock.
    NotHeld,
    /// The value under the key.
    Value(String),
    /// How long a lock still lasts; `None` if it has no end.
    Remaining(Option<Duration>),
    /// A number of keys.
    Count(usize),
}

/// The replies to the outcomes of a verb, which differ between commands and scripts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Replies {
    pub(super) done: Reply,
    pub(super) held_by_another: Reply,
    pub(super) not_held: Reply,
}

impl Replies {
    /// Numbers.
    pub(super) const fn integers(done: i64, held_by_another: i64, not_held: i64) -> Self {
        Self {
            done: Reply::Integer(done),
            held_by_another: Reply::Integer(held_by_another),
            not_held: Reply::Integer(not_held),
        }
    }

    /// `done`, or no value.
    pub(super) const fn or_null(done: Reply) -> Self {
        Self { done, held_by_another: Reply::Null, not_held: Reply::Null }
    }

    /// The reply to an outcome.
    pub(super) fn to(self, outcome: Outcome) -> Reply {
        match outcome {
            Outcome::Done => self.done,
            Outcome::HeldByAnother => self.held_by_another,
            Outcome::NotHeld => self.not_held,
            Outcome::Value(value) => Reply::text(value),
            Outcome::Remaining(left) => Reply::Integer(left.map_or(-1, as_ms)),
            Outcome::Count(count) => Reply::Integer(i64::try_from(count).unwrap_or(i64::MAX)),
        }
    }
}

/// A verb, and the replies that its caller expects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) verb: Verb,
    pub(super) replies: Replies,
}

fn as_ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

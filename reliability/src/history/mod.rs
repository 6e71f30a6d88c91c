//! The calls of a run with their outcomes, as they are stored and checked.
//!
//! Every client process writes its own file, with a JSON line for each event:
//! the invocation before anything is sent, the completion once the answer is
//! there. A call without a completion (its process was killed) has an unknown
//! outcome from its invocation on.

mod files;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use files::{Log, read_folder};

/// The reason in [`Outcome::Refused`] of a call that was never sent, because
/// nobody listened.
pub const NOT_SENT: &str = "NOT_SENT";

/// The [`Invocation::via`] of a front: this plus its number.
pub const FRONT_VIA: u32 = 1_000;

/// The number of the process that waits for every resource once more after all
/// faults.
pub const LAST_WAITS: u32 = 0;

/// A line of a client's file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A call is about to be sent.
    Invoke(Invocation),
    /// Its outcome is known, or known to be unknown.
    Complete {
        /// The ID of the call.
        id: u64,
        /// When, on [`clock`](crate::clock).
        at_ns: u64,
        /// The outcome.
        outcome: Outcome,
    },
}

/// A call with its caller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invocation {
    /// Unique in its run.
    pub id: u64,
    /// When, on [`clock`](crate::clock).
    pub at_ns: u64,
    /// The number of the client process.
    pub process: u32,
    /// The client in it: it has one call in flight at a time.
    pub client: u32,
    /// The called leasehold process, or from [`FRONT_VIA`] on a front; none for a client
    /// that uses Redis directly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<u32>,
    /// The resource.
    pub resource: String,
    /// The call.
    pub call: Call,
}

/// A call for a resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Call {
    /// `TryLock`.
    Try(Acquisition),
    /// `Lock`, with the deadline of the call.
    Lock {
        /// The request.
        #[serde(flatten)]
        acquisition: Acquisition,
        /// From the call to its deadline.
        wait_ms: u64,
    },
    /// `RenewLock`.
    Renew {
        /// The lock ID of the grant.
        lock_id: String,
        /// The TTL asked for.
        ttl_ms: u64,
    },
    /// `Unlock` with a lock ID that some grant had or may have.
    Unlock {
        /// The lock ID of the grant.
        lock_id: String,
    },
    /// `Unlock` with a lock ID that no grant ever had.
    UnlockWrong {
        /// An invented lock ID.
        lock_id: String,
    },
    /// `Unlock` with force.
    Force,
    /// `EndLocks` of one grant of the resource, by its public ID.
    End {
        /// The public ID of the grant.
        grant_id: String,
    },
    /// `EndLocks` of all grants of the resource.
    EndAll,
    /// `SET NX` in Redis by a client that knows nothing of leasehold, as the
    /// built-in `lock.redis` locks. Its lock ID is the owner's name; its grant
    /// has no token. Unlocking it is recorded as [`Call::Unlock`].
    ForeignTry(Acquisition),
    /// A try through a front, by a client of Redis that sends it again if no reply comes. Its
    /// lock ID is the value; its grant has a token that no client learns. Renewals and
    /// unlocks through a front are recorded as [`Call::Renew`] and [`Call::Unlock`].
    FrontTry(Acquisition),
}

/// Whether a grant is exclusive or shared.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// No other grant at the same time.
    #[default]
    Exclusive,
    /// Other shared grants at the same time.
    Shared,
}

impl Mode {
    /// Whether grants of these modes exclude each other.
    #[must_use]
    pub fn excludes(self, other: Self) -> bool {
        self == Self::Exclusive || other == Self::Exclusive
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
    fn is_exclusive(&self) -> bool {
        *self == Self::Exclusive
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exclusive => "exclusive",
            Self::Shared => "shared",
        })
    }
}

/// The request of a `TryLock` or a `Lock`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acquisition {
    /// The TTL asked for.
    pub ttl_ms: u64,
    /// The mode.
    #[serde(default, skip_serializing_if = "Mode::is_exclusive")]
    pub mode: Mode,
    /// A lock ID that the caller chose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock_id: Option<String>,
    /// The request ID, which finds a live grant again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

/// The outcome of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Acquired.
    Granted(Granted),
    /// Renewed.
    Renewed {
        /// The TTL granted.
        ttl_ns: u64,
    },
    /// Unlocked.
    Unlocked,
    /// These grants were ended.
    Ended {
        /// Their public IDs.
        grant_ids: Vec<String>,
        /// Whether further ones may have been.
        more: bool,
    },
    /// `RESOURCE_LOCKED`.
    Locked,
    /// `LOCK_NOT_FOUND`.
    NotHeld {
        /// Whether somebody else holds the resource, if reported.
        held: Option<bool>,
    },
    /// `WAIT_DEADLINE`: nothing is held.
    WaitDeadline,
    /// `STORE_UNAVAILABLE`, `SHUTTING_DOWN`: it did not happen.
    Unavailable,
    /// Refused for another reason, by its name: it did not happen.
    Refused(String),
    /// It may have happened: `OUTCOME_UNKNOWN`, cancelled, or no answer.
    Unknown(String),
}

/// The answer with a grant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Granted {
    /// Its lock ID.
    pub lock_id: String,
    /// Its fencing token; 0 if a client of Redis took the lock, which gets none.
    pub token: i64,
    /// The TTL granted.
    pub ttl_ns: u64,
    /// From the request's arrival to the sending of the granting command.
    pub waited_ns: u64,
    /// Its public ID; empty if a client of Redis took the lock.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub grant_id: String,
}

/// A call with its outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The invocation.
    pub invocation: Invocation,
    /// When the outcome was known; `None` if its process died before.
    pub completion: Option<(u64, Outcome)>,
}

impl Call {
    /// The request, if it acquires.
    #[must_use]
    pub fn acquisition(&self) -> Option<&Acquisition> {
        match self {
            Self::Try(acquisition)
            | Self::Lock { acquisition, .. }
            | Self::ForeignTry(acquisition)
            | Self::FrontTry(acquisition) => Some(acquisition),
            _ => None,
        }
    }

    /// Its name, as text.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Try(_) => "try",
            Self::Lock { .. } => "lock",
            Self::Renew { .. } => "renew",
            Self::Unlock { .. } => "unlock",
            Self::UnlockWrong { .. } => "unlock with a wrong ID",
            Self::Force => "force",
            Self::End { .. } => "end of one grant",
            Self::EndAll => "end of all grants",
            Self::ForeignTry(_) => "foreign try",
            Self::FrontTry(_) => "try through a front",
        }
    }
}

impl Outcome {
    /// Whether it certainly did nothing and will do nothing.
    #[must_use]
    pub fn did_nothing(&self) -> bool {
        !matches!(
            self,
            Self::Granted(_)
                | Self::Renewed { .. }
                | Self::Unlocked
                | Self::Ended { .. }
                | Self::Unknown(_)
        )
    }
}

impl Operation {
    /// When it was invoked.
    #[must_use]
    pub fn invoked_ns(&self) -> u64 {
        self.invocation.at_ns
    }

    /// By when it had taken effect, if ever; `u64::MAX` if that is not known.
    #[must_use]
    pub fn completed_ns(&self) -> u64 {
        match &self.completion {
            Some((_, Outcome::Unknown(_))) | None => u64::MAX,
            Some((at_ns, _)) => *at_ns,
        }
    }

    /// Its outcome, if known.
    #[must_use]
    pub fn known(&self) -> Option<&Outcome> {
        match &self.completion {
            Some((_, Outcome::Unknown(_))) | None => None,
            Some((_, outcome)) => Some(outcome),
        }
    }

    /// Whether it certainly did nothing and will do nothing.
    #[must_use]
    pub fn did_nothing(&self) -> bool {
        self.known().is_some_and(Outcome::did_nothing)
    }

    /// Whether it was sent to a front, perhaps several times.
    #[must_use]
    pub fn is_through_front(&self) -> bool {
        self.invocation.via.is_some_and(|via| via >= FRONT_VIA)
    }

    /// Whether it left its process.
    #[must_use]
    pub fn was_sent(&self) -> bool {
        !matches!(self.known(), Some(Outcome::Refused(why)) if why == NOT_SENT)
    }

    /// Whether it ends grants whoever holds them.
    #[must_use]
    pub fn forces(&self) -> bool {
        matches!(self.invocation.call, Call::Force | Call::End { .. } | Call::EndAll)
    }

    /// The mode that it asks for; exclusive if it acquires nothing.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.invocation.call.acquisition().map_or_else(Mode::default, |asked| asked.mode)
    }

    /// The grant that it made or found.
    #[must_use]
    pub fn granted(&self) -> Option<&Granted> {
        match self.known() {
            Some(Outcome::Granted(granted)) => Some(granted),
            _ => None,
        }
    }
}

//! The port: the trait that backends implement.
//!
//! The numbers of traps are those of `docs/traps.md`.

use std::{any::Any, sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::time::Instant;

use super::{
    self as lock, AttemptId, FencingToken, GrantId, Holder, LockId, Mode, Release, RequestId,
    ResourceId, Ttl, Violation,
    inspect::{GrantView, Inspect},
};

/// What a backend can do beyond the core. The names are those of the protocol's
/// `Features`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// Every grant has a token that rises strictly per resource.
    Fencing,
    /// An unlock by force may end any holder's grant.
    ForceUnlock,
    /// Waiters are served first come, first served.
    Fair,
    /// A repeated `request_id` finds its own grant again.
    Replay,
    /// Every operation takes effect at one instant between call and answer, even if
    /// nodes fail.
    Linearizable,
    /// A resource may have many shared grants instead of one exclusive grant.
    Shared,
    /// It reports who holds what and who waits ([`Inspect`]), and ends a grant by
    /// its public ID.
    Inspection,
    /// It reports changes ([`Inspect::watch`]).
    Watch,
}

impl Feature {
    /// All of them.
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

    /// Its name in the protocol.
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
}

/// One attempt to acquire. Each has an `id` of its own: a repeated request is another
/// attempt with the same `request_id`.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// Identifies this attempt. The backend stores it with the grant, so that the
    /// clean-up can compare it.
    pub id: AttemptId,
    /// What to lock.
    pub resource: ResourceId,
    /// The grant's name: the caller's, or made for this attempt.
    pub lock_id: LockId,
    /// Whether the caller chose `lock_id`, so that a replay must match it.
    pub lock_id_given: bool,
    /// Finds a live grant of an earlier attempt.
    pub request_id: Option<RequestId>,
    /// Whether inspection returns the lock ID of the grant
    /// ([`Inspected::published`](super::inspect::Inspected::published)). The backend stores it
    /// with the grant, as far as it can.
    pub published: bool,
    /// Whether other grants may coexist with it.
    pub mode: Mode,
    /// A public label, shown to those refused.
    pub holder: Option<Holder>,
    /// The least TTL of the grant.
    pub ttl: Ttl,
}

impl Attempt {
    /// An attempt to get an exclusive lock, with a lock ID of leasehold's own.
    #[must_use]
    pub fn new(resource: ResourceId, ttl: Ttl) -> Self {
        Self {
            id: AttemptId::random(),
            resource,
            lock_id: LockId::random(),
            lock_id_given: false,
            request_id: None,
            published: false,
            mode: Mode::Exclusive,
            holder: None,
            ttl,
        }
    }
}

/// A grant as the backend made or found it. `Store` adds the receipt, which makes it a
/// [`Granted`](super::Granted).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The grant's public name, made from the ID of its attempt (`GrantId::from`): on a replay,
    /// that of the first attempt. `None` only from a backend without [`Feature::Inspection`].
    pub id: Option<GrantId>,
    /// The grant's name: on a replay, that of the first attempt.
    pub lock_id: LockId,
    /// Greater than that of every earlier grant of the resource, unless both are shared:
    /// then it is not smaller. `None` only from a backend without [`Feature::Fencing`].
    pub token: Option<FencingToken>,
    /// The TTL granted: never shorter than the attempt's.
    pub ttl: Duration,
    /// When the operation was sent from which the TTL counts.
    pub since: lock::Instant,
    /// Whether this attempt made the grant. One that merely found it (a
    /// replay) must never undo it.
    pub created: bool,
}

/// Asks to start the TTL of a grant again.
#[derive(Clone, Debug)]
pub struct Renewal {
    /// What is locked.
    pub resource: ResourceId,
    /// The grant.
    pub lock_id: LockId,
    /// The least TTL from now.
    pub ttl: Ttl,
}

/// A grant that was renewed.
///
/// The domain compares `id` with the acquisitions that are being undone. Without it, a renewal
/// waits for all of them that have the lock ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewed {
    /// Which grant it was; `None` if the backend does not know.
    pub id: Option<GrantId>,
    /// The TTL granted: never shorter than the renewal's.
    pub ttl: Duration,
    /// When the operation was sent from which the TTL counts.
    pub since: lock::Instant,
}

/// Why a backend refused or failed an operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BackendError {
    /// A try found the resource held, or others waiting for it.
    #[error("locked")]
    Locked {
        /// The grant in its way, or one of them, if the refusal has read it anyway. The suite
        /// requires the holder's label.
        by: Option<GrantView>,
    },
    /// The lock ID (or, for a force, anybody) holds nothing there.
    #[error("not held")]
    NotHeld {
        /// Whether somebody else holds the resource.
        held: bool,
    },
    /// The live grant with this `request_id` was requested differently.
    #[error("{field} differs from that of the live grant with this request_id")]
    ReplayMismatch {
        /// The request's field: `lock_id` or `mode`.
        field: &'static str,
    },
    /// A queue is full; says which: "the resource's limit is reached", or the store's.
    #[error("too many waiters: {0}")]
    TooManyWaiters(&'static str),
    /// A try for a shared grant found as many of them as a resource may have
    /// (`Settings::holders_per_resource_max`).
    #[error("too many holders")]
    TooManyHolders,
    /// This backend cannot accept the request (for example, a key is too long
    /// with its prefix); nothing has changed.
    #[error("{0}")]
    Invalid(Violation),
    /// This backend does not support the request; nothing has changed.
    #[error("{0}")]
    Unsupported(Arc<str>),
    /// The backend was not reached: nothing has changed, and nothing will.
    #[error("unavailable: {0}")]
    Unavailable(Arc<str>),
    /// It was sent, and it is unknown whether it was carried out.
    #[error("outcome unknown: {0}")]
    Unknown(Arc<str>),
}

impl BackendError {
    /// The refusal of a wait with the lock ID of a live shared grant of the resource.
    #[must_use]
    pub fn lock_id_in_use() -> Self {
        Self::Invalid(Violation::new(
            "lock_id",
            "is that of a live shared grant of this resource; leave it out, or use another",
        ))
    }

    /// The refusal of a position that is not of the list.
    #[must_use]
    pub fn bad_cursor() -> Self {
        Self::Invalid(Violation::new("page_token", "is not of this list"))
    }
}

/// A backend, which stores the locks.
///
/// Rules for every verb:
/// - `until` bounds it: by then it has answered, `Unavailable` if nothing was
///   sent, `Unknown` if something was and no reply came. It may retry until
///   then, but a retry of an acquisition must recognise its own attempt, and a
///   retry of a release must not report what the first try may have done as
///   [`BackendError::NotHeld`] (but as `Unknown`).
/// - Its future may be dropped at any await. What is then left behind in the
///   backend is at most what `unlock` of that attempt removes; what is left in
///   memory is nothing.
/// - It does not block its thread. What `spawn_blocking` began goes on when the future is
///   dropped, and must still precede the `unlock` of that attempt.
/// - The domain calls `unlock` for an attempt only when the attempt's future has ended or
///   was dropped. It repeats that call until it answers `Ok` or `NotHeld`. A caller's own
///   unlock is repeated only after `Unknown`, or if its future was dropped; and not at all
///   while its [`Target`](super::Target) is open.
/// - An `unlock` of an attempt takes effect after everything that was sent for
///   that attempt before (trap 7), also over a connection made anew.
/// - A failed `try_lock` writes nothing (traps 2 and 3).
///
/// What the domain has done before a verb is called: every field is checked, the TTL is
/// within `maxTTL`, a waiting request that is repeated while its first wait is open has
/// joined that wait, and a request with a feature that is not declared is refused. Without
/// [`Feature::Shared`] every attempt is exclusive.
///
/// What is the backend's:
/// - The order of waiters, since only it can order those of several processes.
/// - Both limits on waiters. `Settings::waiters_per_resource_max` (`maxWaiters`) counts
///   the waiters of all processes for a resource. `Settings::waiters_max` counts those of
///   this store in this process; [`WaiterBudget`](super::WaiterBudget) does that.
/// - Shared grants, if it declares [`Feature::Shared`]:
///   - A resource has one live exclusive grant, or any number of live shared grants, never
///     both. Each shared grant has its own lock ID, TTL and request ID; renewing, releasing
///     or losing one changes no other.
///   - One queue for both modes, first come, first served. An exclusive waiter is granted
///     when it is first and nothing is held. A shared waiter is granted when nothing is held
///     exclusively and no exclusive waiter is before it, so adjacent shared waiters are
///     granted together. While anybody waits, a try in either mode is refused.
///   - When an exclusive waiter leaves the queue, the shared waiters behind it are granted
///     although other shared grants live.
///   - A shared attempt that brings the lock ID of a live shared grant is refused like one
///     that finds the resource held; a wait is refused as [`BackendError::Invalid`].
///   - At `Settings::holders_per_resource_max` shared grants a try is
///     [`BackendError::TooManyHolders`], and a wait waits.
/// - Replays, if it declares [`Feature::Replay`]. An attempt whose `request_id` is that of
///   the live grant gets this grant: its lock ID and token, with `created` false, and its
///   TTL starts again with the attempt's `ttl`. From then on a release of either attempt
///   leaves the grant alone: the later one did not create it, and it was claimed from the
///   earlier one. If `lock_id_given` is set and the lock ID differs, or if the mode
///   differs, the attempt is refused as [`BackendError::ReplayMismatch`], and nothing
///   changes. Without the feature, `request_id` is always `None`.
/// - The backend keeps which attempt got a grant last, for
///   [`ReleaseOf::Claim`](super::ReleaseOf::Claim).
/// - Expiry: a grant ends by itself when its TTL is over, though its process has died. A
///   backend without a clock of its own counts a grant that it finds after a restart from
///   when it was found: it may end later, never earlier.
/// - A resource that is free, and that nobody waits for, leaves no record of its own
///   (traps 20 and 28).
/// - Several stores on the same data. A process may open several at once: instances with
///   equal properties, and the store that an Init replaced, until its calls have ended. The
///   promises hold across them, and across processes if a second one can open the data.
#[async_trait]
pub trait Backend: Any + Send + Sync {
    /// Its features beyond the core.
    fn features(&self) -> &[Feature];

    /// Why it lacks this feature, and which backends have it, if there is more to say than that
    /// it does.
    fn reason_without(&self, feature: Feature) -> Option<&'static str> {
        let _ = feature;
        None
    }

    /// Which of its servers has the resource now. Renewals and releases towards one that does not
    /// answer do not hold up those towards another. May be called outside a runtime.
    fn server_of(&self, resource: &ResourceId) -> u64 {
        let _ = resource;
        0
    }

    /// Acquires a resource that is free and that nobody waits for.
    async fn try_lock(&self, attempt: &Attempt, until: Instant) -> Result<Grant, BackendError>;

    /// Waits, in the order of arrival, until granted. Ends early only by being
    /// dropped, by a full queue, or when the backend has been out of reach for
    /// longer than the operation timeout.
    async fn lock(&self, attempt: &Attempt) -> Result<Grant, BackendError>;

    /// Starts the TTL of a live grant again, with another TTL if asked. Never
    /// creates one (trap 13).
    async fn renew(&self, renewal: &Renewal, until: Instant) -> Result<Renewed, BackendError>;

    /// Ends a grant and hands over to the first waiter.
    async fn unlock(&self, release: &Release, until: Instant) -> Result<(), BackendError>;

    /// Asks whether the backend answers.
    async fn ping(&self, until: Instant) -> Result<(), BackendError>;

    /// Inspection of its locks, if it declares [`Feature::Inspection`].
    fn inspect(&self) -> Option<&dyn Inspect> {
        None
    }

    /// Frees what the backend keeps for reuse, and ends its tasks. Grants stay
    /// with their holders.
    async fn close(&self);
}

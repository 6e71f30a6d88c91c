//! The requests of edges to a store, with checked names.

use std::time::Duration;

use tokio::time::Instant;

use super::{AttemptId, FencingToken, Holder, LockId, ReleaseOf, RequestId, ResourceId};

/// Whether other grants of the resource may exist at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// At most one live grant.
    #[default]
    Exclusive,
    /// Any number of live shared grants, from a store with
    /// [`Feature::Shared`](super::Feature::Shared).
    Shared,
}

impl Mode {
    /// Its name in JSON and in the metadata of errors.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Shared => "shared",
        }
    }
}

/// Asks for a grant.
#[derive(Clone, Debug)]
pub struct AcquireRequest {
    /// What to lock.
    pub resource: ResourceId,
    /// The TTL asked for; `None` means the store's default. The store checks it, because
    /// its limit is the store's.
    pub ttl: Option<Duration>,
    /// The ID of this try of the request, for a caller that must know it before the call; it
    /// must be unique. `None`: the store makes one.
    pub attempt: Option<AttemptId>,
    /// The caller's own name for the grant; `None`: the store makes one.
    pub lock_id: Option<LockId>,
    /// The caller's secret for retries.
    pub request_id: Option<RequestId>,
    /// Whether whoever may read the resource through a Redis front gets the lock ID, as the
    /// value of the key.
    pub published: bool,
    /// Whether other grants may coexist with it.
    pub mode: Mode,
    /// A public label of the caller.
    pub holder: Option<Holder>,
    /// When the request arrived: `waited` counts from here.
    pub arrived: Instant,
    /// When a wait must have been answered, so it ends a little earlier; `None`: never.
    pub deadline: Option<Instant>,
    /// When a wait ends so that its answer arrives before `deadline`, from a caller that knows
    /// how long an answer takes; `None`: the store decides.
    pub answer_by: Option<Instant>,
    /// When a wait ends. It may be answered later, by at most the operation timeout, once the
    /// backend has confirmed that it left the queue. `None`: `deadline` alone limits it.
    pub wait_end: Option<Instant>,
    /// Whether a stream holds the grant. Metrics count that apart.
    pub streamed: bool,
}

impl AcquireRequest {
    /// A request for `resource` that arrives now, with every other field absent.
    #[must_use]
    pub fn new(resource: ResourceId) -> Self {
        Self {
            resource,
            ttl: None,
            attempt: None,
            lock_id: None,
            request_id: None,
            published: false,
            mode: Mode::Exclusive,
            holder: None,
            arrived: Instant::now(),
            deadline: None,
            answer_by: None,
            wait_end: None,
            streamed: false,
        }
    }
}

/// Asks to start a grant's TTL again.
#[derive(Clone, Debug)]
pub struct RenewRequest {
    /// What is locked.
    pub resource: ResourceId,
    /// The grant.
    pub lock_id: LockId,
    /// The new TTL; `None` means the store's default. The store checks it.
    pub ttl: Option<Duration>,
}

/// Asks to end a grant.
#[derive(Clone, Debug)]
pub struct UnlockRequest {
    /// What is locked.
    pub resource: ResourceId,
    /// Whose grant to end; never `Attempt`, which is the store's own clean-up.
    pub of: ReleaseOf,
}

impl UnlockRequest {
    /// Ends the grant of `lock_id`.
    #[must_use]
    pub fn owner(resource: ResourceId, lock_id: LockId) -> Self {
        Self { resource, of: ReleaseOf::Owner(lock_id) }
    }

    /// Ends the grant of `lock_id` that has this token.
    #[must_use]
    pub fn grant(resource: ResourceId, lock_id: LockId, token: FencingToken) -> Self {
        Self { resource, of: ReleaseOf::Token(lock_id, token) }
    }

    /// Ends any holder's grant.
    #[must_use]
    pub fn force(resource: ResourceId) -> Self {
        Self { resource, of: ReleaseOf::Anyone }
    }
}

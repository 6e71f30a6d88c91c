//! What edges ask of a store, not yet checked.

use std::time::Duration;

use tokio::time::Instant;

/// Whether other grants of the resource may exist at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// At most one live grant.
    #[default]
    Exclusive,
    /// Any number of live shared grants: no store declares it yet.
    Shared,
}

/// Asks for a grant. Strings are the caller's, empty where absent.
#[derive(Clone, Debug)]
pub struct AcquireRequest {
    /// What to lock.
    pub resource_id: String,
    /// The wished TTL; `None` means the store's default.
    pub ttl: Option<Duration>,
    /// The caller's own name for the grant; empty: the store makes one.
    pub lock_id: String,
    /// The caller's secret for retries; empty: none.
    pub request_id: String,
    /// What the grant allows besides itself.
    pub mode: Mode,
    /// A public label of who asks.
    pub holder: String,
    /// When the request arrived: `waited` counts from here.
    pub arrived: Instant,
    /// When a wait must have been answered; `None` waits without end.
    pub deadline: Option<Instant>,
}

impl AcquireRequest {
    /// A request that arrives now and asks for `resource_id` with all else
    /// absent.
    #[must_use]
    pub fn new(resource_id: impl Into<String>) -> Self {
        Self {
            resource_id: resource_id.into(),
            ttl: None,
            lock_id: String::new(),
            request_id: String::new(),
            mode: Mode::Exclusive,
            holder: String::new(),
            arrived: Instant::now(),
            deadline: None,
        }
    }
}

/// Asks to start a grant's TTL again.
#[derive(Clone, Debug)]
pub struct RenewRequest {
    /// What is locked.
    pub resource_id: String,
    /// The grant.
    pub lock_id: String,
    /// The new TTL; `None` means the store's default.
    pub ttl: Option<Duration>,
}

/// Asks to end a grant.
#[derive(Clone, Debug)]
pub struct UnlockRequest {
    /// What is locked.
    pub resource_id: String,
    /// The grant; ignored with `force`.
    pub lock_id: String,
    /// End whoever's grant it is.
    pub force: bool,
}

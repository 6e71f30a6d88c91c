//! A grant for the edges.

use std::time::Duration;

use tokio::time::Instant;

use super::{self as lock, AttemptId, FencingToken, GrantId, LockId, Receipt};

/// A grant on its way to the caller.
#[derive(Clone, Debug)]
pub struct Granted {
    /// The grant's public name. `None` only from a backend without
    /// [`Feature::Inspection`](super::Feature::Inspection).
    pub id: Option<GrantId>,
    /// The attempt that made the grant, or found it as a replay.
    pub attempt: AttemptId,
    /// The only proof of ownership.
    pub lock_id: LockId,
    /// Greater than that of every earlier grant of the resource, unless both are shared:
    /// then it is not smaller. `None` only from a backend without
    /// [`Feature::Fencing`](super::Feature::Fencing).
    pub token: Option<FencingToken>,
    /// The TTL granted, never shorter than what was asked for.
    pub ttl: Duration,
    /// When the operation was sent from which the TTL counts.
    pub since: lock::Instant,
    /// From the request's arrival to `since`.
    pub waited: Duration,
    /// The edge accepts it once the transport has taken the answer.
    pub receipt: Receipt,
}

impl Granted {
    pub(super) fn waited_since(mut self, arrived: Instant) -> Self {
        self.waited = arrived.elapsed().saturating_sub(self.since.elapsed());
        self
    }
}

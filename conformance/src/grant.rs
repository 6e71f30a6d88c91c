//! Requests for grants, and their answers.

use std::time::Duration;

use leasehold_proto::components::{LockMode, LockRequest};
use tokio::time::Instant;

use crate::words::{Accepted, Readable};

/// A request for a grant.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) request: LockRequest,
    /// How long a Lock may take; `None` for no deadline. A TryLock ignores it.
    pub(crate) within: Option<Duration>,
}

impl Ask {
    pub(crate) fn of(resource: &str) -> Self {
        let request = LockRequest { resource_id: resource.to_owned(), ..Default::default() };
        Self { request, within: None }.ttl(Duration::from_secs(60))
    }

    pub(crate) fn ttl(mut self, ttl: Duration) -> Self {
        self.request.ttl = Some(to_wire(ttl));
        self
    }

    pub(crate) fn lock_id(mut self, lock_id: &str) -> Self {
        lock_id.clone_into(&mut self.request.lock_id);
        self
    }

    pub(crate) fn request_id(mut self, request_id: &str) -> Self {
        request_id.clone_into(&mut self.request.request_id);
        self
    }

    pub(crate) fn holder(mut self, holder: &str) -> Self {
        holder.clone_into(&mut self.request.holder);
        self
    }

    pub(crate) fn mode(mut self, mode: LockMode) -> Self {
        self.request.mode = mode.into();
        self
    }

    pub(crate) fn within(mut self, within: Duration) -> Self {
        self.within = Some(within);
        self
    }
}

/// A grant, and the moments between which it was made.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub(crate) resource: String,
    pub(crate) lock_id: String,
    pub(crate) token: i64,
    /// Its public name; empty if the store has no INSPECTION.
    pub(crate) grant_id: String,
    pub(crate) ttl: Duration,
    pub(crate) waited: Duration,
    /// Before the request was sent.
    pub(crate) asked_at: Instant,
    /// After the answer had arrived.
    pub(crate) answered_at: Instant,
}

impl Accepted for Grant {
    fn describe(&self) -> String {
        let Self { lock_id, token, ttl, .. } = self;
        format!(
            "a grant with the lock ID {lock_id}, the token {token} and a TTL of {}",
            Readable(*ttl)
        )
    }
}

impl Grant {
    /// Until when nobody else may hold the resource, unless the grant is ended.
    pub(crate) fn lives_until(&self) -> Instant {
        self.asked_at + self.waited + self.ttl
    }
}

/// A renewal, and the moment before it was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Renewal {
    pub(crate) ttl: Duration,
    pub(crate) asked_at: Instant,
}

impl Accepted for Renewal {
    fn describe(&self) -> String {
        format!("a renewal with a TTL of {}", Readable(self.ttl))
    }
}

impl Renewal {
    /// See [`Grant::lives_until`].
    pub(crate) fn lives_until(&self) -> Instant {
        self.asked_at + self.ttl
    }
}

pub(crate) fn to_wire(duration: Duration) -> prost_types::Duration {
    prost_types::Duration {
        seconds: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(duration.subsec_nanos()).unwrap_or(0),
    }
}

//! Converts between the domain and the messages of the component protocol.

use std::time::Duration;

use leasehold_lock::{Attempt, LockId, Mode, Renewal, RequestId, ResourceId};
use leasehold_proto::components::{LockMode, LockRequest, RenewLockRequest, UnlockRequest};

pub(super) fn lock_request(attempt: &Attempt) -> LockRequest {
    let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
    LockRequest {
        resource_id: attempt.resource.as_str().to_owned(),
        ttl: ttl_to_wire(attempt.ttl.duration()),
        metadata: Default::default(),
        lock_id: sent_lock_id(attempt).map(LockId::as_str).unwrap_or_default().to_owned(),
        request_id: text(attempt.request_id.as_ref().map(RequestId::as_str)),
        mode: match attempt.mode {
            Mode::Exclusive => LockMode::Exclusive,
            Mode::Shared => LockMode::Shared,
        }
        .into(),
        holder: text(attempt.holder.as_ref().map(leasehold_lock::Holder::as_str)),
    }
}

/// The lock ID to send. If the caller chose none, leasehold does, so that the attempt can be
/// undone without an answer. With a request ID none is sent, because a repetition must not
/// differ from the first request.
fn sent_lock_id(attempt: &Attempt) -> Option<&LockId> {
    (attempt.lock_id_given || attempt.request_id.is_none()).then_some(&attempt.lock_id)
}

pub(super) fn renew_request(renewal: &Renewal) -> RenewLockRequest {
    RenewLockRequest {
        resource_id: renewal.resource.as_str().to_owned(),
        lock_id: renewal.lock_id.as_str().to_owned(),
        ttl: ttl_to_wire(renewal.ttl.duration()),
        metadata: Default::default(),
    }
}

/// An unlock; by force if there is no lock ID.
pub(super) fn unlock_request(resource: &ResourceId, lock_id: Option<&LockId>) -> UnlockRequest {
    UnlockRequest {
        resource_id: resource.as_str().to_owned(),
        lock_id: lock_id.map(LockId::as_str).unwrap_or_default().to_owned(),
        force: lock_id.is_none(),
        metadata: Default::default(),
    }
}

/// A TTL as messages have it; `None` for the store's default.
pub(crate) fn ttl_to_wire(ttl: Duration) -> Option<prost_types::Duration> {
    (ttl != super::absent_ttl()).then(|| ttl.try_into().ok())?
}

/// A duration; `None` if it is absent or negative.
pub(crate) fn from_wire(duration: Option<prost_types::Duration>) -> Option<Duration> {
    duration.and_then(|duration| duration.try_into().ok())
}

//! Turns gRPC's messages into calls of the core.

use leasehold_proto::locks as proto;
use tokio::time::Instant;
use tonic::Request;

use super::LockCall;
use crate::{
    lock::{FencingToken, Mode, RequestId, ResourceId, Violation},
    net::wire::{deadline, positive},
    sidecar::identity::Label,
};

/// Reads a request for a lock that arrives now.
pub(super) fn lock_call(request: Request<proto::LockRequest>) -> Result<LockCall, Violation> {
    let arrived = Instant::now();
    let deadline = deadline(request.metadata(), arrived);
    let request = request.into_inner();
    let max_hold = match request.max_hold {
        None => None,
        wish => Some(positive("max_hold", wish)?.ok_or_else(no_hold)?),
    };
    Ok(LockCall {
        resource: ResourceId::new(&request.resource_id)?,
        ttl: positive("ttl", request.ttl)?,
        max_hold,
        mode: mode(request.mode)?,
        store_name: request.store_name,
        immediate: request.immediate,
        request_id: RequestId::new(&request.request_id)?,
        no_renewal: request.no_renewal,
        label: Label::new(&request.label)?,
        arrived,
        deadline,
    })
}

/// The violation of a `max_hold` that is not positive.
pub(super) fn no_hold() -> Violation {
    Violation::new("max_hold", "is not positive; leave it out to hold without limit")
}

/// A token on the wire, where 0 means none.
pub(super) fn token(token: Option<FencingToken>) -> i64 {
    token.map_or(0, FencingToken::as_i64)
}

fn mode(mode: i32) -> Result<Mode, Violation> {
    match proto::LockMode::try_from(mode) {
        Ok(proto::LockMode::Exclusive) => Ok(Mode::Exclusive),
        Ok(proto::LockMode::Shared) => Ok(Mode::Shared),
        Err(_) => Err(Violation::new(
            "mode",
            format!("is {mode}; use LOCK_MODE_EXCLUSIVE (0) or LOCK_MODE_SHARED (1)"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_field_is_named() {
        let duration = |seconds| Some(prost_types::Duration { seconds, nanos: 0 });
        let request = || proto::LockRequest { resource_id: "r".into(), ..Default::default() };
        let max_hold =
            |seconds| proto::LockRequest { max_hold: duration(seconds), ..request() };
        for (request, field) in [
            (proto::LockRequest::default(), "resource_id"),
            (proto::LockRequest { request_id: "x".repeat(257), ..request() }, "request_id"),
            (proto::LockRequest { mode: 7, ..request() }, "mode"),
            (proto::LockRequest { label: "x".repeat(129), ..request() }, "label"),
            (proto::LockRequest { label: "a\nb".into(), ..request() }, "label"),
            (proto::LockRequest { ttl: duration(i64::MIN), ..request() }, "ttl"),
            (max_hold(-1), "max_hold"),
            (max_hold(0), "max_hold"),
            (max_hold(i64::MIN), "max_hold"),
        ] {
            assert_eq!(lock_call(Request::new(request)).err().unwrap().field, field);
        }
        assert!(lock_call(Request::new(max_hold(1))).unwrap().max_hold.is_some());
    }
}

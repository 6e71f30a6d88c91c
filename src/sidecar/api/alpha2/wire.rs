//! Converts messages, which the HTTP edge builds too, into calls of the core.

use std::time::Duration;

use leasehold_held::Change;
use leasehold_lock::{RequestId, ResourceId, Violation};
use leasehold_net::wire::{mode, positive};
use leasehold_proto::locks as proto;
use prost_types::Duration as WireDuration;
use tokio::time::Instant;

use super::LockCall;
use crate::{
    identity::check_label,
    name::{Namespace, ResourceName},
};

/// Reads a request for a lock.
pub(super) fn lock_call(
    request: proto::LockRequest,
    arrived: Instant,
    deadline: Option<Instant>,
) -> Result<LockCall, Violation> {
    check_label(&request.label)?;
    let wait = wait(request.wait)?;
    let immediate = request.immediate || wait.is_some_and(|wait| wait.is_zero());
    let wait = wait.filter(|_| !immediate);
    Ok(LockCall {
        resource: resource(&request.resource_id, request.namespace)?,
        ttl: positive("ttl", request.ttl)?,
        max_hold: max_hold(request.max_hold)?,
        mode: mode(request.mode)?,
        store_name: request.store_name,
        immediate,
        request_id: RequestId::new(&request.request_id)?,
        no_renewal: request.no_renewal,
        label: request.label,
        arrived,
        wait_end: wait.and_then(|wait| arrived.checked_add(wait)),
        deadline,
        streamed: false,
    })
}

/// Reads the name of a resource.
pub(super) fn resource(key: &str, namespace: Vec<String>) -> Result<ResourceName, Violation> {
    let key = ResourceId::new(key)?;
    ResourceName::new(&Namespace::new(namespace)?, key)
}

/// After how long the lock is released; `None` if nothing limits that.
pub(super) fn max_hold(wish: Option<WireDuration>) -> Result<Option<Duration>, Violation> {
    match wish {
        None => Ok(None),
        wish => positive("max_hold", wish)?.map(Some).ok_or_else(|| {
            Violation::new(
                "max_hold",
                "is not positive; leave it out for the limit of the sidecar",
            )
        }),
    }
}

/// What a renewal changes besides the TTL.
pub(super) fn change(detach: bool, max_hold: Option<Duration>) -> Result<Change, Violation> {
    match (detach, max_hold) {
        (false, None) => Ok(Change::Nothing),
        (false, Some(max_hold)) => Ok(Change::MaxHold(max_hold)),
        (true, None) => Ok(Change::Detach),
        (true, Some(_)) => Err(Violation::new(
            "max_hold",
            "does not go with detach: a detached lock lasts for its ttl",
        )),
    }
}

/// How long a call may wait; `None` if only its deadline ends the wait.
fn wait(wish: Option<WireDuration>) -> Result<Option<Duration>, Violation> {
    let Some(wish) = wish else { return Ok(None) };
    if (wish.seconds, wish.nanos) == (0, 0) {
        return Ok(Some(Duration::ZERO));
    }
    let wait = positive("wait", Some(wish))?;
    wait.map(Some).ok_or_else(|| Violation::new("wait", "is negative; use 0s or more"))
}

#[cfg(test)]
mod tests {
    use leasehold_net::wire::duration;

    use super::*;

    #[test]
    fn a_bad_field_is_named() {
        let seconds = |seconds| Some(WireDuration { seconds, nanos: 0 });
        let request = || proto::LockRequest { resource_id: "r".into(), ..Default::default() };
        let max_hold = |time| proto::LockRequest { max_hold: seconds(time), ..request() };
        let wait = |time| proto::LockRequest { wait: seconds(time), ..request() };
        let namespace = |segments: &[&str]| {
            let namespace = segments.iter().map(|&segment| segment.into()).collect();
            proto::LockRequest { namespace, ..request() }
        };
        for (request, field) in [
            (proto::LockRequest::default(), "resource_id"),
            (proto::LockRequest { request_id: "x".repeat(257), ..request() }, "request_id"),
            (proto::LockRequest { mode: 7, ..request() }, "mode"),
            (proto::LockRequest { label: "x".repeat(129), ..request() }, "label"),
            (proto::LockRequest { label: "a\nb".into(), ..request() }, "label"),
            (proto::LockRequest { ttl: seconds(i64::MIN), ..request() }, "ttl"),
            (namespace(&[""]), "namespace"),
            (namespace(&["a"; 17]), "namespace"),
            (namespace(&["a\nb"]), "namespace"),
            (max_hold(-1), "max_hold"),
            (max_hold(0), "max_hold"),
            (max_hold(i64::MIN), "max_hold"),
            (wait(-1), "wait"),
            (wait(i64::MIN), "wait"),
        ] {
            let call = lock_call(request, Instant::now(), None);
            assert_eq!(call.err().unwrap().field, field);
        }
        let call = lock_call(max_hold(1), Instant::now(), None);
        assert!(call.unwrap().max_hold.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_of_nothing_is_a_try_and_one_without_end_has_no_limit() {
        let arrived = Instant::now();
        let (nothing, second) = (Some(Duration::ZERO), Some(Duration::from_secs(1)));
        for (immediate, wait, waits) in [
            (false, None, (false, None)),
            (false, second, (false, second)),
            (false, nothing, (true, None)),
            (true, second, (true, None)),
        ] {
            let request = proto::LockRequest {
                resource_id: "r".into(),
                immediate,
                wait: wait.map(duration),
                ..Default::default()
            };
            let call = lock_call(request, arrived, None).unwrap();
            let within = call.wait_end.map(|end| end - arrived);
            assert_eq!((call.immediate, within), waits, "{wait:?}");
        }
    }
}

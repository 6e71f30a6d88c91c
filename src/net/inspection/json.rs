//! The JSON of locks, waiters and events.

use std::time::Duration;

use leasehold_proto::locks as pb;
use leasehold_util::duration::go_duration;
use serde_json::{Value, json};

/// Who holds a resource.
#[must_use]
pub fn of_state(state: &pb::LockState) -> Value {
    json!({
        "resourceID": state.resource_id,
        "namespace": state.namespace,
        "grants": state.grants.iter().map(of_grant).collect::<Vec<_>>(),
        "grantsTotal": state.grants_total,
    })
}

/// One resource with the length of its queue.
#[must_use]
pub fn of_lock(lock: &pb::GetLockResponse) -> Value {
    let mut value = lock.lock.as_ref().map(of_state).unwrap_or_default();
    value["waiters"] = lock.waiters.into();
    value
}

/// A waiter.
#[must_use]
pub fn of_waiter(waiter: &pb::WaiterInfo) -> Value {
    let mut value = json!({
        "position": waiter.position,
        "holder": waiter.holder,
        "mode": mode(waiter.mode()),
    });
    if let Some(since) = &waiter.since {
        value["since"] = since.to_string().into();
    }
    value
}

/// A line of a watch.
#[must_use]
pub fn of_event(event: &pb::LockEvent) -> Value {
    match &event.state {
        Some(state) => {
            let ended: Vec<_> = event.ended.iter().map(of_ended).collect();
            json!({ "type": "state", "state": of_state(state), "ended": ended })
        }
        None if event.restarted => json!({ "type": "restarted" }),
        None => json!({ "type": "synced" }),
    }
}

fn of_grant(grant: &pb::GrantInfo) -> Value {
    let mut value = json!({
        "grantID": grant.grant_id,
        "holder": grant.holder,
        "mode": mode(grant.mode()),
    });
    if let Some(remaining) = grant.remaining {
        let remaining = Duration::try_from(remaining).unwrap_or_default();
        value["remaining"] = go_duration(remaining).into();
    }
    if let Some(since) = &grant.since {
        value["since"] = since.to_string().into();
    }
    if grant.foreign {
        value["foreign"] = true.into();
    }
    value
}

fn of_ended(ended: &pb::EndedGrant) -> Value {
    let cause = cause(ended.cause());
    json!({ "grant": ended.grant.as_ref().map(of_grant), "cause": cause })
}

/// The cause of an end.
#[must_use]
pub fn cause(cause: pb::EndCause) -> &'static str {
    match cause {
        pb::EndCause::Unknown => "unknown",
        pb::EndCause::Released => "released",
        pb::EndCause::Expired => "expired",
        pb::EndCause::Forced => "forced",
    }
}

/// A mode.
#[must_use]
pub fn mode(mode: pb::LockMode) -> &'static str {
    match mode {
        pb::LockMode::Exclusive => "exclusive",
        pb::LockMode::Shared => "shared",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_is_written_with_what_is_known_of_it() {
        let since = prost_types::Timestamp { seconds: 1_700_000_000, nanos: 500_000_000 };
        let grant = pb::GrantInfo {
            grant_id: "0".repeat(32),
            holder: "app/pod".into(),
            mode: pb::LockMode::Shared.into(),
            remaining: Some(prost_types::Duration { seconds: 90, nanos: 0 }),
            since: Some(since),
            foreign: false,
        };
        let expected = json!({
            "grantID": "0".repeat(32),
            "holder": "app/pod",
            "mode": "shared",
            "remaining": "1m30s",
            "since": "2023-11-14T22:13:20.500Z",
        });
        assert_eq!(of_grant(&grant), expected);
        let foreign = pb::GrantInfo { foreign: true, ..Default::default() };
        let expected =
            json!({ "grantID": "", "holder": "", "mode": "exclusive", "foreign": true });
        assert_eq!(of_grant(&foreign), expected);
    }

    #[test]
    fn a_line_says_what_it_is() {
        let state = Some(pb::LockState { resource_id: "r".into(), ..Default::default() });
        let ended = vec![pb::EndedGrant { grant: None, cause: pb::EndCause::Expired.into() }];
        let line = of_event(&pb::LockEvent { state, ended, ..Default::default() });
        assert_eq!(
            (&line["type"], &line["state"]["resourceID"]),
            (&"state".into(), &"r".into())
        );
        assert_eq!(line["ended"][0]["cause"], "expired");
        let restarted = pb::LockEvent { restarted: true, ..Default::default() };
        assert_eq!(of_event(&restarted), json!({ "type": "restarted" }));
        let synced = pb::LockEvent { synced: true, ..Default::default() };
        assert_eq!(of_event(&synced), json!({ "type": "synced" }));
    }
}

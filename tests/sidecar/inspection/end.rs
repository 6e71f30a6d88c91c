//! Ending grants.

use leasehold_proto::locks::{EndLocksResponse, ForceUnlockRequest};
use tonic::Code;

use super::*;
use crate::{
    alpha2_grpc::{force_request, unlock_request},
    stream::{acquired, end},
};

async fn ended(harness: &Harness, request: EndLocksRequest) -> EndLocksResponse {
    inspection(harness).await.end_locks(request).await.unwrap().into_inner()
}

#[tokio::test]
async fn a_dry_run_reports_grants_and_ends_none() {
    let harness = Harness::start().await;
    take(&harness, request("a")).await;
    take(&harness, request("b")).await;
    for asked in [end_request("a"), end_scope(scope(&[], false, "a"))] {
        let asked = EndLocksRequest { dry_run: true, ..asked };
        assert_eq!(names(&ended(&harness, asked).await.ended), ["a"]);
    }
    assert_eq!((harness.memory.records(), harness.engine.held()), (2, 2));
}

#[tokio::test]
async fn no_more_than_the_limit_is_ended() {
    let harness = Harness::start().await;
    for key in ["a", "b", "c"] {
        take(&harness, request(key)).await;
    }
    let asked = EndLocksRequest { limit: 2, all: true, ..end_scope(all()) };
    let first = ended(&harness, asked.clone()).await;
    assert_eq!((first.ended.len(), first.more), (2, true));
    let second = ended(&harness, asked).await;
    assert_eq!((second.ended.len(), second.more), (1, false));
    assert_eq!(harness.memory.records(), 0);
}

#[tokio::test]
async fn a_scope_ends_nothing_else() {
    let harness = Harness::start().await;
    take(&harness, within(&["a"], "r")).await;
    take(&harness, within(&["a", "b"], "r")).await;
    take(&harness, request("r")).await;
    ended(&harness, end_scope(scope(&["a"], false, ""))).await;
    assert_eq!(listed(&harness, list_request(all())).await, ["a/b/r", "r"]);
    let nothing = ended(&harness, end_scope(scope(&["c"], true, ""))).await;
    assert_eq!((nothing.ended.len(), nothing.more), (0, false));
}

#[tokio::test]
async fn a_holder_of_this_sidecar_is_notified_at_once() {
    let harness = Harness::start().await;
    let mut locks = harness.locks().await;
    let mut stream = locks.lock_stream(request("streamed")).await.unwrap().into_inner();
    acquired(&mut stream).await;
    let held = take(&harness, within(&["a"], "held")).await;
    ended(&harness, EndLocksRequest { all: true, ..end_scope(all()) }).await;
    // No renewal has found it: the TTL is 30 s.
    let lost = end(&mut stream).await.unwrap_err();
    assert_eq!(reason(&lost, "cause"), ("LOCK_LOST".into(), Some("forced".into())));
    let mut unlock = unlock_request("held", &held.lock_id);
    unlock.namespace = segments(&["a"]);
    let lost = locks.unlock(unlock).await.unwrap_err();
    assert_eq!(reason(&lost, "cause"), ("LOCK_LOST".into(), Some("forced".into())));
    assert_eq!(harness.engine.held(), 0);
}

#[tokio::test]
async fn a_grant_that_was_seen_is_ended_and_never_its_successor() {
    let harness = Harness::start().await;
    let mut locks = harness.locks().await;
    let before = take(&harness, request("r")).await;
    locks.unlock(unlock_request("r", &before.lock_id)).await.unwrap();
    let after = take(&harness, request("r")).await;
    let mut client = inspection(&harness).await;
    let end = |grant: &LockResponse| EndLocksRequest {
        grant_id: grant.grant_id.clone(),
        ..end_request("r")
    };
    let refused = client.end_locks(end(&before)).await.unwrap_err();
    assert_eq!(reason(&refused, "held"), ("LOCK_NOT_FOUND".into(), Some("true".into())));
    assert_eq!(harness.memory.records(), 1);
    client.end_locks(end(&after)).await.unwrap();
    assert_eq!(harness.memory.records(), 0);
    let refused = client.end_locks(end(&after)).await.unwrap_err();
    assert_eq!(reason(&refused, "held"), ("LOCK_NOT_FOUND".into(), Some("false".into())));
}

#[tokio::test]
async fn a_free_resource_is_not_found_and_an_empty_scope_is_no_error() {
    let harness = Harness::start().await;
    let mut client = inspection(&harness).await;
    let refused = client.end_locks(end_request("r")).await.unwrap_err();
    assert_eq!(
        (refused.code(), reason(&refused, "").0),
        (Code::NotFound, "LOCK_NOT_FOUND".into())
    );
    let scope = ended(&harness, end_scope(scope(&[], false, "r"))).await;
    assert_eq!((scope.ended.len(), scope.more), (0, false));
}

#[tokio::test]
async fn a_forced_unlock_may_name_one_grant() {
    let harness = Harness::start().await;
    let mut locks = harness.locks().await;
    let reader = || LockRequest { mode: 1, ..request("r") };
    let first = take(&harness, reader()).await;
    let second = take(&harness, reader()).await;
    let force = |grant_id: &str| ForceUnlockRequest {
        grant_id: grant_id.into(),
        reason: "stuck".into(),
        ..force_request("r")
    };
    locks.force_unlock(force(&first.grant_id)).await.unwrap();
    let lost = locks.unlock(unlock_request("r", &first.lock_id)).await.unwrap_err();
    assert_eq!(reason(&lost, "cause"), ("LOCK_LOST".into(), Some("forced".into())));
    let gone = locks.force_unlock(force(&first.grant_id)).await.unwrap_err();
    assert_eq!(reason(&gone, "held"), ("LOCK_NOT_FOUND".into(), Some("true".into())));
    locks.unlock(unlock_request("r", &second.lock_id)).await.unwrap();
    let gone = locks.force_unlock(force(&second.grant_id)).await.unwrap_err();
    assert_eq!(reason(&gone, "held"), ("LOCK_NOT_FOUND".into(), Some("false".into())));
    assert_eq!(bad_field(&locks.force_unlock(force("x")).await.unwrap_err()), "grant_id");
    let bad = ForceUnlockRequest { reason: "a\nb".into(), ..force_request("r") };
    assert_eq!(bad_field(&locks.force_unlock(bad).await.unwrap_err()), "reason");
}

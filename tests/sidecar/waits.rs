//! alpha2 over gRPC: how a wait ends, and what is left of one that was cancelled.

use std::time::Duration;

use leasehold_proto::locks::LockRequest;
use tokio::time::{Instant, sleep, timeout};
use tonic::{Code, Request};
use tonic_types::StatusExt as _;

use crate::{
    alpha2_grpc::{lock, request, ttl, unlock},
    harness::{Harness, PATIENCE, eventually, reason},
    inspection::waited_for_by,
};

#[tokio::test]
async fn a_waiting_lock_is_granted_when_it_is_its_turn() {
    let harness = Harness::start().await;
    let mut client = harness.locks().await;
    let first = lock(&mut client, request("r")).await.unwrap();
    let waiting = LockRequest { immediate: false, ..request("r") };
    let mut other = client.clone();
    let waiter = tokio::spawn(async move { lock(&mut other, waiting).await });
    waited_for_by(&harness, "r", 1).await;
    let queued = Instant::now();
    // A time that the answer must report as waited.
    sleep(Duration::from_millis(50)).await;
    assert!(!waiter.is_finished());
    let waited_at_least = queued.elapsed();
    unlock(&mut client, "r", &first.lock_id).await.unwrap();
    let second = timeout(PATIENCE, waiter).await.unwrap().unwrap().unwrap();
    assert!(second.fencing_token > first.fencing_token);
    let waited = Duration::try_from(second.waited.unwrap()).unwrap();
    assert!(waited >= waited_at_least, "{waited:?}");
}

#[tokio::test]
async fn a_wait_ends_at_the_calls_deadline() {
    let harness = Harness::start().await;
    let mut client = harness.locks().await;
    lock(&mut client, request("r")).await.unwrap();
    let within = Duration::from_secs(2);
    let mut late = 0;
    loop {
        let mut waiting = Request::new(LockRequest { immediate: false, ..request("r") });
        waiting.set_timeout(within);
        let began = Instant::now();
        let ended = client.lock(waiting).await.unwrap_err();
        // Otherwise it is the client's answer, not ours.
        if ended.get_details_error_info().is_some() {
            assert_eq!(ended.code(), Code::DeadlineExceeded);
            assert_eq!(reason(&ended, "").0, "WAIT_DEADLINE");
            if began.elapsed() < within {
                return;
            }
        }
        // On a busy machine the margin of 250 ms may not be enough.
        late += 1;
        assert!(late < 5, "{ended:?}");
    }
}

#[tokio::test]
async fn a_wait_ends_after_the_time_that_it_was_given() {
    let harness = Harness::start().await;
    let mut client = harness.locks().await;
    lock(&mut client, request("r")).await.unwrap();
    let waiting = LockRequest { immediate: false, wait: ttl(500), ..request("r") };
    let ended = timeout(PATIENCE, lock(&mut client, waiting)).await.unwrap().unwrap_err();
    assert_eq!(reason(&ended, "").0, "WAIT_DEADLINE");
}

#[tokio::test]
async fn a_wait_of_no_time_is_a_try() {
    let harness = Harness::start().await;
    let mut client = harness.locks().await;
    let held = lock(&mut client, request("r")).await.unwrap();
    let wait = Some(prost_types::Duration::default());
    let waiting = LockRequest { immediate: false, wait, ..request("r") };
    let refused = lock(&mut client, waiting.clone()).await.unwrap_err();
    assert_eq!(reason(&refused, "").0, "RESOURCE_LOCKED");
    unlock(&mut client, "r", &held.lock_id).await.unwrap();
    lock(&mut client, waiting).await.unwrap();
}

#[tokio::test]
async fn a_wait_whose_caller_went_away_ends_with_it() {
    let harness = Harness::start().await;
    let mut client = harness.locks().await;
    let first = lock(&mut client, request("r")).await.unwrap();
    for delay_ms in [0, 1, 5, 20] {
        let mut other = harness.locks().await;
        let waiting = LockRequest { immediate: false, ..request("r") };
        let waiter = tokio::spawn(async move { lock(&mut other, waiting).await });
        sleep(Duration::from_millis(delay_ms)).await;
        waiter.abort();
        let _ = waiter.await;
    }
    unlock(&mut client, "r", &first.lock_id).await.unwrap();
    eventually("nobody holds it", || harness.memory.records() == 0).await;
    assert_eq!(harness.engine.held(), 0);
}

/// The cancellation arrives with the unlock that hands the lock over.
#[tokio::test]
async fn a_grant_whose_caller_cancelled_its_wait_goes_to_the_next_at_once() {
    let harness = Harness::start().await;
    let client = harness.locks().await;
    let wait = || {
        let (mut client, waiting) =
            (client.clone(), LockRequest { immediate: false, ..request("r") });
        tokio::spawn(async move { lock(&mut client, waiting).await })
    };
    // What was sent before on the same connection has then arrived.
    let arrived = async || {
        let refused = unlock(&mut client.clone(), "other", "id").await.unwrap_err();
        assert_eq!(refused.code(), Code::NotFound);
    };
    for _ in 0..50 {
        let first = lock(&mut client.clone(), request("r")).await.unwrap();
        let gone = wait();
        arrived().await;
        let next = wait();
        arrived().await;
        gone.abort();
        unlock(&mut client.clone(), "r", &first.lock_id).await.unwrap();
        let next = timeout(PATIENCE, next).await.expect("the next in line");
        unlock(&mut client.clone(), "r", &next.unwrap().unwrap().lock_id).await.unwrap();
        eventually("nothing is renewed", || harness.engine.held() == 0).await;
        assert_eq!(harness.memory.records(), 0);
    }
}

/// An answer that the transport had taken when the caller went away cannot be
/// distinguished from one that was read: the same request finds its grant
/// again.
/// Trap: sidecar 10
#[tokio::test]
async fn cancelling_at_any_moment_leaves_nothing_that_a_repeat_does_not_find() {
    let harness = Harness::start().await;
    let mut client = harness.locks().await;
    for delay_us in (0..2000).step_by(50) {
        let repeated = LockRequest { request_id: format!("{delay_us}"), ..request("r") };
        let (mut other, first) = (client.clone(), repeated.clone());
        let call = tokio::spawn(async move { lock(&mut other, first).await });
        sleep(Duration::from_micros(delay_us)).await;
        call.abort();
        let _ = call.await;
        let granted = lock(&mut client, repeated).await.unwrap();
        unlock(&mut client, "r", &granted.lock_id).await.unwrap();
        eventually("it is free", || harness.memory.records() == 0).await;
        eventually("nothing is renewed", || harness.engine.held() == 0).await;
    }
}

//! A request that is repeated while its wait is under way joins that wait.

use std::time::Duration;

use leasehold_lock::{Abandoned, AcquireRequest, LockError, LockId, RequestId, Store};
use tokio::time::{Instant, sleep, timeout};

use crate::faulty::{Fault, hold, no_record_left, request, store, unlock};

fn repeated() -> AcquireRequest {
    let mut asked = request("r");
    asked.request_id = RequestId::new("secret").unwrap();
    asked
}

async fn waiting(
    store: &Store,
    asked: AcquireRequest,
) -> tokio::task::JoinHandle<Result<leasehold_lock::Granted, LockError>> {
    let store = store.clone();
    let wait = tokio::spawn(async move { store.lock(asked).await });
    sleep(Duration::from_millis(1)).await;
    wait
}

/// Trap: domain 23, memory 23
#[tokio::test(start_paused = true)]
async fn a_repeated_wait_shares_the_place_of_the_first() {
    let (store, _) = store();
    let held = hold(&store, "r").await;
    let first = waiting(&store, repeated()).await;
    let other = waiting(&store, request("r")).await;
    let again = waiting(&store, repeated()).await;
    unlock(&store, "r", &held).await.unwrap();
    let (first, again) = (first.await.unwrap().unwrap(), again.await.unwrap().unwrap());
    assert_eq!((&first.lock_id, first.token), (&again.lock_id, again.token));
    again.receipt.accept();
    drop(first);
    sleep(Duration::from_secs(1)).await;
    assert!(!other.is_finished(), "a caller received the grant, so it must not be undone");
    unlock(&store, "r", &again).await.unwrap();
    assert!(other.await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn the_wait_goes_on_when_its_first_caller_leaves() {
    let (store, _) = store();
    let held = hold(&store, "r").await;
    let first = waiting(&store, repeated()).await;
    let again = waiting(&store, repeated()).await;
    let other = waiting(&store, request("r")).await;
    first.abort();
    sleep(Duration::from_millis(1)).await;
    unlock(&store, "r", &held).await.unwrap();
    assert!(timeout(Duration::from_secs(1), again).await.unwrap().unwrap().is_ok());
    drop(other);
}

#[tokio::test(start_paused = true)]
async fn the_place_is_gone_when_every_caller_has_left() {
    let (store, faulty) = store();
    let held = hold(&store, "r").await;
    for wait in [waiting(&store, repeated()).await, waiting(&store, repeated()).await] {
        wait.abort();
    }
    let other = waiting(&store, request("r")).await;
    let late = waiting(&store, repeated()).await;
    unlock(&store, "r", &held).await.unwrap();
    let granted = other.await.unwrap().unwrap();
    assert!(!late.is_finished(), "it must queue behind the wait that began before it");
    late.abort();
    drop(granted);
    no_record_left(&faulty).await;
}

#[tokio::test(start_paused = true)]
async fn each_caller_of_a_joined_wait_has_its_own_deadline() {
    let (store, _) = store();
    let held = hold(&store, "r").await;
    let (mut near, mut far) = (repeated(), repeated());
    near.deadline = Some(Instant::now() + Duration::from_secs(1));
    far.deadline = Some(Instant::now() + Duration::from_secs(10));
    let (near, far) = (waiting(&store, near).await, waiting(&store, far).await);
    assert_eq!(near.await.unwrap().unwrap_err(), LockError::WaitDeadline);
    unlock(&store, "r", &held).await.unwrap();
    assert!(far.await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_joined_wait_leaves_no_record_after_its_last_deadline() {
    let (store, faulty) = store();
    let held = hold(&store, "r").await;
    let mut asked = repeated();
    asked.deadline = Some(Instant::now() + Duration::from_secs(1));
    let waits = [waiting(&store, asked.clone()).await, waiting(&store, asked).await];
    for wait in waits {
        assert_eq!(wait.await.unwrap().unwrap_err(), LockError::WaitDeadline);
    }
    unlock(&store, "r", &held).await.unwrap();
    assert_eq!(faulty.memory.records(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_open_wait_is_not_joined_with_another_lock_id() {
    let (store, _) = store();
    let _held = hold(&store, "r").await;
    let _first = waiting(&store, repeated()).await;
    let mut other = repeated();
    other.lock_id = LockId::optional("mine").unwrap();
    match store.lock(other).await {
        Err(LockError::InvalidRequest(violation)) => assert_eq!(violation.field, "lock_id"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_joined_wait_is_granted_the_ttl_that_its_own_caller_asked_for() {
    let asked = |ttl_s| AcquireRequest { ttl: Some(Duration::from_secs(ttl_s)), ..repeated() };
    let (store, _) = store();
    let held = hold(&store, "r").await;
    let first = waiting(&store, asked(1)).await;
    let again = waiting(&store, asked(60)).await;
    unlock(&store, "r", &held).await.unwrap();
    let (first, again) = (first.await.unwrap().unwrap(), again.await.unwrap().unwrap());
    assert_eq!((&first.lock_id, first.token), (&again.lock_id, again.token));
    assert_eq!(again.ttl, Duration::from_secs(60));
    drop(first);
    again.receipt.accept();
    sleep(Duration::from_secs(10)).await;
    assert!(store.try_lock(request("r")).await.is_err());
}

/// Both callers had one attempt, and the end of the first released what the second was answered.
#[tokio::test(start_paused = true)]
async fn the_end_of_one_joined_call_does_not_release_what_another_was_answered() {
    let (store, _) = store();
    let held = hold(&store, "r").await;
    let first = waiting(&store, repeated()).await;
    let again = waiting(&store, repeated()).await;
    unlock(&store, "r", &held).await.unwrap();
    let (first, again) = (first.await.unwrap().unwrap(), again.await.unwrap().unwrap());
    assert!(first.receipt.accept() && again.receipt.accept());
    let abandoned = Abandoned {
        resource: "r".parse().unwrap(),
        lock_id: first.lock_id.clone(),
        id: first.id,
        claims: vec![first.attempt],
    };
    store.abandon(abandoned).end().await;
    unlock(&store, "r", &again).await.unwrap();
}

/// Found by the simulation: the answer came after the caller's deadline, because it waited
/// for the backend.
#[tokio::test(start_paused = true)]
async fn a_joined_wait_is_answered_by_its_deadline_although_the_backend_is_silent() {
    let (store, faulty) = store();
    let held = hold(&store, "r").await;
    faulty.script.on_unlock(Fault::Silent);
    let asked_at = Instant::now();
    let deadline = Some(asked_at + Duration::from_secs(2));
    let asked = AcquireRequest { deadline, ..repeated() };
    let error = store.lock(asked).await.unwrap_err();
    assert!(matches!(error, LockError::OutcomeUnknown(_)), "{error:?}");
    assert!(asked_at.elapsed() <= Duration::from_secs(2), "{:?}", asked_at.elapsed());
    unlock(&store, "r", &held).await.unwrap();
    no_record_left(&faulty).await;
}

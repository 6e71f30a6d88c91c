//! The order of waits, their deadlines, and how they end.

use std::time::Duration;

use futures_util::FutureExt as _;
use leasehold_lock::{LockError, RequestId, Store};
use tokio::time::{Instant, sleep, timeout};

use crate::faulty::{Fault, hold, no_record_left, request, store, unlock};

/// Starts a wait, and gives it time to enter the queue.
async fn waiting(
    store: &Store,
    resource: &str,
) -> tokio::task::JoinHandle<Result<leasehold_lock::Granted, LockError>> {
    let (store, asked) = (store.clone(), request(resource));
    let wait = tokio::spawn(async move { store.lock(asked).await });
    sleep(Duration::from_millis(1)).await;
    wait
}

#[tokio::test(start_paused = true)]
async fn waiters_are_served_first_come_first_served() {
    let (store, _) = store();
    let mut held = hold(&store, "r").await;
    let mut waits = Vec::new();
    for _ in 0..20 {
        waits.push(waiting(&store, "r").await);
    }
    for wait in waits {
        assert!(!wait.is_finished());
        unlock(&store, "r", &held).await.unwrap();
        let granted = wait.await.unwrap().unwrap();
        granted.receipt.accept();
        assert!(granted.token > held.token);
        held = granted;
    }
}

#[tokio::test(start_paused = true)]
async fn waited_is_the_time_until_the_hand_over() {
    let (store, _) = store();
    let held = hold(&store, "r").await;
    let wait = waiting(&store, "r").await;
    sleep(Duration::from_secs(7)).await;
    unlock(&store, "r", &held).await.unwrap();
    let waited = wait.await.unwrap().unwrap().waited;
    assert_eq!(waited.as_secs(), 7, "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_wait_is_answered_fifty_milliseconds_and_a_hundredth_before_a_distant_deadline() {
    let (store, _) = store();
    hold(&store, "r").await;
    let mut asked = request("r");
    asked.deadline = Some(Instant::now() + Duration::from_secs(10));
    let asked_at = Instant::now();
    assert_eq!(store.lock(asked).await.unwrap_err(), LockError::WaitDeadline);
    assert_eq!(asked_at.elapsed().as_millis() / 10, 985);
}

#[tokio::test(start_paused = true)]
async fn a_wait_is_answered_a_quarter_of_a_second_before_a_deadline_far_away() {
    let (store, _) = store();
    hold(&store, "r").await;
    let mut asked = request("r");
    asked.deadline = Some(Instant::now() + Duration::from_secs(25));
    let asked_at = Instant::now();
    assert_eq!(store.lock(asked).await.unwrap_err(), LockError::WaitDeadline);
    assert_eq!(asked_at.elapsed().as_millis() / 10, 2_475);
}

#[tokio::test(start_paused = true)]
async fn a_wait_is_answered_a_tenth_before_a_near_deadline() {
    let (store, _) = store();
    hold(&store, "r").await;
    let mut asked = request("r");
    asked.deadline = Some(Instant::now() + Duration::from_millis(100));
    let asked_at = Instant::now();
    assert_eq!(store.lock(asked).await.unwrap_err(), LockError::WaitDeadline);
    assert!((90..95).contains(&asked_at.elapsed().as_millis()), "{:?}", asked_at.elapsed());
}

/// The outcome is unknown, because the backend is silent. A caller without that answer
/// before its deadline sees a bare `DEADLINE_EXCEEDED`, which means that nothing is held.
#[tokio::test(start_paused = true)]
async fn a_wait_on_a_silent_backend_is_answered_before_its_deadline() {
    for request_id in [None, Some("again")] {
        let (store, faulty) = store();
        hold(&store, "r").await;
        faulty.script.on_unlock(Fault::Silent);
        let deadline = Instant::now() + Duration::from_secs(4);
        let mut asked = request("r");
        asked.deadline = Some(deadline);
        asked.request_id = request_id.and_then(|id| RequestId::new(id).unwrap());
        let error = store.lock(asked).await.unwrap_err();
        assert!(matches!(error, LockError::OutcomeUnknown(_)), "{error:?}");
        assert!(Instant::now() + Duration::from_millis(20) < deadline);
    }
}

/// A stream stays open beyond the end of its wait. On a busy server the margin of a call was too
/// short for the backend's answer, and waits ended with an unknown outcome.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_wait_is_answered_once_the_backend_has_confirmed_it() {
    for request_id in [None, Some("again")] {
        let (store, faulty) = store();
        hold(&store, "r").await;
        faulty.script.on_unlock(Fault::Delayed(Duration::from_secs(1)));
        let asked_at = Instant::now();
        let mut asked = request("r");
        asked.wait_end = Some(asked_at + Duration::from_millis(300));
        asked.request_id = request_id.and_then(|id| RequestId::new(id).unwrap());
        assert_eq!(store.lock(asked).await.unwrap_err(), LockError::WaitDeadline);
        assert_eq!(asked_at.elapsed().as_millis() / 10, 130);
    }
}

#[tokio::test(start_paused = true)]
async fn a_deadline_before_the_end_of_a_wait_limits_it() {
    let (store, _) = store();
    hold(&store, "r").await;
    let asked_at = Instant::now();
    let mut asked = request("r");
    asked.wait_end = Some(asked_at + Duration::from_secs(60));
    asked.deadline = Some(asked_at + Duration::from_secs(10));
    assert_eq!(store.lock(asked).await.unwrap_err(), LockError::WaitDeadline);
    assert_eq!(asked_at.elapsed().as_millis() / 10, 985);
}

/// Whether the deadline or the grant comes first, an error means that nothing is
/// held, and a grant means that the lock is held.
/// Trap: domain 9, memory 9
#[tokio::test(start_paused = true)]
async fn a_deadline_that_races_the_grant_never_loses_it() {
    let (store, faulty) = store();
    for round in 0..10_000_u64 {
        let held = hold(&store, "r").await;
        let mut asked = request("r");
        asked.deadline = Some(Instant::now() + Duration::from_millis(10));
        let waiter = store.clone();
        let wait = tokio::spawn(async move { waiter.lock(asked).await });
        sleep(Duration::from_micros(8_500 + round % 10 * 100)).await;
        unlock(&store, "r", &held).await.unwrap();
        match wait.await.unwrap() {
            Ok(granted) => {
                granted.receipt.accept();
                unlock(&store, "r", &granted).await.unwrap();
            }
            Err(error) => assert_eq!(error, LockError::WaitDeadline),
        }
        assert_eq!(faulty.memory.records(), 0, "round {round}");
    }
}

/// The deadline passes after the grant is made, while the reply is in flight.
/// Trap: domain 9, memory 9
#[tokio::test(start_paused = true)]
async fn a_wait_whose_deadline_meets_its_grant_fails_after_the_release() {
    let (store, faulty) = store();
    faulty.script.on_acquire(Fault::ReplyDelayed(Duration::from_secs(1)));
    let mut asked = request("r");
    asked.deadline = Some(Instant::now() + Duration::from_millis(500));
    assert_eq!(store.lock(asked).await.unwrap_err(), LockError::WaitDeadline);
    assert_eq!(faulty.memory.records(), 0, "answered while the lock was still held");
}

/// A wait ends with its caller, whatever step it has reached.
/// Trap: domain 10, memory 10
#[tokio::test(start_paused = true)]
async fn a_wait_dropped_at_any_poll_does_not_block_the_next_one() {
    for polls in 0..6 {
        let (store, faulty) = store();
        let held = hold(&store, "r").await;
        let mut first = Box::pin(store.lock(request("r")));
        for _ in 0..polls {
            let _ = futures_util::poll!(&mut first);
            tokio::task::yield_now().await;
        }
        let second = waiting(&store, "r").await;
        if polls % 2 == 0 {
            drop(first);
            unlock(&store, "r", &held).await.unwrap();
        } else {
            unlock(&store, "r", &held).await.unwrap();
            drop(first);
        }
        let granted = timeout(Duration::from_secs(1), second).await.unwrap().unwrap().unwrap();
        drop(granted);
        no_record_left(&faulty).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_ends_waits_and_refuses_new_ones_but_serves_unlocks() {
    let (store, faulty) = store();
    let held = hold(&store, "r").await;
    let wait = waiting(&store, "r").await;
    store.drain();
    assert_eq!(wait.await.unwrap().unwrap_err(), LockError::ShuttingDown);
    assert_eq!(store.try_lock(request("s")).await.unwrap_err(), LockError::ShuttingDown);
    assert_eq!(store.lock(request("s")).await.unwrap_err(), LockError::ShuttingDown);
    unlock(&store, "r", &held).await.unwrap();
    assert_eq!(faulty.memory.records(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_lock_of_a_free_resource_is_granted_without_waiting() {
    let (store, _) = store();
    assert!(store.lock(request("r")).now_or_never().unwrap().is_ok());
}

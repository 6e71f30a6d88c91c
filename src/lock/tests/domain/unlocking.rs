//! Unlocks that are in flight, unknown or not sent: what they end, and when.

use std::time::Duration;

use leasehold_lock::{AcquireRequest, AttemptId, LockError, RequestId, UnlockRequest};
use tokio::time::Instant;

use crate::faulty::{
    Fault, hold, no_record_left, renewal, request, store, unlock, with_lock_id,
};

#[tokio::test(start_paused = true)]
async fn an_unlock_whose_caller_left_is_completed() {
    let (store, faulty) = store();
    let granted = hold(&store, "r").await;
    faulty.script.on_unlock(Fault::Delayed(Duration::from_secs(1)));
    let left = tokio::time::timeout(Duration::from_millis(10), unlock(&store, "r", &granted));
    assert!(left.await.is_err());
    no_record_left(&faulty).await;
}

fn repeatable() -> AcquireRequest {
    AcquireRequest { request_id: RequestId::new("once").unwrap(), ..request("r") }
}

/// The repeated request was answered with the grant, which the unlock then ended.
#[tokio::test(start_paused = true)]
async fn a_repeated_request_is_not_answered_with_a_grant_that_an_unlock_ends() {
    for (delay_s, names_token) in [(1, false), (9, false), (1, true), (9, true)] {
        let (store, faulty) = store();
        let first = store.try_lock(repeatable()).await.unwrap();
        assert!(first.receipt.accept());
        faulty.script.on_unlock(Fault::Delayed(Duration::from_secs(delay_s)));
        let unlock = if names_token {
            let (lock_id, token) = (first.lock_id.clone(), first.token.unwrap());
            UnlockRequest::grant("r".parse().unwrap(), lock_id, token)
        } else {
            UnlockRequest::owner("r".parse().unwrap(), first.lock_id.clone())
        };
        // The caller goes away, or gets no answer.
        let left = tokio::time::timeout(Duration::from_millis(10), store.unlock(unlock));
        assert!(left.await.is_err());
        let again = store.try_lock(repeatable()).await.unwrap();
        assert!(again.receipt.accept());
        assert_ne!(again.id, first.id);
        tokio::time::sleep(Duration::from_secs(20)).await;
        store.renew(renewal(again.lock_id.as_str())).await.unwrap();
    }
}

/// The sidecar releases what its attempt claimed, so it must know that attempt.
#[tokio::test(start_paused = true)]
async fn a_repeated_request_that_awaited_an_unlock_stays_the_same_attempt() {
    let (store, faulty) = store();
    let first = store.try_lock(repeatable()).await.unwrap();
    assert!(first.receipt.accept());
    faulty.script.on_unlock(Fault::Delayed(Duration::from_secs(1)));
    let attempt = Some(AttemptId::random());
    let repeated = store.try_lock(AcquireRequest { attempt, ..repeatable() });
    let (unlocked, again) = tokio::join!(unlock(&store, "r", &first), repeated);
    unlocked.unwrap();
    let again = again.unwrap();
    assert_ne!(again.id, first.id);
    assert_eq!(Some(again.attempt), attempt);
}

/// Each of its steps had a timeout of its own.
#[tokio::test(start_paused = true)]
async fn a_repeated_request_during_an_unlock_is_answered_within_one_operation_timeout() {
    let (store, faulty) = store();
    let first = store.try_lock(repeatable()).await.unwrap();
    assert!(first.receipt.accept());
    faulty.script.on_unlock(Fault::Delayed(Duration::from_secs(60)));
    faulty.script.on_acquire(Fault::ReplyDelayed(Duration::from_secs(4)));
    let asked_at = Instant::now();
    let repeated = store.try_lock(repeatable());
    let (_, again) = tokio::join!(unlock(&store, "r", &first), async {
        let again = repeated.await;
        (again, asked_at.elapsed())
    });
    let (again, elapsed) = again;
    assert!(matches!(again, Err(LockError::OutcomeUnknown(_))), "{again:?}");
    assert!(elapsed < Duration::from_millis(5_300), "{elapsed:?}");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_does_not_find_a_grant_that_is_being_unlocked() {
    let (store, faulty) = store();
    let held = hold(&store, "r").await;
    faulty.script.on_unlock(Fault::Delayed(Duration::from_secs(1)));
    let renewing = store.renew(renewal(held.lock_id.as_str()));
    let (unlocked, renewed) = tokio::join!(unlock(&store, "r", &held), renewing);
    unlocked.unwrap();
    assert_eq!(renewed.unwrap_err(), LockError::NotFound { held: false });
}

/// A release that ended before it was sent was carried out later, against what was held then.
/// Trap: domain 21, domain 47
#[tokio::test(start_paused = true)]
async fn a_release_that_was_not_sent_is_not_carried_out_later() {
    let (store, faulty) = store();
    let granted = hold(&store, "r").await;
    let owner = UnlockRequest::owner("r".parse().unwrap(), granted.lock_id);
    let is_unavailable = |ended| matches!(ended, Err(LockError::StoreUnavailable(_)));
    for request in [owner, UnlockRequest::force("r".parse().unwrap())] {
        faulty.script.on_unlock(Fault::Unsent(Duration::from_secs(1)));
        let left = store.unlock(request.clone());
        assert!(tokio::time::timeout(Duration::from_millis(10), left).await.is_err());
        faulty.script.on_unlock(Fault::Unsent(Duration::from_secs(60)));
        assert!(is_unavailable(store.unlock(request).await));
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(faulty.memory.records(), 1);
}

/// The backend needs no read to end the right one of two grants with one lock ID.
#[tokio::test(start_paused = true)]
async fn a_release_names_the_grant_that_its_lock_id_had_last() {
    let (store, faulty) = store();
    let made = hold(&store, "r").await;
    unlock(&store, "r", &made).await.unwrap();
    let asked =
        AcquireRequest { request_id: RequestId::new("q").unwrap(), ..with_lock_id("x") };
    let mut expected = vec![None];
    for _ in 0..2 {
        let first = store.try_lock(asked.clone()).await.unwrap();
        first.receipt.accept();
        let found = store.try_lock(asked.clone()).await.unwrap();
        store.renew(renewal("x")).await.unwrap();
        unlock(&store, "r", &found).await.unwrap();
        expected.push(first.id);
    }
    store.unlock(UnlockRequest::owner("r".parse().unwrap(), made.lock_id)).await.unwrap_err();
    expected.push(None);
    assert_eq!(*faulty.script.known.lock().unwrap(), expected);
}

/// The failed unlock made this process forget the grant. On Redis an unlock that names none may
/// be impossible to complete.
#[tokio::test(start_paused = true)]
async fn an_unlock_that_is_repeated_after_an_outage_names_the_grant_again() {
    let (store, faulty) = store();
    let granted = store.try_lock(with_lock_id("x")).await.unwrap();
    assert!(granted.receipt.accept());
    faulty.script.on_unlock(Fault::Unsent(Duration::ZERO));
    for expected in [false, true] {
        let unlocked = unlock(&store, "r", &granted).await;
        assert_eq!(unlocked.is_ok(), expected);
    }
    assert_eq!(*faulty.script.known.lock().unwrap(), [granted.id, granted.id]);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_force_is_completed() {
    let (store, faulty) = store();
    hold(&store, "r").await;
    faulty.script.on_unlock(Fault::ReplyLost);
    let force = UnlockRequest::force("r".parse().unwrap());
    let error = store.unlock(force).await.unwrap_err();
    assert!(matches!(error, LockError::OutcomeUnknown(_)), "{error:?}");
    no_record_left(&faulty).await;
}

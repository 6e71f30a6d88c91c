//! Unlocks that are in flight, unknown or not sent: what they end, and when.

use std::time::Duration;

use leasehold_lock::{AcquireRequest, LockError, RequestId, UnlockRequest};

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

/// The repeated request was answered with the grant, which the unlock then ended.
#[tokio::test(start_paused = true)]
async fn a_repeated_request_is_not_answered_with_a_grant_that_an_unlock_ends() {
    for fault in
        [Fault::Delayed(Duration::from_secs(1)), Fault::Delayed(Duration::from_secs(9))]
    {
        let (store, faulty) = store();
        let mut asked = request("r");
        asked.request_id = RequestId::new("once").unwrap();
        let first = store.try_lock(asked.clone()).await.unwrap();
        assert!(first.receipt.accept());
        faulty.script.on_unlock(fault);
        // The caller goes away, or gets no answer.
        let left = tokio::time::timeout(Duration::from_millis(10), unlock(&store, "r", &first));
        assert!(left.await.is_err());
        let again = store.try_lock(asked).await.unwrap();
        assert!(again.receipt.accept());
        assert_ne!(again.id, first.id);
        tokio::time::sleep(Duration::from_secs(20)).await;
        store.renew(renewal(again.lock_id.as_str())).await.unwrap();
    }
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

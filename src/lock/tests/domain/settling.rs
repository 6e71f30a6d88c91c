//! Grants that no caller received are released, and unknown outcomes are settled.

use std::{sync::atomic::Ordering, time::Duration};

use leasehold_lock::{
    Abandoned, AcquireRequest, AttemptId, LockError, LockId, RenewRequest, RequestId,
};
use tokio::time::Instant;

use crate::faulty::{
    Fault, hold, no_record_left, renewal, request, store, unlock, with_lock_id,
};

/// Trap: domain 10, memory 10
#[tokio::test(start_paused = true)]
async fn a_grant_that_nobody_received_is_released_at_once() {
    let (store, faulty) = store();
    let granted = store.try_lock(request("r")).await.unwrap();
    assert_eq!(faulty.memory.records(), 1);
    let dropped_at = Instant::now();
    drop(granted);
    no_record_left(&faulty).await;
    assert!(
        dropped_at.elapsed() < Duration::from_secs(1),
        "it must not be left to its TTL of 30 s"
    );
}

#[tokio::test(start_paused = true)]
async fn a_received_grant_stays() {
    let (store, faulty) = store();
    drop(hold(&store, "r").await);
    tokio::time::sleep(Duration::from_secs(29)).await;
    assert_eq!(faulty.memory.records(), 1);
}

/// Trap: domain 15
#[tokio::test(start_paused = true)]
async fn a_grant_that_is_over_when_its_answer_comes_is_none() {
    const TTL: Duration = Duration::from_secs(1);
    let (store, faulty) = store();
    faulty.script.on_acquire(Fault::ReplyDelayed(TTL));
    let short = AcquireRequest { ttl: Some(TTL), ..request("r") };
    let error = store.try_lock(short.clone()).await.unwrap_err();
    assert!(matches!(error, LockError::OutcomeUnknown(_)), "{error:?}");
    no_record_left(&faulty).await;
    let granted = store.try_lock(short).await.unwrap();
    tokio::time::sleep(TTL).await;
    assert!(!granted.receipt.accept(), "it is over when its answer is written");
}

/// Trap: domain 15
#[tokio::test(start_paused = true)]
async fn a_renewal_that_is_over_when_its_answer_comes_is_none() {
    let (store, faulty) = store();
    let granted = hold(&store, "r").await;
    faulty.script.on_renew(Fault::ReplyDelayed(Duration::from_secs(1)));
    let renewal = RenewRequest {
        resource: "r".parse().unwrap(),
        lock_id: granted.lock_id,
        ttl: Some(Duration::from_secs(1)),
    };
    let error = store.renew(renewal).await.unwrap_err();
    assert!(matches!(error, LockError::OutcomeUnknown(_)), "{error:?}");
}

/// The acquisition commits and its reply is lost.
/// Trap: domain 1
#[tokio::test(start_paused = true)]
async fn an_acquisition_whose_reply_was_lost_is_undone() {
    let (store, faulty) = store();
    faulty.script.on_acquire(Fault::ReplyLost);
    let error = store.try_lock(request("r")).await.unwrap_err();
    assert!(matches!(error, LockError::OutcomeUnknown(_)), "{error:?}");
    no_record_left(&faulty).await;
}

#[tokio::test(start_paused = true)]
async fn a_call_to_a_silent_backend_is_answered_within_the_operation_timeout() {
    let (store, faulty) = store();
    faulty.script.on_acquire(Fault::Silent);
    let asked_at = Instant::now();
    let error = store.try_lock(request("r")).await.unwrap_err();
    assert!(matches!(error, LockError::OutcomeUnknown(_)), "{error:?}");
    assert!(asked_at.elapsed() < Duration::from_millis(5_300), "{:?}", asked_at.elapsed());
    no_record_left(&faulty).await;
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_never_reached_the_backend_is_not_cleaned_up() {
    let (store, faulty) = store();
    faulty.script.on_acquire(Fault::Unreachable);
    let error = store.try_lock(request("r")).await.unwrap_err();
    assert!(matches!(error, LockError::StoreUnavailable(_)), "{error:?}");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(faulty.script.unlocks.load(Ordering::Relaxed), 0);
}

/// A failed delete may leave the lock held, so it must be tried again.
/// Trap: domain 24, domain 47, memory 24, memory 47
#[tokio::test(start_paused = true)]
async fn a_clean_up_goes_on_until_it_is_confirmed() {
    let (store, faulty) = store();
    for fault in [Fault::Unreachable, Fault::Unreachable, Fault::Silent, Fault::Unreachable] {
        faulty.script.on_unlock(fault);
    }
    drop(store.try_lock(request("r")).await.unwrap());
    no_record_left(&faulty).await;
}

/// The caller leaves while its acquisition is in flight.
/// Trap: domain 7, memory 7
#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_during_the_acquisition_leaves_nothing() {
    for left_after_ms in [0, 1, 50, 99, 100, 101, 150] {
        let (store, faulty) = store();
        faulty.script.on_acquire(Fault::ReplyDelayed(Duration::from_millis(100)));
        let call = tokio::time::timeout(
            Duration::from_millis(left_after_ms),
            store.try_lock(request("r")),
        );
        drop(call.await);
        no_record_left(&faulty).await;
    }
}

/// A renewal with the caller's lock ID once succeeded for a lock that then ended.
/// Trap: domain 35
#[tokio::test(start_paused = true)]
async fn a_renewal_does_not_find_an_acquisition_that_is_being_undone() {
    let (store, faulty) = store();
    faulty.script.on_acquire(Fault::ReplyLost);
    for fault in [Fault::Unreachable, Fault::Delayed(Duration::from_secs(1))] {
        faulty.script.on_unlock(fault);
    }
    store.try_lock(with_lock_id("mine")).await.unwrap_err();
    assert_eq!(faulty.memory.records(), 1);
    let renewed = store.renew(renewal("mine")).await;
    assert_eq!(renewed.unwrap_err(), LockError::NotFound { held: false });
    assert_eq!(faulty.memory.records(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_fails_while_an_acquisition_of_its_lock_id_cannot_be_undone() {
    let (store, faulty) = store();
    faulty.script.on_acquire(Fault::ReplyLost);
    for _ in 0..30 {
        faulty.script.on_unlock(Fault::Unreachable);
    }
    store.try_lock(with_lock_id("mine")).await.unwrap_err();
    let asked_at = Instant::now();
    let error = store.renew(renewal("mine")).await.unwrap_err();
    assert!(matches!(error, LockError::StoreUnavailable(_)), "{error:?}");
    assert!(asked_at.elapsed() < Duration::from_millis(5_300), "{:?}", asked_at.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_acquisition_that_is_being_undone_delays_no_renewal_of_another_lock_id() {
    let (store, faulty) = store();
    let held = hold(&store, "r").await;
    faulty.script.on_acquire(Fault::ReplyLost);
    for _ in 0..30 {
        faulty.script.on_unlock(Fault::Unreachable);
    }
    store.try_lock(with_lock_id("mine")).await.unwrap_err();
    let asked_at = Instant::now();
    store.renew(renewal(held.lock_id.as_str())).await.unwrap();
    assert_eq!(asked_at.elapsed(), Duration::ZERO);
}

/// Renewals waited until no attempt with the lock ID was being undone, which was never the case.
/// Trap: domain 35
#[tokio::test(start_paused = true)]
async fn renewals_go_on_while_waits_with_the_same_lock_id_end() {
    const LATENCY: Duration = Duration::from_millis(40);
    let (store, faulty) = store();
    for _ in 0..600 {
        faulty.script.on_unlock(Fault::Delayed(LATENCY));
    }
    store.try_lock(with_lock_id("mine")).await.unwrap().receipt.accept();
    for caller in 0..50 {
        let store = store.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(20 * caller)).await;
            loop {
                let wait_end = Some(Instant::now() + Duration::from_secs(1));
                let asked = AcquireRequest { wait_end, ..with_lock_id("mine") };
                assert_eq!(store.lock(asked).await.unwrap_err(), LockError::WaitDeadline);
            }
        });
    }
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        faulty.script.on_renew(Fault::ReplyDelayed(LATENCY));
        let asked_at = Instant::now();
        store.renew(renewal("mine")).await.unwrap();
        assert_eq!(asked_at.elapsed(), LATENCY);
    }
}

/// The backend renews before it releases, and answers in the other order.
/// Trap: domain 35
#[tokio::test(start_paused = true)]
async fn a_renewal_of_a_grant_that_is_undone_before_it_is_answered_does_not_succeed() {
    let (store, faulty) = store();
    let granted = store.try_lock(with_lock_id("mine")).await.unwrap();
    faulty.script.on_renew(Fault::ReplyDelayed(Duration::from_secs(1)));
    let renewing = store.renew(renewal("mine"));
    let leaving = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        drop(granted);
        no_record_left(&faulty).await;
    };
    let (renewed, ()) = tokio::join!(renewing, leaving);
    assert_eq!(renewed.unwrap_err(), LockError::NotFound { held: false });
}

/// The caller knows from the renewal that it has the lock. It was undone all the same.
/// Trap: domain 35
#[tokio::test(start_paused = true)]
async fn a_grant_that_was_renewed_before_its_answer_is_not_undone() {
    let (store, faulty) = store();
    let granted = store.try_lock(with_lock_id("mine")).await.unwrap();
    store.renew(renewal("mine")).await.unwrap();
    drop(granted);
    tokio::time::sleep(Duration::from_secs(5)).await;
    store.renew(renewal("mine")).await.unwrap();
    assert_eq!(faulty.memory.records(), 1);
}

/// A replay claims the grant of an attempt whose reply was lost. The clean-up of that
/// attempt must then leave the grant alone.
#[tokio::test(start_paused = true)]
async fn a_clean_up_spares_a_grant_that_a_replay_has_claimed() {
    let (store, faulty) = store();
    faulty.script.on_acquire(Fault::ReplyLost);
    faulty.script.on_unlock(Fault::Delayed(Duration::from_secs(1)));
    let mut replayed = request("r");
    replayed.request_id = RequestId::new("secret").unwrap();
    store.try_lock(replayed.clone()).await.unwrap_err();
    let granted = store.try_lock(replayed).await.unwrap();
    granted.receipt.accept();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(faulty.memory.records(), 1, "the claimed grant was undone");
    unlock(&store, "r", &granted).await.unwrap();
}

/// An attempt undoes only a grant that it made, never one that it found.
/// Trap: domain 23, memory 23
#[tokio::test(start_paused = true)]
async fn a_replay_that_nobody_received_leaves_the_grant_it_found() {
    let (store, faulty) = store();
    let mut asked = request("r");
    asked.request_id = RequestId::new("secret").unwrap();
    store.try_lock(asked.clone()).await.unwrap().receipt.accept();
    drop(store.try_lock(asked.clone()).await.unwrap());
    faulty.script.on_acquire(Fault::ReplyLost);
    store.try_lock(asked).await.unwrap_err();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(faulty.memory.records(), 1);
}

#[tokio::test(start_paused = true)]
async fn retiring_waits_until_everything_is_settled() {
    let (store, faulty) = store();
    for _ in 0..3 {
        faulty.script.on_unlock(Fault::Unreachable);
    }
    drop(store.try_lock(request("r")).await.unwrap());
    store.retire().await;
    assert_eq!(faulty.memory.records(), 0);
}

/// An outage leaves more releases to settle than are tried at the same time.
/// Trap: domain 41
#[tokio::test(start_paused = true)]
async fn twelve_thousand_unsettled_attempts_are_all_undone() {
    const ATTEMPTS: usize = 12_000;
    let (store, faulty) = store();
    for n in 0..ATTEMPTS {
        faulty.script.on_unlock(Fault::Unreachable);
        drop(store.try_lock(request(&format!("r{n}"))).await.unwrap());
    }
    no_record_left(&faulty).await;
}

/// Trap: domain 41
#[tokio::test(start_paused = true)]
async fn unsettled_attempts_are_undone_a_few_at_a_time() {
    let (store, faulty) = store();
    let mut grants = Vec::new();
    for n in 0..1_000 {
        faulty.script.on_unlock(Fault::ReplyDelayed(Duration::from_millis(10)));
        grants.push(store.try_lock(request(&format!("r{n}"))).await.unwrap());
    }
    drop(grants);
    no_record_left(&faulty).await;
    let most = faulty.script.unlocking_max.load(Ordering::Relaxed);
    assert!(most <= 256, "{most} at the same time");
}

/// Trap: domain 41
#[tokio::test(start_paused = true)]
async fn with_too_many_unsettled_releases_acquisitions_are_refused() {
    let (store, faulty) = store();
    let mut unsettled = 0;
    let refused = loop {
        faulty.script.on_unlock(Fault::Silent);
        match store.try_lock(request(&format!("r{unsettled}"))).await {
            Ok(granted) => drop(granted),
            Err(error) => break error,
        }
        unsettled += 1;
    };
    assert_eq!((refused, unsettled), (LockError::Overloaded, 100_000));
    // What this process holds is released all the same: it was left to its TTL.
    let held = Abandoned {
        resource: "r0".parse().unwrap(),
        lock_id: LockId::random(),
        id: None,
        claims: vec![AttemptId::random()],
    };
    let released = tokio::time::timeout(Duration::from_millis(1), store.abandon(held).end());
    assert!(released.await.is_err());
    assert_eq!(store.unsettled(), 100_001);
}

/// A master of a Cluster that did not answer once delayed the releases of all others.
#[tokio::test(start_paused = true)]
async fn releases_of_a_server_that_does_not_answer_delay_none_of_another() {
    let (store, faulty) = store();
    for n in 0..256 {
        faulty.script.on_unlock(Fault::Delayed(Duration::from_secs(4)));
        drop(store.try_lock(request(&format!("r{n}"))).await.unwrap());
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(faulty.memory.records(), 256);
    drop(store.try_lock(request("elsewhere")).await.unwrap());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(faulty.memory.records(), 256);
}

//! Unlocking, and the end of a stream.

use std::sync::atomic::Ordering;

use leasehold_lock::RequestId;

use leasehold_testing::scripted::Fault;

use super::*;
use crate::Cause;

/// The renewal has ended before the unlock is sent.
/// Trap: sidecar 11
#[tokio::test(start_paused = true)]
async fn a_renewal_in_flight_ends_before_the_unlock() {
    let setup = setup();
    let granted = setup.hold("r").await;
    setup.script.on_renewal(Fault::Delayed(Duration::from_secs(2)));
    while setup.script.renewals.load(Ordering::SeqCst) == 0 {
        settle().await;
    }
    setup.unlock("r", granted.lock_id).await.unwrap();
    assert_eq!(setup.script.renewing_at_unlock.load(Ordering::SeqCst), 0);
    assert!(setup.is_free("r").await);
    sleep(TTL).await;
    assert!(setup.is_free("r").await, "nothing resumed");
    assert_eq!(setup.script.renewals.load(Ordering::SeqCst), 1);
}

/// Trap: sidecar 24
#[tokio::test(start_paused = true)]
async fn an_unlock_whose_caller_went_away_is_completed() {
    let setup = setup();
    let granted = setup.hold("r").await;
    setup.script.on_unlock(Fault::Delayed(Duration::from_secs(1)));
    {
        let unlock = setup.unlock("r", granted.lock_id);
        let abandoned = tokio::time::timeout(Duration::from_millis(10), unlock).await;
        assert!(abandoned.is_err());
    }
    sleep(Duration::from_secs(2)).await;
    assert!(setup.is_free("r").await);
    assert_eq!(setup.engine.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn after_an_unlock_that_did_not_happen_the_lock_runs_out() {
    let mut setup = setup();
    let granted = setup.hold("r").await;
    setup.script.on_unlock(Fault::Unreachable);
    let failed = setup.unlock("r", granted.lock_id.clone()).await;
    assert!(matches!(failed, Err(HeldError::Lock(LockError::StoreUnavailable(_)))));
    assert_eq!(setup.engine.held(), 1, "it can be unlocked again until then");
    assert_eq!(setup.notices.recv().await.unwrap().cause, Cause::Expired);
    assert_eq!(setup.script.renewals.load(Ordering::SeqCst), 0);
}

/// The limit was once forgotten with the unlock, so the lock of an app that then died was renewed
/// for ever.
#[tokio::test(start_paused = true)]
async fn a_renewal_after_an_unlock_that_did_not_happen_keeps_the_limit() {
    let mut setup = setup();
    let granted = setup.acquire("r", TTL).await;
    let max_hold = MaxHold::Asked(Duration::from_secs(100));
    setup.keep(Holding { max_hold, ..setup.holding("r", &granted) });
    setup.script.on_unlock(Fault::Unreachable);
    let lock_id = granted.lock_id;
    setup.unlock("r", lock_id.clone()).await.unwrap_err();
    setup.change("r", lock_id, None, Change::Nothing).await.unwrap();
    assert_eq!(setup.notices.recv().await.unwrap().cause, Cause::MaxHold);
    assert_eq!(granted.since.elapsed(), Duration::from_secs(100));
}

#[tokio::test(start_paused = true)]
async fn an_unlock_is_repeated_after_an_unknown_outcome() {
    let setup = setup();
    let granted = setup.hold("r").await;
    setup.script.on_unlock(Fault::ReplyLost);
    let unlock = || setup.unlock("r", granted.lock_id.clone());
    let unknown = unlock().await;
    assert!(matches!(unknown, Err(HeldError::Lock(LockError::OutcomeUnknown(_)))));
    unlock().await.unwrap();
    assert_eq!(setup.engine.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn unlocking_twice_at_once_succeeds_once() {
    let setup = setup();
    let granted = setup.hold("r").await;
    let unlock = || setup.unlock("r", granted.lock_id.clone());
    let (first, second) = tokio::join!(unlock(), unlock());
    assert!(first.is_ok());
    assert_eq!(second, Err(HeldError::Lock(LockError::NotFound { held: false })));
}

/// Found by random schedules: only the first of two waited for the renewal.
#[tokio::test(start_paused = true)]
async fn of_two_unlocks_at_once_neither_overtakes_the_renewal() {
    let setup = setup();
    let granted = setup.hold("r").await;
    setup.script.on_renewal(Fault::Silent);
    while setup.script.renewals.load(Ordering::SeqCst) == 0 {
        settle().await;
    }
    let unlock = || setup.unlock("r", granted.lock_id.clone());
    let (first, second) = tokio::join!(unlock(), unlock());
    assert!(first.is_ok() != second.is_ok(), "{first:?} {second:?}");
    assert_eq!(setup.script.renewing_at_unlock.load(Ordering::SeqCst), 0);
}

/// Found by random schedules: the second of two unlocks found nothing any more,
/// and the holder got a notice that its lock was forced.
#[tokio::test(start_paused = true)]
async fn an_unlock_that_another_overtook_reports_no_loss() {
    let setup = setup();
    let (guard, end) = setup.stream("r").await;
    let lock_id = {
        let mut table = setup.engine.table();
        let (id, _) = table.of_resource(&setup.resource("r")).next().unwrap();
        table.get_mut(id).unwrap().holding.lock_id.clone()
    };
    setup.script.on_unlock(Fault::ReplyDelayed(Duration::from_millis(40)));
    let unlock = || setup.unlock("r", lock_id.clone());
    let (first, second) = tokio::join!(unlock(), unlock());
    assert!(first.is_ok());
    assert_eq!(second, Err(HeldError::Lock(LockError::NotFound { held: false })));
    assert_eq!(end.await, Ok(HoldEnd::Unlocked));
    drop(guard);
}

/// Found by random schedules: the app renewed by itself after an unlock with a
/// lost answer, and its holder got a notice that its lock was forced.
#[tokio::test(start_paused = true)]
async fn a_renewal_after_an_unlock_without_an_answer_reports_no_loss() {
    let mut setup = setup();
    let granted = setup.hold("r").await;
    setup.script.on_unlock(Fault::ReplyLost);
    let unknown = setup.unlock("r", granted.lock_id.clone()).await;
    assert!(matches!(unknown, Err(HeldError::Lock(LockError::OutcomeUnknown(_)))));
    let renewed = setup.renew("r", granted.lock_id, None).await;
    assert_eq!(renewed.err(), Some(HeldError::Lock(LockError::NotFound { held: false })));
    assert_eq!(setup.engine.held(), 0);
    assert!(setup.notices.try_recv().is_err(), "nothing was lost");
}

#[tokio::test(start_paused = true)]
async fn an_unlock_finds_a_lock_that_was_forced_elsewhere_lost() {
    let setup = setup();
    let granted = setup.hold("r").await;
    let force = leasehold_lock::UnlockRequest::force("r".parse().unwrap());
    setup.store.store().unlock(force).await.unwrap();
    let unlock = || setup.unlock("r", granted.lock_id.clone());
    assert_eq!(unlock().await, Err(HeldError::Lost(Cause::Forced)));
    sleep(Duration::from_secs(599)).await;
    assert_eq!(unlock().await, Err(HeldError::Lost(Cause::Forced)));
    sleep(Duration::from_secs(2)).await;
    let forgotten = unlock().await;
    assert_eq!(forgotten, Err(HeldError::Lock(LockError::NotFound { held: false })));
}

/// A failed release is tried again.
/// Trap: sidecar 24
#[tokio::test(start_paused = true)]
async fn a_stream_that_ends_releases_until_it_is_confirmed() {
    let setup = setup();
    let (guard, _end) = setup.stream("r").await;
    setup.script.on_unlock(Fault::Unreachable);
    setup.script.on_unlock(Fault::Unreachable);
    drop(guard);
    assert_eq!(setup.engine.held(), 0);
    sleep(Duration::from_secs(1)).await;
    assert!(setup.is_free("r").await);
}

/// It was released by its lock ID, and the other sidecar believed in it on.
/// Trap: sidecar 22
#[tokio::test(start_paused = true)]
async fn what_a_repeated_request_has_got_elsewhere_is_not_released() {
    for end in ["stream", "max_hold", "report", "report of a loss"] {
        let mut setup = setup();
        let ask = || AcquireRequest {
            request_id: RequestId::new("secret").unwrap(),
            ..AcquireRequest::new("r".parse().unwrap())
        };
        let granted = setup.store.store().try_lock(ask()).await.unwrap();
        granted.receipt.accept();
        let max_hold = MaxHold::Asked(Duration::from_secs(20));
        let holding = Holding { max_hold, ..setup.holding("r", &granted) };
        let (guard, _end) = setup.engine.hold_for_stream(holding);
        let elsewhere = setup.store.store().try_lock(ask()).await.unwrap();
        assert_eq!(elsewhere.lock_id, granted.lock_id);
        match end {
            "stream" => drop(guard),
            "max_hold" => sleep(Duration::from_secs(21)).await,
            _ => {
                let target = setup.resource("r");
                assert!(setup.engine.give_up(&target, &granted.lock_id));
            }
        }
        settle().await;
        assert_eq!(setup.engine.held(), 0, "{end}");
        assert!(!setup.is_free("r").await, "{end}");
        assert!(setup.notices.try_recv().is_err(), "{end}");
    }
}

/// Trap: sidecar 11
#[tokio::test(start_paused = true)]
async fn a_stream_that_ends_joins_its_renewal_first() {
    let setup = setup();
    let (guard, _end) = setup.stream("r").await;
    setup.script.on_renewal(Fault::Delayed(Duration::from_secs(2)));
    while setup.script.renewals.load(Ordering::SeqCst) == 0 {
        settle().await;
    }
    drop(guard);
    settle().await;
    assert_eq!(setup.script.renewing_at_unlock.load(Ordering::SeqCst), 0);
    assert!(setup.is_free("r").await);
}

/// Trap: sidecar 20
#[tokio::test(start_paused = true)]
async fn a_place_is_free_again_when_a_lock_ends() {
    let limits = EngineOptions { held_max: 1, ..EngineOptions::default() };
    let mut setup = setup_with(limits);
    let granted = setup.hold("a").await;
    assert!(setup.engine.is_full() && setup.engine.place().is_none());
    setup.unlock("a", granted.lock_id).await.unwrap();
    setup.hold("b").await;
    setup.script.on_every_renewal(Some(Fault::Unreachable));
    setup.notices.recv().await.unwrap();
    assert!(!setup.engine.is_full());
    let (guard, _end) = setup.stream("c").await;
    drop(guard);
    settle().await;
    assert!(!setup.engine.is_full());
}

/// A record, its two names and its entries in five indexes take well under 2 KiB.
#[test]
fn a_record_is_small() {
    let record = size_of::<crate::record::Record>();
    assert!(record <= 464, "{record} bytes");
}

/// It was answered as renewed, and then ended.
#[tokio::test(start_paused = true)]
async fn a_lock_that_is_being_released_is_not_renewed() {
    let setup = setup();
    let granted = setup.acquire("r", TTL).await;
    let (guard, _ended) = setup.engine.hold_for_stream(setup.holding("r", &granted));
    setup.script.on_unlock(Fault::Unreachable);
    drop(guard);
    let renewed = setup.renew("r", granted.lock_id.clone(), None).await;
    assert!(matches!(renewed, Err(HeldError::Lock(LockError::NotFound { .. }))), "{renewed:?}");
}

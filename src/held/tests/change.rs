//! What the app changes with a renewal.

use std::sync::atomic::Ordering;

use leasehold_testing::scripted::Fault;

use super::*;
use crate::Cause;

const SHORT: Duration = Duration::from_secs(10);

#[tokio::test(start_paused = true)]
async fn a_detached_lock_is_not_renewed_and_lasts_for_the_ttl() {
    let mut setup = setup();
    let granted = setup.hold("r").await;
    setup.change("r", granted.lock_id, Some(SHORT), Change::Detach).await.unwrap();
    let detached = Instant::now();
    assert_eq!(setup.notices.recv().await.unwrap().cause, Cause::Expired);
    assert!(detached.elapsed() < SHORT);
    assert!(!setup.is_free("r").await, "the TTL has not ended");
    assert_eq!(setup.script.renewals.load(Ordering::SeqCst), 1, "the app's alone");
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_when_its_lock_is_detached_and_releases_nothing() {
    let setup = setup();
    let granted = setup.acquire("r", TTL).await;
    let (guard, end) = setup.engine.hold_for_stream(setup.holding("r", &granted));
    setup.change("r", granted.lock_id, Some(SHORT), Change::Detach).await.unwrap();
    assert_eq!(end.await, Ok(HoldEnd::Detached));
    drop(guard);
    settle().await;
    assert!(!setup.is_free("r").await);
    assert_eq!(setup.engine.held(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_detached_lock_has_no_limit_but_its_ttl() {
    let mut setup = setup();
    let granted = setup.acquire("r", TTL).await;
    let max_hold = MaxHold::Asked(Duration::from_secs(3));
    setup.keep(Holding { max_hold, ..setup.holding("r", &granted) });
    setup.change("r", granted.lock_id, Some(SHORT), Change::Detach).await.unwrap();
    assert_eq!(setup.notices.recv().await.unwrap().cause, Cause::Expired);
}

#[tokio::test(start_paused = true)]
async fn a_lock_whose_detaching_failed_is_renewed_on() {
    for fault in [Fault::Unreachable, Fault::ReplyLost] {
        let mut setup = setup();
        let granted = setup.hold("r").await;
        setup.script.on_renewal(fault);
        let failed = setup.change("r", granted.lock_id, Some(SHORT), Change::Detach).await;
        assert!(failed.is_err(), "{fault:?}");
        sleep(TTL * 3).await;
        assert!(setup.notices.try_recv().is_err(), "{fault:?}");
        assert_eq!(setup.engine.held(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_max_hold_counts_from_the_renewal() {
    let mut setup = setup();
    let granted = setup.acquire("r", TTL).await;
    let max_hold = MaxHold::Asked(Duration::from_secs(20));
    setup.keep(Holding { max_hold, ..setup.holding("r", &granted) });
    sleep(SHORT).await;
    for max_hold in [Duration::from_secs(100), Duration::from_secs(40)] {
        let change = Change::MaxHold(max_hold);
        setup.change("r", granted.lock_id.clone(), None, change).await.unwrap();
    }
    let changed = Instant::now();
    assert_eq!(setup.notices.recv().await.unwrap().cause, Cause::MaxHold);
    assert_eq!(changed.elapsed(), Duration::from_secs(40));
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_failed_changes_no_limit() {
    let mut setup = setup();
    let granted = setup.acquire("r", TTL).await;
    let max_hold = MaxHold::Asked(Duration::from_secs(20));
    setup.keep(Holding { max_hold, ..setup.holding("r", &granted) });
    setup.script.on_renewal(Fault::Unreachable);
    let change = Change::MaxHold(Duration::from_secs(100));
    setup.change("r", granted.lock_id, None, change).await.unwrap_err();
    setup.notices.recv().await.unwrap();
    assert_eq!(granted.since.elapsed(), Duration::from_secs(20));
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_not_held_here_is_not_changed() {
    let setup = setup();
    let granted = setup.acquire("r", TTL).await;
    for change in [Change::Detach, Change::MaxHold(SHORT)] {
        let refused = setup.change("r", granted.lock_id.clone(), Some(SHORT), change).await;
        assert_eq!(refused, Err(HeldError::NotHeldHere));
    }
    assert_eq!(setup.script.renewals.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_change_whose_caller_went_away_is_made() {
    let setup = setup();
    let granted = setup.acquire("r", TTL).await;
    let (guard, end) = setup.engine.hold_for_stream(setup.holding("r", &granted));
    setup.script.on_renewal(Fault::ReplyDelayed(Duration::from_secs(1)));
    let change = setup.change("r", granted.lock_id.clone(), Some(SHORT), Change::Detach);
    assert!(tokio::time::timeout(Duration::from_millis(10), change).await.is_err());
    assert_eq!(end.await, Ok(HoldEnd::Detached));
    drop(guard);
}

//! Locks whose unlock the app reports as failed.

use std::sync::atomic::Ordering;

use leasehold_lock::RequestId;

use leasehold_testing::scripted::Fault;

use super::*;
use crate::Cause;

impl Setup {
    fn give_up(&self, lock_id: &LockId) -> bool {
        self.engine.give_up(&self.resource("r"), lock_id)
    }
}

/// Trap: sidecar 24
#[tokio::test(start_paused = true)]
async fn a_reported_lock_is_released_until_that_is_confirmed() {
    let setup = setup();
    let granted = setup.hold("r").await;
    for _ in 0..5 {
        setup.script.on_unlock(Fault::Unreachable);
    }
    assert!(setup.give_up(&granted.lock_id));
    settle().await;
    assert!(!setup.is_free("r").await);
    assert!(!setup.give_up(&granted.lock_id), "it is no longer held here");
    sleep(Duration::from_secs(5)).await;
    assert!(setup.is_free("r").await);
    assert_eq!(setup.script.renewals.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_reported_lock_s_renewal_ends_before_its_release() {
    let setup = setup();
    let granted = setup.hold("r").await;
    setup.script.on_renewal(Fault::Silent);
    while setup.script.renewals.load(Ordering::SeqCst) == 0 {
        settle().await;
    }
    assert!(setup.give_up(&granted.lock_id));
    settle().await;
    assert_eq!(setup.script.renewing_at_unlock.load(Ordering::SeqCst), 0);
    assert!(setup.is_free("r").await);
}

#[tokio::test(start_paused = true)]
async fn the_stream_of_a_reported_lock_ends_well() {
    let setup = setup();
    let granted = setup.acquire("r", TTL).await;
    let (guard, end) = setup.engine.hold_for_stream(setup.holding("r", &granted));
    assert!(setup.give_up(&granted.lock_id));
    assert_eq!(end.await, Ok(HoldEnd::Unlocked));
    drop(guard);
    settle().await;
    assert!(setup.is_free("r").await);
}

#[tokio::test(start_paused = true)]
async fn a_lost_lock_that_its_store_still_has_is_released_when_it_is_reported() {
    let mut setup = setup();
    let granted = setup.hold("r").await;
    setup.script.on_every_renewal(Some(Fault::Unreachable));
    assert_eq!(setup.notices.recv().await.unwrap().cause, Cause::Unreachable);
    assert!(!setup.is_free("r").await, "its TTL has not ended");
    setup.script.on_unlock(Fault::Unreachable);
    assert!(setup.give_up(&granted.lock_id));
    sleep(Duration::from_secs(1)).await;
    assert!(setup.is_free("r").await);
}

#[tokio::test(start_paused = true)]
async fn a_lost_lock_that_a_repeated_request_has_got_elsewhere_is_left_alone() {
    let mut setup = setup();
    let ask = || AcquireRequest {
        request_id: RequestId::new("secret").unwrap(),
        ..AcquireRequest::new("r".parse().unwrap())
    };
    let granted = setup.store.store().try_lock(ask()).await.unwrap();
    granted.receipt.accept();
    setup.keep(setup.holding("r", &granted));
    setup.script.on_every_renewal(Some(Fault::Unreachable));
    setup.notices.recv().await.unwrap();
    setup.store.store().try_lock(ask()).await.unwrap();
    assert!(setup.give_up(&granted.lock_id));
    settle().await;
    assert!(!setup.is_free("r").await);
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_not_held_here_is_left_alone() {
    let setup = setup();
    let granted = setup.acquire("r", TTL).await;
    assert!(!setup.give_up(&granted.lock_id));
    settle().await;
    assert!(!setup.is_free("r").await);
}

//! What is known of a lock without asking its store.

use leasehold_lock::{drift_allowance, suspend};

use leasehold_testing::scripted::Fault;

use super::*;
use crate::{Cause, Known};

impl Setup {
    fn known(&self, lock_id: &LockId) -> Known {
        self.engine.known(&self.resource("r"), lock_id)
    }
}

#[tokio::test(start_paused = true)]
async fn a_held_lock_is_valid_until_its_safe_deadline() {
    let setup = setup();
    let granted = setup.hold("r").await;
    let valid_for = TTL - drift_allowance(TTL);
    assert_eq!(setup.known(&granted.lock_id), Known::Held(valid_for));
    sleep(Duration::from_secs(5)).await;
    assert_eq!(setup.known(&granted.lock_id), Known::Held(valid_for - Duration::from_secs(5)));
}

/// Trap: sidecar 15
#[tokio::test(start_paused = true)]
async fn a_lock_is_lost_when_the_machine_was_suspended_for_its_ttl() {
    let mut setup = setup();
    let granted = setup.hold("r").await;
    sleep(Duration::from_secs(1)).await;
    suspend(TTL);
    assert_eq!(setup.known(&granted.lock_id), Known::Lost(Cause::Unreachable));
    let resumed = Instant::now();
    setup.notices.recv().await.unwrap();
    assert!(resumed.elapsed() <= Duration::from_secs(1));
    assert!(setup.is_free("r").await, "memory counts as its holder does");
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_not_valid_beyond_its_max_hold() {
    let setup = setup();
    let granted = setup.acquire("r", TTL).await;
    let max_hold = MaxHold::Asked(Duration::from_secs(3));
    setup.keep(Holding { max_hold, ..setup.holding("r", &granted) });
    assert_eq!(setup.known(&granted.lock_id), Known::Held(Duration::from_secs(3)));
    sleep(Duration::from_secs(4)).await;
    assert_eq!(setup.known(&granted.lock_id), Known::Lost(Cause::MaxHold));
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_being_unlocked_during_its_unlock_and_after_a_failed_one() {
    let setup = setup();
    let granted = setup.hold("r").await;
    for fault in [Fault::Unreachable, Fault::ReplyLost] {
        setup.script.on_unlock(fault);
        setup.unlock("r", granted.lock_id.clone()).await.unwrap_err();
        assert_eq!(setup.known(&granted.lock_id), Known::Unlocking, "{fault:?}");
    }
    setup.unlock("r", granted.lock_id.clone()).await.unwrap();
    assert_eq!(setup.known(&granted.lock_id), Known::NotHeld);

    let granted = setup.hold("r").await;
    setup.script.on_unlock(Fault::Delayed(Duration::from_secs(1)));
    let unlock = setup.unlock("r", granted.lock_id.clone());
    let mut unlock = std::pin::pin!(unlock);
    assert!(tokio::time::timeout(Duration::from_millis(10), &mut unlock).await.is_err());
    assert_eq!(setup.known(&granted.lock_id), Known::Unlocking);
    unlock.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_its_app_renews_after_a_failed_unlock_is_held_again() {
    let setup = setup();
    let granted = setup.hold("r").await;
    setup.script.on_unlock(Fault::Unreachable);
    setup.unlock("r", granted.lock_id.clone()).await.unwrap_err();
    setup.renew("r", granted.lock_id.clone(), Some(TTL)).await.unwrap();
    assert!(matches!(setup.known(&granted.lock_id), Known::Held(_)));
}

#[tokio::test(start_paused = true)]
async fn a_lost_lock_is_known_by_its_cause() {
    let setup = setup();
    let granted = setup.hold("r").await;
    setup.force("r").await.unwrap();
    assert_eq!(setup.known(&granted.lock_id), Known::Lost(Cause::Forced));
    sleep(Duration::from_secs(601)).await;
    assert_eq!(setup.known(&granted.lock_id), Known::NotHeld);
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_released_is_being_unlocked_until_that_is_confirmed() {
    let setup = setup();
    let granted = setup.acquire("r", TTL).await;
    let (guard, _end) = setup.engine.hold_for_stream(setup.holding("r", &granted));
    setup.script.on_unlock(Fault::Delayed(Duration::from_secs(1)));
    drop(guard);
    settle().await;
    assert_eq!(setup.known(&granted.lock_id), Known::Unlocking);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(setup.known(&granted.lock_id), Known::NotHeld);
}

#[tokio::test(start_paused = true)]
async fn another_lock_id_is_not_known() {
    let setup = setup();
    setup.hold("r").await;
    assert_eq!(setup.known(&LockId::random()), Known::NotHeld);
}

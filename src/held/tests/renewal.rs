//! Locks that are held are renewed, and no others.

use std::sync::atomic::Ordering;

use leasehold_lock::safe_deadline;
use leasehold_testing::scripted::Fault;

use super::*;
use crate::Cause;

#[tokio::test(start_paused = true)]
async fn a_lock_is_renewed_about_every_third_of_its_ttl() {
    let mut setup = setup();
    setup.hold("r").await;
    sleep(TTL * 10).await;
    assert!(!setup.is_free("r").await);
    let renewals = setup.script.renewals.load(Ordering::SeqCst);
    assert!((30..=38).contains(&renewals), "{renewals}");
    assert!(setup.notices.try_recv().is_err());
}

/// A renewal never makes a grant again.
/// Trap: sidecar 13
#[tokio::test(start_paused = true)]
async fn what_expired_is_not_renewed_into_being() {
    let mut setup = setup();
    setup.hold("r").await;
    setup.script.on_every_renewal(Some(Fault::Unreachable));
    let lost = setup.notices.recv().await.unwrap();
    assert_eq!(lost.cause, Cause::Unreachable);
    sleep(TTL).await;
    assert!(setup.is_free("r").await, "B locks it, and unlocks it by going away");
    setup.script.on_every_renewal(None);
    let renewed = setup.renew("r", lost.lock_id.clone(), None).await;
    assert!(matches!(renewed, Err(HeldError::Lost(Cause::Unreachable))));
    sleep(TTL).await;
    assert!(setup.is_free("r").await);
}

/// One passing error does not end the renewal.
/// Trap: sidecar 14
#[tokio::test(start_paused = true)]
async fn one_failed_renewal_is_tried_again() {
    for fault in [Fault::Unreachable, Fault::ReplyLost, Fault::Silent] {
        let mut setup = setup();
        setup.script.on_renewal(fault);
        setup.hold("r").await;
        sleep(TTL * 2).await;
        assert!(!setup.is_free("r").await, "{fault:?}");
        assert!(setup.notices.try_recv().is_err(), "{fault:?}");
    }
}

/// Each attempt was given up after a quarter of the TTL, just before its answer came.
/// Trap: sidecar 14
#[tokio::test(start_paused = true)]
async fn an_answer_counts_though_another_attempt_was_sent_since() {
    let mut setup = setup();
    let granted = setup.acquire("r", Duration::from_secs(10)).await;
    setup.keep(setup.holding("r", &granted));
    setup.script.on_every_renewal(Some(Fault::ReplyDelayed(Duration::from_millis(2_700))));
    sleep(Duration::from_secs(60)).await;
    assert!(setup.notices.try_recv().is_err());
    assert_eq!(setup.engine.held(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_under_way_towards_a_store_has_a_limit() {
    let limits = EngineOptions { renewals_in_flight_max: 8, ..EngineOptions::default() };
    let mut setup = setup_with(limits);
    setup.script.on_every_renewal(Some(Fault::Delayed(Duration::from_millis(10))));
    for lock in 0..1000 {
        setup.hold(&format!("r{lock}")).await;
    }
    sleep(TTL * 3).await;
    assert_eq!(setup.engine.held(), 1000);
    assert!(setup.notices.try_recv().is_err());
    assert_eq!(setup.script.in_flight_max.load(Ordering::SeqCst), 8);
}

#[tokio::test(start_paused = true)]
async fn a_silent_store_holds_up_no_other() {
    let limits = EngineOptions { renewals_in_flight_max: 4, ..EngineOptions::default() };
    let setup = setup_with(limits);
    let (other, other_script) = scripted("other");
    other_script.on_every_renewal(Some(Fault::Silent));
    for lock in 0..100 {
        let resource = format!("r{lock}");
        let granted = other
            .store()
            .try_lock(AcquireRequest::new(resource.parse().unwrap()))
            .await
            .unwrap();
        granted.receipt.accept();
        let mut holding = setup.holding(&resource, &granted);
        holding.resource.lock_store = Arc::clone(&other);
        setup.keep(holding);
    }
    setup.hold("mine").await;
    sleep(TTL * 4).await;
    assert_eq!(setup.engine.held(), 1);
    assert!(!setup.is_free("mine").await);
}

/// One silent master of a Cluster once took the places of all.
#[tokio::test(start_paused = true)]
async fn a_silent_server_holds_up_no_other_of_its_store() {
    let limits = EngineOptions { renewals_in_flight_max: 4, ..EngineOptions::default() };
    let setup = setup_with(limits);
    setup.script.on_another_server("mine");
    setup.script.on_every_renewal(Some(Fault::Silent));
    for lock in 0..100 {
        setup.hold(&format!("r{lock}")).await;
    }
    setup.hold("mine").await;
    sleep(TTL * 4).await;
    assert_eq!(setup.engine.held(), 1);
    assert!(!setup.is_free("mine").await);
}

#[tokio::test(start_paused = true)]
async fn an_unhealthy_app_renews_nothing_and_a_healthy_one_what_is_still_held() {
    let mut setup = setup();
    setup.hold("a").await;
    setup.healthy.send(false).unwrap();
    sleep(TTL / 2).await;
    setup.hold("b").await;
    assert_eq!(setup.script.renewals.load(Ordering::SeqCst), 0);
    let lost = setup.notices.recv().await.unwrap();
    assert_eq!((lost.app_resource.as_str(), lost.cause), ("a", Cause::Unhealthy));
    setup.healthy.send(true).unwrap();
    sleep(TTL * 2).await;
    assert!(setup.is_free("a").await && !setup.is_free("b").await);
    assert_eq!(setup.engine.held(), 1);
}

/// However often the health changes between two reads of it.
#[tokio::test(start_paused = true)]
async fn a_short_recovery_is_not_missed() {
    let mut setup = setup();
    setup.hold("r").await;
    for _ in 0..20 {
        setup.healthy.send(false).unwrap();
        sleep(TTL / 3).await;
        setup.healthy.send(true).unwrap();
        setup.hold(&format!("{:?}", Instant::now())).await;
        settle().await;
    }
    assert!(setup.notices.try_recv().is_err());
    assert_eq!(setup.engine.held(), 21);
}

#[tokio::test(start_paused = true)]
async fn an_app_that_was_never_healthy_renews_nothing() {
    let (healthy, health) = watch::channel(false);
    let (sender, mut notices) = mpsc::channel(10);
    let mut setup = setup();
    setup.engine = Engine::start(EngineOptions::default(), health, sender);
    setup.hold("r").await;
    assert_eq!(notices.recv().await.unwrap().cause, Cause::Unhealthy);
    drop(healthy);
}

#[tokio::test(start_paused = true)]
async fn the_app_may_change_the_ttl() {
    let setup = setup();
    let granted = setup.hold("r").await;
    let renewed = setup.renew("r", granted.lock_id.clone(), Some(TTL * 2)).await.unwrap();
    assert_eq!(renewed.ttl, TTL * 2);
    let before = setup.script.renewals.load(Ordering::SeqCst);
    sleep(TTL * 20).await;
    let renewals = setup.script.renewals.load(Ordering::SeqCst) - before;
    assert!((30..=38).contains(&renewals), "every third of the new one: {renewals}");
    assert!(!setup.is_free("r").await);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_by_the_app_takes_the_place_of_one_that_hangs() {
    let setup = setup();
    let granted = setup.hold("r").await;
    setup.script.on_renewal(Fault::Silent);
    sleep(TTL / 3 + Duration::from_secs(1)).await;
    let begun = Instant::now();
    setup.renew("r", granted.lock_id.clone(), None).await.unwrap();
    assert_eq!(ms(begun), 0);
    sleep(TTL * 2).await;
    assert!(!setup.is_free("r").await);
}

/// Who ends a command at its deadline looks at the deadline, and not at the lock.
#[tokio::test(start_paused = true)]
async fn each_renewal_sends_the_new_deadline() {
    let setup = setup();
    let granted = setup.acquire("r", TTL).await;
    let (deadlines, mut sent) = watch::channel(granted.since);
    setup.keep(Holding { deadlines: Some(deadlines), ..setup.holding("r", &granted) });
    let first = *sent.borrow_and_update();
    assert_eq!(first, safe_deadline(granted.since, TTL));
    sent.wait_for(|deadline| *deadline > first).await.unwrap();
    assert!(granted.since.elapsed() < TTL / 2);
}

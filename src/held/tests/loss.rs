//! A lost lock is reported at its safe deadline at the latest, with its cause.

use leasehold_lock::{RenewRequest, safe_deadline};

use leasehold_testing::scripted::Fault;

use super::*;
use crate::Cause;

const SHORT: Duration = Duration::from_secs(1);

/// The holder is notified no later than the safe deadline, whatever the failure.
/// Trap: sidecar 16
#[tokio::test(start_paused = true)]
async fn a_holder_that_is_cut_off_is_notified_at_its_safe_deadline() {
    for fault in [Fault::Unreachable, Fault::Silent] {
        let mut setup = setup();
        setup.script.on_every_renewal(Some(fault));
        let granted = setup.hold("r").await;
        let lost = setup.notices.recv().await.unwrap();
        assert_eq!(lost.cause, Cause::Unreachable);
        assert_eq!(lost.lock_id, granted.lock_id);
        let late = Instant::now().saturating_duration_since(safe_deadline(granted.since, TTL));
        assert!(late <= Duration::from_millis(1), "{fault:?}: {late:?} late");
        assert!(!setup.is_free("r").await, "the backend still has it");
    }
}

/// The deadline counts from the sending, not from the reply.
/// Trap: sidecar 15
#[tokio::test(start_paused = true)]
async fn a_late_reply_moves_no_deadline() {
    let mut setup = setup();
    setup.script.on_renewal(Fault::ReplyDelayed(Duration::from_millis(500)));
    setup.hold("r").await;
    while setup.script.renewals.load(std::sync::atomic::Ordering::SeqCst) == 0 {
        settle().await;
    }
    let sent_by = Instant::now();
    setup.script.on_every_renewal(Some(Fault::Unreachable));
    setup.notices.recv().await.unwrap();
    assert!(Instant::now() <= safe_deadline(sent_by, TTL) + Duration::from_millis(1));
    assert!(!setup.is_free("r").await, "reported before the backend expires it");
}

#[tokio::test(start_paused = true)]
async fn what_is_gone_before_its_safe_deadline_was_forced() {
    let mut setup = setup();
    setup.hold("r").await;
    let force = leasehold_lock::UnlockRequest::force("r".parse().unwrap());
    setup.store.store().unlock(force).await.unwrap();
    let begun = Instant::now();
    let lost = setup.notices.recv().await.unwrap();
    assert_eq!(lost.cause, Cause::Forced);
    assert!(begun.elapsed() <= TTL / 3, "at the next renewal");
}

#[tokio::test(start_paused = true)]
async fn a_force_through_this_process_is_reported_at_once() {
    let mut setup = setup();
    setup.hold("r").await;
    setup.force("r").await.unwrap();
    assert_eq!(setup.notices.try_recv().unwrap().cause, Cause::Forced);
    assert!(setup.is_free("r").await);
}

#[tokio::test(start_paused = true)]
async fn a_lock_held_for_as_long_as_allowed_is_released_and_reported() {
    let mut setup = setup();
    let granted = setup.acquire("r", TTL).await;
    let max_hold = MaxHold::Asked(TTL * 3);
    setup.keep(Holding { max_hold, ..setup.holding("r", &granted) });
    let lost = setup.notices.recv().await.unwrap();
    assert_eq!(lost.cause, Cause::MaxHold);
    assert_eq!(granted.since.elapsed(), TTL * 3);
    settle().await;
    assert!(setup.is_free("r").await);
}

#[tokio::test(start_paused = true)]
async fn without_renewal_a_lock_expires_at_its_safe_deadline() {
    let mut setup = setup();
    let granted = setup.acquire("r", TTL).await;
    setup.keep(Holding { renewed: false, ..setup.holding("r", &granted) });
    assert_eq!(setup.notices.recv().await.unwrap().cause, Cause::Expired);
    assert_eq!(Instant::now(), safe_deadline(granted.since, TTL));
}

#[tokio::test(start_paused = true)]
async fn a_newer_grant_of_the_resource_means_that_the_older_is_lost() {
    let mut setup = setup();
    let older = setup.acquire("r", Duration::from_secs(1)).await;
    sleep(Duration::from_secs(2)).await;
    let newer = setup.hold("r").await;
    setup.keep(setup.holding("r", &older));
    let lost = setup.notices.recv().await.unwrap();
    assert_eq!((lost.lock_id, lost.cause), (older.lock_id, Cause::Forced));
    assert_eq!(setup.engine.held(), 1);
    sleep(TTL * 2).await;
    setup.unlock("r", newer.lock_id).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_notified_and_the_app_is_not_called_too() {
    let mut setup = setup();
    let (_guard, end) = setup.stream("r").await;
    setup.script.on_every_renewal(Some(Fault::Unreachable));
    assert_eq!(end.await.unwrap(), HoldEnd::Lost(Cause::Unreachable));
    assert!(setup.notices.try_recv().is_err());
}

/// Trap: sidecar 16
#[tokio::test(start_paused = true)]
async fn a_thousand_lost_at_once_are_reported_while_the_others_are_renewed() {
    let mut setup = setup();
    let (cut_off, script) = scripted("cut off");
    for lock in 0..1000 {
        let resource = format!("r{lock}");
        setup.hold(&resource).await;
        let request =
            AcquireRequest { ttl: Some(TTL), ..AcquireRequest::new(resource.parse().unwrap()) };
        let granted = cut_off.store().try_lock(request).await.unwrap();
        granted.receipt.accept();
        let mut holding = setup.holding(&resource, &granted);
        holding.resource.lock_store = Arc::clone(&cut_off);
        setup.keep(holding);
    }
    let deadline = safe_deadline(Instant::now(), TTL);
    script.on_every_renewal(Some(Fault::Silent));
    for _ in 0..1000 {
        assert_eq!(&**setup.notices.recv().await.unwrap().lock_store.name(), "cut off");
    }
    assert!(Instant::now() <= deadline + Duration::from_millis(1));
    assert_eq!(setup.engine.held(), 1000);
    sleep(TTL * 2).await;
    assert_eq!(setup.engine.held(), 1000);
}

/// A force through this process is reported at once, even if its caller does not wait.
#[tokio::test(start_paused = true)]
async fn a_force_without_its_caller_is_reported_at_once() {
    let mut setup = setup();
    setup.hold("r").await;
    setup.script.on_unlock(Fault::Delayed(Duration::from_secs(1)));
    {
        let force = setup.force("r");
        assert!(tokio::time::timeout(Duration::from_millis(10), force).await.is_err());
    }
    sleep(Duration::from_secs(2)).await;
    assert_eq!(setup.notices.try_recv().unwrap().cause, Cause::Forced);
    assert_eq!(setup.engine.held(), 0);
}

/// The grant may end as early as the renewal asked for.
#[tokio::test(start_paused = true)]
async fn a_shorter_ttl_that_may_have_been_granted_is_believed_in_no_longer() {
    let mut setup = setup();
    let granted = setup.acquire("r", TTL).await;
    setup.keep(Holding { renewed: false, ..setup.holding("r", &granted) });
    setup.script.on_renewal(Fault::ReplyLost);
    let sent = Instant::now();
    let id = granted.lock_id.clone();
    let unknown = setup.renew("r", id, Some(SHORT)).await;
    assert!(matches!(unknown, Err(HeldError::Lock(LockError::OutcomeUnknown(_)))));
    assert_eq!(setup.notices.recv().await.unwrap().cause, Cause::Expired);
    assert!(Instant::now() <= safe_deadline(sent, SHORT) + Duration::from_millis(1));
    assert!(!setup.is_free("r").await, "reported before the backend expires it");
}

#[tokio::test(start_paused = true)]
async fn a_lock_whose_shorter_ttl_is_unknown_is_renewed_in_time() {
    let mut setup = setup();
    let granted = setup.hold("r").await;
    setup.script.on_renewal(Fault::ReplyLost);
    let short = Some(Duration::from_millis(200));
    let renewed = setup.renew("r", granted.lock_id, short);
    assert!(renewed.await.is_err());
    sleep(TTL).await;
    assert!(setup.notices.try_recv().is_err());
    assert!(!setup.is_free("r").await);
}

/// The belief was shortened when the renewal was answered, not when it
/// was sent.
/// Trap: sidecar 50
#[tokio::test(start_paused = true)]
async fn a_renewal_to_a_shorter_ttl_shortens_the_belief_when_it_is_sent() {
    for renewed in [false, true] {
        let mut setup = setup();
        let granted = setup.acquire("r", TTL).await;
        setup.keep(Holding { renewed, ..setup.holding("r", &granted) });
        setup.script.on_renewal(Fault::ReplyDelayed(Duration::from_secs(4)));
        let sent = Instant::now();
        let id = granted.lock_id.clone();
        let (engine, target) = (setup.engine.clone(), setup.resource("r"));
        tokio::spawn(
            async move { engine.renew(&target, id, Some(SHORT), Change::Nothing).await },
        );
        setup.notices.recv().await.unwrap();
        assert!(Instant::now() <= safe_deadline(sent, SHORT) + Duration::from_millis(1));
        assert!(!setup.is_free("r").await, "reported before the backend expires it");
    }
}

/// Trap: sidecar 50
#[tokio::test(start_paused = true)]
async fn a_renewal_that_another_superseded_has_shortened_the_belief() {
    let mut setup = setup();
    let granted = setup.acquire("r", TTL).await;
    setup.keep(Holding { renewed: false, ..setup.holding("r", &granted) });
    setup.script.on_renewal(Fault::ReplyDelayed(Duration::from_secs(4)));
    setup.script.on_renewal(Fault::Unreachable);
    let sent = Instant::now();
    let (engine, target) = (setup.engine.clone(), setup.resource("r"));
    let id = granted.lock_id.clone();
    let first =
        tokio::spawn(
            async move { engine.renew(&target, id, Some(SHORT), Change::Nothing).await },
        );
    settle().await;
    let id = granted.lock_id.clone();
    assert!(setup.renew("r", id, Some(TTL)).await.is_err());
    assert!(first.await.unwrap().is_err());
    setup.notices.recv().await.unwrap();
    assert!(Instant::now() <= safe_deadline(sent, SHORT) + Duration::from_millis(1));
    assert!(!setup.is_free("r").await, "reported before the backend expires it");
}

/// It once replaced the renewal under way, which then had an unknown outcome: the lock was
/// reported as lost though the store had it.
#[tokio::test(start_paused = true)]
async fn a_renewal_with_too_long_a_ttl_leaves_the_one_under_way_alone() {
    let setup = setup();
    let granted = setup.acquire("r", SHORT).await;
    setup.keep(Holding { renewed: false, ..setup.holding("r", &granted) });
    setup.script.on_renewal(Fault::ReplyDelayed(Duration::from_millis(100)));
    let (engine, target) = (setup.engine.clone(), setup.resource("r"));
    let id = granted.lock_id.clone();
    let first =
        tokio::spawn(
            async move { engine.renew(&target, id, Some(TTL), Change::Nothing).await },
        );
    settle().await;
    let id = granted.lock_id.clone();
    let refused = setup.renew("r", id, Some(Duration::MAX)).await;
    assert!(
        matches!(refused, Err(HeldError::Lock(LockError::InvalidRequest(_)))),
        "{refused:?}"
    );
    assert!(first.await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_shorter_ttl_that_was_not_granted_leaves_the_belief_as_it_was() {
    let mut setup = setup();
    let granted = setup.acquire("r", TTL).await;
    setup.keep(Holding { renewed: false, ..setup.holding("r", &granted) });
    setup.script.on_renewal(Fault::Unreachable);
    let id = granted.lock_id.clone();
    let refused = setup.renew("r", id, Some(SHORT)).await;
    assert!(matches!(refused, Err(HeldError::Lock(LockError::StoreUnavailable(_)))));
    setup.notices.recv().await.unwrap();
    assert_eq!(Instant::now(), safe_deadline(granted.since, TTL));
}

/// The sidecar that had granted it answered that it was lost.
#[tokio::test(start_paused = true)]
async fn a_lock_that_another_process_renews_can_be_renewed_where_it_was_lost() {
    let setup = setup();
    let granted = setup.acquire("r", TTL).await;
    setup.keep(Holding { renewed: false, ..setup.holding("r", &granted) });
    for _ in 0..4 {
        sleep(TTL / 2).await;
        let resource = "r".parse().unwrap();
        let request = RenewRequest { resource, lock_id: granted.lock_id.clone(), ttl: None };
        setup.store.store().renew(request).await.unwrap();
    }
    assert_eq!(setup.engine.held(), 0);
    setup.renew("r", granted.lock_id.clone(), None).await.unwrap();
    sleep(TTL).await;
    let renewed = setup.renew("r", granted.lock_id, None).await;
    assert!(matches!(renewed, Err(HeldError::Lock(LockError::NotFound { .. }))), "{renewed:?}");
}

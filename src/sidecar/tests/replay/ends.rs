//! What ends with a lock while replays of its request are under way, and what does not.

use super::*;

/// A repetition through this sidecar claims the lock even if its answer is lost.
/// Trap: sidecar 22
#[tokio::test(start_paused = true)]
async fn the_end_of_a_stream_releases_what_was_claimed_again_through_this_sidecar() {
    for case in ["not written", "unknown", "cancelled", "cancelled later", "out of order"] {
        let setup = setup();
        let api = Api::of(&setup);
        let acquire = || async { api.locks.acquire(Api::call()).await.unwrap() };
        let mut stream = acquire().await.hold_for_stream().unwrap();
        match case {
            "not written" => drop(api.lock(false).await.unwrap()),
            "unknown" => {
                api.script.on_try(Fault::ReplyLost);
                api.lock(true).await.unwrap_err();
            }
            "out of order" => {
                let first = acquire().await;
                acquire().await.deliver().accept();
                stream = first.hold_for_stream().unwrap();
            }
            _ => {
                api.script.on_try(Fault::ReplyDelayed(Duration::from_secs(4)));
                let again = api.send_again(TTL);
                settle().await;
                if case == "cancelled later" {
                    stream.0 = None;
                    settle().await;
                }
                again.abort();
            }
        }
        settle().await;
        drop(stream);
        settle().await;
        assert!(api.is_free().await, "{case}");
        assert_eq!((setup.engine.held(), setup.engine.releasing()), (0, 0), "{case}");
    }
}

/// The repetition that claimed the grant last released it, and the other was answered all the
/// same.
#[tokio::test(start_paused = true)]
async fn a_replay_that_nobody_received_does_not_end_what_another_is_about_to_be_answered() {
    for both_leave in [false, true] {
        let setup = setup();
        let api = Api::of(&setup);
        let acquire = || async { api.locks.acquire(Api::call()).await.unwrap() };
        let stream = acquire().await.hold_for_stream().unwrap();
        let (first, last) = (acquire().await, acquire().await);
        drop(stream);
        settle().await;
        drop(last);
        settle().await;
        if both_leave {
            drop(first);
            settle().await;
            assert!(api.is_free().await, "nobody holds it");
        } else {
            first.deliver().accept();
            settle().await;
            assert!(!api.is_free().await, "it was answered");
            sleep(TTL * 3).await;
            assert!(!api.is_free().await, "it is renewed");
        }
    }
}

/// The one that left had claimed the grant last, so the end of the hold released it.
/// Trap: sidecar 22
#[tokio::test(start_paused = true)]
async fn the_end_of_a_lock_does_not_release_what_a_replay_is_about_to_be_answered() {
    for end in ["stream", "max_hold", "report", "report of a loss"] {
        for answered in [true, false] {
            let setup = setup();
            let api = Api::of(&setup);
            let acquire = async |max_hold| {
                let call = LockCall { max_hold, ..Api::call() };
                api.locks.acquire(call).await.unwrap()
            };
            let first = acquire(Some(TTL * 2)).await;
            let lock_id = first.granted.lock_id.clone();
            let mut stream = first.hold_for_stream().unwrap();
            if end == "max_hold" {
                sleep(TTL * 2 - Duration::from_secs(1)).await;
            }
            let (replay, left) = (acquire(None).await, acquire(None).await);
            drop(left);
            let resource = api.locks.resource("s", &"r".parse().unwrap()).unwrap();
            match end {
                "stream" => stream.0 = None,
                "max_hold" => sleep(Duration::from_secs(1)).await,
                "report" => assert!(setup.engine.give_up(&resource, &lock_id)),
                _ => {
                    api.script.on_every_renewal(Some(Fault::Unreachable));
                    sleep(safe_deadline(lock::Instant::now(), TTL) - lock::Instant::now())
                        .await;
                    assert!(setup.engine.give_up(&resource, &lock_id));
                    api.script.on_every_renewal(None);
                }
            }
            settle().await;
            assert!(!api.is_free().await, "{end}: a replay is under way");
            if !answered {
                drop(replay);
                settle().await;
                // Another process may still renew a lock that was lost here.
                assert_eq!(api.is_free().await, end != "report of a loss", "{end}");
                assert_eq!((setup.engine.held(), setup.engine.releasing()), (0, 0), "{end}");
            } else if end != "report of a loss" {
                replay.deliver().accept();
                sleep(TTL * 3).await;
                assert!(!api.is_free().await, "{end}: it was answered");
                setup.engine.unlock(&resource, lock_id).await.unwrap();
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_nobody_has_while_a_replay_is_under_way_is_not_renewed() {
    let mut setup = setup();
    let api = Api::of(&setup);
    let first = api.locks.acquire(Api::call()).await.unwrap();
    let lock_id = first.granted.lock_id.clone();
    let stream = first.hold_for_stream().unwrap();
    let replay = api.locks.acquire(Api::call()).await.unwrap();
    drop(stream);
    let resource = api.locks.resource("s", &"r".parse().unwrap()).unwrap();
    assert_eq!(setup.engine.known(&resource, &lock_id), Known::Unlocking);
    let renewed = setup.engine.renew(&resource, lock_id, None, Change::Nothing).await;
    assert!(matches!(renewed, Err(HeldError::Lock(LockError::NotFound { .. }))), "{renewed:?}");
    sleep(TTL * 2).await;
    assert_eq!(api.script.renewals.load(Ordering::SeqCst), 0);
    assert_eq!(setup.engine.held(), 0);
    assert!(setup.notices.try_recv().is_err(), "nobody has lost it");
    replay.deliver().accept();
    assert_eq!(setup.engine.held(), 0, "its answer is too late");
}

/// The first to ask made the grant, and another one found it and left.
/// Trap: sidecar 22
#[tokio::test(start_paused = true)]
async fn the_end_of_a_stream_releases_what_was_claimed_before_the_stream_began() {
    let setup = setup();
    let api = Api::of(&setup);
    let first = api.locks.acquire(Api::call()).await.unwrap();
    drop(api.locks.acquire(Api::call()).await.unwrap());
    drop(first.hold_for_stream().unwrap());
    settle().await;
    assert!(api.is_free().await);
}

/// A store behind another process can name no claim, so any release would end the lock.
#[tokio::test(start_paused = true)]
async fn nothing_is_released_while_a_replay_is_under_way() {
    let setup = setup();
    let api = Api::of(&setup);
    let acquire = || async { api.locks.acquire(Api::call()).await.unwrap() };
    let first = acquire().await;
    let lock_id = first.granted.lock_id.clone();
    let stream = first.hold_for_stream().unwrap();
    let replay = acquire().await;
    // The first release that is sent is carried out late.
    api.script.on_unlock(Fault::Delayed(Duration::from_secs(1)));
    drop(stream);
    settle().await;
    replay.deliver().accept();
    settle().await;
    let resource = api.locks.resource("s", &"r".parse().unwrap()).unwrap();
    let unlocking = lock::Instant::now();
    setup.engine.unlock(&resource, lock_id).await.unwrap();
    assert_eq!(ms(unlocking), 1000, "the unlock was sent first");
}

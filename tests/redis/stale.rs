//! Holders that come late, deadlines that come in between, clocks that jump.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

const SHORT: Duration = Duration::from_millis(200);

/// A's grant has expired, and B holds the resource.
async fn taken_over(server: &RedisServer, store: &Store) -> (Granted, Granted) {
    let late = take(store, "r", SHORT).await;
    let mut connection = server.connect();
    until("expired", || ask::<i64>(&mut connection, &["EXISTS", "r"]) == 0).await;
    (late, take(store, "r", MINUTE).await)
}

/// Trap 13: a renewal neither passes for the next holder's nor brings back what
/// has expired.
#[tokio::test]
async fn a_late_renewal_finds_nothing_whoever_came_and_went() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let (late, next) = taken_over(&server, &store).await;
    let mut connection = server.connect();
    let renewed = store.renew(renewal(&late, "r", SECOND)).await;
    assert_eq!(renewed, Err(LockError::NotFound { held: true }));
    let left_ms: u64 = ask(&mut connection, &["PTTL", "r"]);
    assert!(left_ms > 50_000, "the next holder has {left_ms} ms left");
    store.unlock(unlock(&next, "r")).await.unwrap();
    let renewed = store.renew(renewal(&late, "r", MINUTE)).await;
    assert_eq!(renewed, Err(LockError::NotFound { held: false }));
    assert_eq!(ask::<i64>(&mut connection, &["EXISTS", "r", "\x01hr"]), 0);
}

/// Trap 22: a late unlock leaves the next holder's grant alone.
#[tokio::test]
async fn a_late_unlock_spares_the_next_holder() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let (late, next) = taken_over(&server, &store).await;
    let unlocked = store.unlock(unlock(&late, "r")).await;
    assert_eq!(unlocked, Err(LockError::NotFound { held: true }));
    store.unlock(unlock(&next, "r")).await.unwrap();
}

/// Trap 27: a token stays for its grant's life.
#[tokio::test]
async fn a_hundred_renewals_leave_the_token_as_it_was() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let asked = AcquireRequest { request_id: "once".into(), ..request("r", MINUTE) };
    let granted = store.try_lock(asked.clone()).await.unwrap();
    granted.receipt.accept();
    for n in 0..100 {
        store.renew(renewal(&granted, "r", MINUTE + SECOND * n)).await.unwrap();
    }
    assert_eq!(store.try_lock(asked).await.unwrap().token, granted.token);
}

/// Trap 9: an error means that nothing is held, and a grant is one, wherever
/// the deadline meets the hand-over. Ten thousand rounds of this are run on the
/// domain in paused time; here a server answers, so there are fewer.
#[tokio::test]
async fn a_deadline_that_races_the_hand_over_never_loses_it() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    let (mut granted, mut refused) = (0, 0);
    for round in 0..400_u32 {
        let held = take(&store, "r", MINUTE).await;
        let mut asked = request("r", MINUTE);
        // It is given up a tenth earlier: at 9 ms, while the release is sent
        // between 7 and 11 ms.
        asked.deadline = Some(tokio::time::Instant::now() + Duration::from_millis(10));
        let waiter = store.clone();
        let wait = tokio::spawn(async move { waiter.lock(asked).await });
        tokio::time::sleep(Duration::from_micros(u64::from(7_000 + round * 10))).await;
        store.unlock(unlock(&held, "r")).await.unwrap();
        match wait.await.unwrap() {
            Ok(next) => {
                granted += 1;
                next.receipt.accept();
                store.unlock(unlock(&next, "r")).await.unwrap();
            }
            Err(LockError::WaitDeadline) => refused += 1,
            // Said so, and settled afterwards.
            Err(LockError::OutcomeUnknown(_)) => {
                until("settled", || ask::<i64>(&mut connection, &["EXISTS", "r"]) == 0).await;
            }
            Err(error) => panic!("{error:?}"),
        }
        let left: i64 = ask(&mut connection, &["EXISTS", "r", "\x01hr", "\x01qr"]);
        assert_eq!(left, 0, "round {round}");
    }
    assert!(granted > 0 && refused > 0, "no race: {granted} granted, {refused} refused");
}

/// Trap 19: leasehold's own clock decides nothing, wherever it is set.
#[tokio::test]
async fn a_stepped_clock_changes_no_expiry_and_no_order_of_tokens() {
    const HOUR_US: u64 = 3_600_000_000;
    let server = RedisServer::start();
    let now_us = Arc::new(AtomicU64::new(HOUR_US * 500_000));
    let clock = {
        let now_us = Arc::clone(&now_us);
        Clock::from_fn(move || now_us.load(Ordering::Relaxed))
    };
    let items = [("redisHost".to_owned(), server.address())];
    let store = Kind::named("redis").unwrap().open(items, clock).await.unwrap();
    let mut last = None;
    for step_us in [HOUR_US * 500_001, HOUR_US * 499_999, 0] {
        let granted = take(&store, "r", SECOND).await;
        assert!(granted.token > last);
        last = granted.token;
        now_us.store(step_us, Ordering::Relaxed);
        let renewed = store.renew(renewal(&granted, "r", SECOND)).await.unwrap();
        let next = soon(wait(&store, "r", SECOND)).await.unwrap().unwrap();
        assert!(next.since >= renewed.since + SECOND, "it ended before its TTL");
        assert!(next.since <= renewed.since + SECOND * 3, "it outlived its TTL");
        last = last.max(next.token);
        store.unlock(unlock(&next, "r")).await.unwrap();
    }
}

//! Holders that come late, deadlines that come in between, clocks that jump.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

/// How much sooner or later the next release comes.
const STEP: Duration = Duration::from_micros(100);

/// A's grant has expired, and B holds the resource.
async fn taken_over(server: &RedisServer, store: &Store) -> (Granted, Granted) {
    let late = take(store, "r", MINUTE).await;
    let mut connection = server.connect();
    end_in(&mut connection, 1);
    until("expired", || ask::<i64>(&mut connection, &["EXISTS", "r"]) == 0).await;
    (late, take(store, "r", MINUTE).await)
}

/// How many keys the resource has.
fn left(connection: &mut redis::Connection) -> i64 {
    ask(connection, &["EXISTS", "r", "\x01h{2Rk}r", "\x01q{2Rk}r"])
}

/// A renewal neither passes for the next holder's nor brings back what
/// has expired.
/// Trap: redis 13
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
    assert_eq!(left(&mut connection), 0);
}

/// A late unlock leaves the next holder's grant alone.
/// Trap: redis 22
#[tokio::test]
async fn a_late_unlock_spares_the_next_holder() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let (late, next) = taken_over(&server, &store).await;
    let unlocked = store.unlock(unlock(&late, "r")).await;
    assert_eq!(unlocked, Err(LockError::NotFound { held: true }));
    store.unlock(unlock(&next, "r")).await.unwrap();
}

/// An error means that nothing is held, and a grant is one, wherever
/// the deadline meets the hand-over. Ten thousand rounds of this are run on the
/// domain in paused time; here a server answers, so there are fewer.
/// Trap: redis 9
#[tokio::test]
async fn a_deadline_that_races_the_hand_over_never_loses_it() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    let (mut granted, mut refused) = (0, 0);
    let mut release_after = SECOND / 100;
    for round in 0..400 {
        let held = take(&store, "r", MINUTE).await;
        let mut asked = request("r", MINUTE);
        let started = Instant::now();
        asked.deadline = Some(tokio::time::Instant::now() + SECOND / 100);
        let waiter = store.clone();
        let wait = tokio::spawn(async move { waiter.lock(asked).await });
        while started.elapsed() < release_after {
            tokio::task::yield_now().await;
        }
        store.unlock(unlock(&held, "r")).await.unwrap();
        match wait.await.unwrap() {
            // Later or sooner next time: so it stays close to the race.
            Ok(next) => {
                granted += 1;
                release_after += STEP;
                next.receipt.accept();
                store.unlock(unlock(&next, "r")).await.unwrap();
            }
            Err(error @ (LockError::WaitDeadline | LockError::OutcomeUnknown(_))) => {
                refused += 1;
                release_after = release_after.saturating_sub(STEP);
                // What is not known is said so, and settled afterwards.
                if error != LockError::WaitDeadline {
                    until("settled", || left(&mut connection) == 0).await;
                }
            }
            Err(error) => panic!("{error:?}"),
        }
        assert_eq!(left(&mut connection), 0, "round {round}");
    }
    assert!(granted > 0 && refused > 0, "no race: {granted} granted, {refused} refused");
}

/// The wall clock of the process decides nothing, wherever it is set.
/// Trap: redis 19
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
    let store = leasehold_redis::KIND.open(items, clock, None).await.unwrap();
    let mut last = None;
    for step_us in [HOUR_US * 500_001, HOUR_US * 499_999, 0] {
        let granted = take(&store, "r", SECOND * 2).await;
        assert!(granted.token > last);
        last = granted.token;
        now_us.store(step_us, Ordering::Relaxed);
        let renewed = store.renew(renewal(&granted, "r", SECOND * 2)).await.unwrap();
        let next = soon(wait(&store, "r", MINUTE)).await.unwrap().unwrap();
        assert!(next.since >= renewed.since + SECOND * 2, "it ended before its TTL");
        last = last.max(next.token);
        store.unlock(unlock(&next, "r")).await.unwrap();
    }
}

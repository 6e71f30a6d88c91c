//! Waiting: order, hand-over, the dead, the foreign, the cancelled.

use super::{grants::commands, *};

#[tokio::test]
async fn a_contended_grant_costs_few_commands() {
    let server = RedisServer::start();
    let store = open(&server).await;
    // The first to wait costs two more than those who find others waiting.
    for (resource, callers, most) in [("two", 2, 13), ("many", 50, 11)] {
        let mut connection = server.connect();
        let () = ask(&mut connection, &["CONFIG", "RESETSTAT"]);
        let tasks: Vec<_> = (0..callers)
            .map(|_| {
                let store = store.clone();
                tokio::spawn(async move {
                    for _ in 0..(600 / callers) {
                        let granted = store.lock(request(resource, MINUTE)).await.unwrap();
                        granted.receipt.accept();
                        tokio::task::yield_now().await;
                        store.unlock(unlock(&granted, resource)).await.unwrap();
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        let spent = commands(&mut connection);
        println!("{spent} commands for 600 grants of {callers} callers");
        // On a slow machine a few looks, of nine commands each, come in between.
        let looks = 100;
        assert!(
            spent <= 600 * most + looks,
            "{spent} commands for 600 grants of {callers} callers"
        );
    }
}

#[tokio::test]
async fn a_hand_over_is_sent_to_one_process_only() {
    const HAND_OVERS: usize = 20;
    let server = RedisServer::start();
    let stores = [open(&server).await, open(&server).await];
    let mut connection = server.connect();
    let mut listener = server.connect();
    let mut listening = listener.as_pubsub();
    listening.psubscribe("\x01n*").unwrap();
    let mut held = take(&stores[0], "r", SECOND * 10).await;
    for _ in 0..HAND_OVERS {
        let behind = [&stores[1], &stores[0]].map(|store| wait(store, "r", SECOND * 10));
        until("queued", || waiting(&mut connection, "r") == 2).await;
        stores[0].unlock(unlock(&held, "r")).await.unwrap();
        // Whoever is second goes away: one hand-over a round.
        held = soon(async {
            let (first, _, others) = futures_util::future::select_all(behind).await;
            others.iter().for_each(tokio::task::JoinHandle::abort);
            first.unwrap().unwrap()
        })
        .await;
        until("left", || waiting(&mut connection, "r") == 0).await;
    }
    listening.set_read_timeout(Some(SECOND / 10)).unwrap();
    let heard = std::iter::from_fn(|| listening.get_message().ok());
    let calls = heard.filter(|message| message.get_payload_bytes().starts_with(b"call:"));
    assert_eq!(calls.count(), HAND_OVERS);
}

#[tokio::test]
async fn idle_waiters_cost_little() {
    let server = RedisServer::start();
    let store = open(&server).await;
    take(&store, "r", MINUTE).await;
    let tasks: Vec<_> = (0..100).map(|_| wait(&store, "r", MINUTE)).collect();
    let mut connection = server.connect();
    until("queued", || waiting(&mut connection, "r") == 100).await;
    let () = ask(&mut connection, &["CONFIG", "RESETSTAT"]);
    tokio::time::sleep(SECOND * 5).await;
    let spent = commands(&mut connection);
    assert!(spent < 50, "{spent} commands in 5 s");
    for task in tasks {
        task.abort();
    }
    until("left", || waiting(&mut connection, "r") == 0).await;
}

/// Trap: redis 6
#[tokio::test]
async fn what_expires_is_handed_over_without_a_notice() {
    let server = RedisServer::start();
    let store = open(&server).await;
    take(&store, "r", MINUTE).await;
    end_in(&mut server.connect(), 500);
    soon(wait(&store, "r", MINUTE)).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_short_grant_after_a_long_one_is_noticed_by_another_process() {
    let server = RedisServer::start();
    let (here, there) = (open(&server).await, open(&server).await);
    let held = take(&here, "r", MINUTE).await;
    let mut connection = server.connect();
    let first = wait(&here, "r", SECOND * 3);
    until("queued", || waiting(&mut connection, "r") == 1).await;
    let second = wait(&there, "r", MINUTE);
    until("queued", || waiting(&mut connection, "r") == 2).await;
    here.unlock(unlock(&held, "r")).await.unwrap();
    soon(first).await.unwrap().unwrap();
    soon(second).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_try_does_not_overtake_waiters() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let held = take(&store, "r", MINUTE).await;
    let first = wait(&store, "r", MINUTE);
    let mut connection = server.connect();
    until("queued", || waiting(&mut connection, "r") == 1).await;
    // Free for a moment, as after an expiry, with a waiter in the queue.
    let () = ask(&mut connection, &["DEL", "r"]);
    let tried = store.try_lock(request("r", MINUTE)).await;
    assert!(matches!(tried, Err(LockError::Locked { .. })), "{tried:?}");
    drop(held);
    soon(first).await.unwrap().unwrap();
}

/// Trap: redis 6, redis 45
#[tokio::test]
async fn waiters_behind_a_foreigner_are_served_when_it_ends() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    let () = ask(&mut connection, &["SET", "r", "owner", "EX", "60"]);
    let first = wait(&store, "r", MINUTE);
    until("queued", || waiting(&mut connection, "r") == 1).await;
    let () = ask(&mut connection, &["DEL", "r"]);
    soon(first).await.unwrap().unwrap();
}

#[tokio::test]
async fn force_hands_over_to_the_first_waiter() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let held = take(&store, "r", MINUTE).await;
    let first = wait(&store, "r", MINUTE);
    let mut connection = server.connect();
    until("queued", || waiting(&mut connection, "r") == 1).await;
    store.unlock(force("r")).await.unwrap();
    let granted = soon(first).await.unwrap().unwrap();
    assert!(granted.token > held.token);
    let left: u64 = ask(&mut connection, &["PTTL", "r"]);
    assert!(left > 50_000, "confirmed to its full TTL, not {left} ms");
}

#[tokio::test]
async fn a_full_queue_refuses_and_keeps_its_length() {
    let server = RedisServer::start();
    let store = open_with(&server, &[("maxWaiters", "2")]).await;
    take(&store, "r", MINUTE).await;
    let tasks = [wait(&store, "r", MINUTE), wait(&store, "r", MINUTE)];
    let mut connection = server.connect();
    until("queued", || waiting(&mut connection, "r") == 2).await;
    let refused = store.lock(request("r", MINUTE)).await;
    assert!(matches!(refused, Err(LockError::TooManyWaiters(_))), "{refused:?}");
    assert_eq!(waiting(&mut connection, "r"), 2);
    for task in tasks {
        task.abort();
    }
}

#[tokio::test]
async fn a_wait_ends_at_its_deadline_and_leaves_the_queue() {
    let server = RedisServer::start();
    let store = open(&server).await;
    take(&store, "r", MINUTE).await;
    let mut asked = request("r", MINUTE);
    asked.deadline = Some(tokio::time::Instant::now() + SECOND / 2);
    let mut connection = server.connect();
    match store.lock(asked).await.unwrap_err() {
        LockError::WaitDeadline => assert_eq!(waiting(&mut connection, "r"), 0),
        // A machine so busy that the 50 ms for it did not suffice.
        LockError::OutcomeUnknown(_) => {
            until("left", || waiting(&mut connection, "r") == 0).await;
        }
        other => panic!("{other:?}"),
    }
}

/// Trap: redis 10
#[tokio::test]
async fn whenever_a_caller_goes_away_the_next_is_served() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    for round in 0..100_u64 {
        let held = take(&store, "r", MINUTE).await;
        let gone = wait_unreceived(&store, Duration::from_micros(round * 40));
        let release = store.unlock(unlock(&held, "r"));
        let (_, released) = tokio::join!(gone, release);
        released.unwrap();
        until("free again", || {
            ask::<i64>(&mut connection, &["EXISTS", "r", "\x01q{2Rk}r", "\x01h{2Rk}r"]) == 0
        })
        .await;
    }
}

/// Waits for a while, then goes away, whatever has come of it.
async fn wait_unreceived(store: &Store, patience: Duration) {
    let _ = tokio::time::timeout(patience, store.lock(request("r", MINUTE))).await;
}

/// Trap: redis 4
#[tokio::test]
async fn waiters_whose_queue_was_deleted_enter_again() {
    let server = RedisServer::start();
    let store = open(&server).await;
    take(&store, "r", MINUTE).await;
    let waiters = [wait(&store, "r", MINUTE), wait(&store, "r", MINUTE)];
    let mut connection = server.connect();
    until("queued", || waiting(&mut connection, "r") == 2).await;
    let () = ask(&mut connection, &["FLUSHALL"]);
    let (first, _, others) = soon(futures_util::future::select_all(waiters)).await;
    store.unlock(unlock(&first.unwrap().unwrap(), "r")).await.unwrap();
    for other in others {
        soon(other).await.unwrap().unwrap();
    }
}

/// Where each look handed over what had expired, none of them kept the queue.
/// Trap: redis 4
#[tokio::test]
async fn a_look_that_hands_over_keeps_the_queue() {
    let server = RedisServer::start();
    let store = open(&server).await;
    take(&store, "r", MINUTE).await;
    let mut connection = server.connect();
    let first = wait(&store, "r", MINUTE);
    until("queued", || waiting(&mut connection, "r") == 1).await;
    let second = wait(&store, "r", MINUTE);
    until("queued", || waiting(&mut connection, "r") == 2).await;
    let end = "redis.call('DEL', 'r') redis.call('PEXPIRE', '\x01q{2Rk}r', 60000)";
    let () = ask(&mut connection, &["EVAL", end, "0"]);
    soon(first).await.unwrap().unwrap();
    let left_ms: i64 = ask(&mut connection, &["PTTL", "\x01q{2Rk}r"]);
    assert!(left_ms > 60_000, "the queue ends in {left_ms} ms");
    drop(second);
}

/// 100,000 queues are looked at in turn, 64 at a time: with a round trip of a
/// second each is looked at every 26 minutes.
/// Trap: redis 4
#[tokio::test]
async fn a_queue_outlives_the_time_between_looks_at_most_resources_of_a_slow_server() {
    let server = RedisServer::start();
    let store = open(&server).await;
    take(&store, "r", MINUTE).await;
    let mut connection = server.connect();
    let live = wait(&store, "r", MINUTE);
    until("queued", || waiting(&mut connection, "r") == 1).await;
    let left_ms: i64 = ask(&mut connection, &["PTTL", "\x01q{2Rk}r"]);
    assert!(left_ms > 100_000 / 64 * 1000 * 2, "the queue ends in {left_ms} ms");
    drop(live);
}

//! Waiting: order, hand-over, the dead, the foreign, the cancelled.

use super::{grants::commands, *};

#[tokio::test]
async fn waiters_are_served_in_the_order_of_arrival_across_processes() {
    let server = RedisServer::start();
    let stores = [open(&server).await, open(&server).await];
    let held = take(&stores[0], "r", MINUTE).await;
    let mut connection = server.connect();
    let served = Shared::default();
    let mut tasks = Vec::new();
    for n in 0..20 {
        let (store, served) = (stores[n % 2].clone(), Arc::clone(&served));
        tasks.push(tokio::spawn(async move {
            let granted = store.lock(request("r", MINUTE)).await.unwrap();
            granted.receipt.accept();
            served.lock().await.push(n);
            store.unlock(unlock(&granted, "r")).await.unwrap();
        }));
        until("queued", || waiting(&mut connection, "r") == n + 1).await;
    }
    stores[1].unlock(unlock(&held, "r")).await.unwrap();
    for task in tasks {
        soon(task).await.unwrap();
    }
    assert_eq!(*served.lock().await, (0..20).collect::<Vec<_>>());
    let exists: i64 = ask(&mut connection, &["EXISTS", "r", "\x01hr", "\x01qr"]);
    assert_eq!(exists, 0);
}

#[tokio::test]
async fn a_contended_grant_costs_at_most_19_commands() {
    let server = RedisServer::start();
    let store = open(&server).await;
    for (resource, callers) in [("two", 2), ("many", 50)] {
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
        assert!(spent <= 600 * 19, "{spent} commands for 600 grants of {callers} callers");
    }
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

#[tokio::test]
async fn what_expires_is_handed_over_without_a_notice() {
    let server = RedisServer::start();
    let store = open(&server).await;
    take(&store, "r", SECOND / 2).await;
    soon(wait(&store, "r", MINUTE)).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_short_grant_after_a_long_one_is_noticed_by_another_process() {
    let server = RedisServer::start();
    let (here, there) = (open(&server).await, open(&server).await);
    let held = take(&here, "r", MINUTE).await;
    let mut connection = server.connect();
    let first = wait(&here, "r", SECOND);
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

#[tokio::test]
async fn a_dead_waiter_is_passed_over() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    // Its process had no time to say goodbye: no subscriber, no sign of life.
    let dead = |n: u8| format!("{}60000:{:032x}:x:0:4:0:dead", "d".repeat(32), n);
    let held = take(&store, "r", MINUTE).await;
    for n in 0..40 {
        let _: i64 = ask(&mut connection, &["RPUSH", "\x01qr", &dead(n)]);
    }
    let live = wait(&store, "r", MINUTE);
    until("queued", || waiting(&mut connection, "r") == 41).await;
    store.unlock(unlock(&held, "r")).await.unwrap();
    let granted = tokio::time::timeout(SECOND * 4, live).await.expect("within 4 s");
    granted.unwrap().unwrap();
}

#[tokio::test]
async fn a_waiter_that_hears_but_never_confirms_is_passed_over() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    let mut frozen = server.connect();
    let process = "f".repeat(32);
    let mut hearing = frozen.as_pubsub();
    hearing.subscribe(format!("\x01n{process}")).unwrap();
    let held = take(&store, "r", MINUTE).await;
    for n in 0..3 {
        let entry = format!("{process}60000:{n:032x}:x:0:6:0:frozen");
        let _: i64 = ask(&mut connection, &["RPUSH", "\x01qr", &entry]);
    }
    let live = wait(&store, "r", MINUTE);
    until("queued", || waiting(&mut connection, "r") == 4).await;
    store.unlock(unlock(&held, "r")).await.unwrap();
    let granted = tokio::time::timeout(SECOND * 4, live).await.expect("within 4 s");
    granted.unwrap().unwrap();
}

#[tokio::test]
async fn a_silent_waiter_is_passed_over_also_when_the_releaser_has_gone() {
    let server = RedisServer::start();
    let (store, releaser) = (open(&server).await, open(&server).await);
    let mut connection = server.connect();
    let mut frozen = server.connect();
    let process = "f".repeat(32);
    let mut hearing = frozen.as_pubsub();
    hearing.subscribe(format!("\x01n{process}")).unwrap();
    let held = take(&releaser, "r", MINUTE).await;
    let entry = format!("{process}60000:{:032x}:x:0:6:0:frozen", 1);
    let _: i64 = ask(&mut connection, &["RPUSH", "\x01qr", &entry]);
    let live = wait(&store, "r", MINUTE);
    until("queued", || waiting(&mut connection, "r") == 2).await;
    let () = ask(&mut connection, &["CONFIG", "RESETSTAT"]);
    // From then on it expects nothing before the grant's end.
    until("the waiter's first look", || {
        let stats: String = ask(&mut connection, &["INFO", "commandstats"]);
        stats.contains("cmdstat_pttl")
    })
    .await;
    releaser.unlock(unlock(&held, "r")).await.unwrap();
    releaser.retire().await;
    let granted = tokio::time::timeout(SECOND * 4, live).await.expect("within 4 s");
    granted.unwrap().unwrap();
}

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
            ask::<i64>(&mut connection, &["EXISTS", "r", "\x01qr", "\x01hr"]) == 0
        })
        .await;
    }
}

/// Waits for a while, then goes away, whatever has come of it.
async fn wait_unreceived(store: &Store, patience: Duration) {
    let _ = tokio::time::timeout(patience, store.lock(request("r", MINUTE))).await;
}

#[tokio::test]
async fn waiters_whose_queue_was_deleted_enter_again() {
    let server = RedisServer::start();
    let store = open(&server).await;
    take(&store, "r", SECOND * 2).await;
    let waiters = [wait(&store, "r", SECOND / 2), wait(&store, "r", SECOND / 2)];
    let mut connection = server.connect();
    until("queued", || waiting(&mut connection, "r") == 2).await;
    let () = ask(&mut connection, &["FLUSHALL"]);
    for waiter in waiters {
        soon(waiter).await.unwrap().unwrap();
    }
}

//! Places that were lost while their waiters are alive.

use std::sync::atomic::{AtomicUsize, Ordering};

use leasehold_testkit::proxy::Conduct;
use tokio_util::task::AbortOnDropHandle;

use super::*;

/// How many places of `process` are in the queue.
fn places_of(connection: &mut redis::Connection, process: &str) -> usize {
    places(connection, "r").iter().filter(|place| place.starts_with(process)).count()
}

/// Trap: redis 42
#[tokio::test]
async fn waiters_that_were_skipped_enter_again() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address()).await;
    let slow = try_open(proxy.address(), &[]).await.unwrap();
    let mut connection = server.connect();
    let process = processes(&mut connection).remove(0);
    let store = open(&server).await;
    let held = take(&store, "r", MINUTE).await;
    let skipped = [wait(&slow, "r", MINUTE), wait(&slow, "r", MINUTE)];
    until("queued", || waiting(&mut connection, "r") == 2).await;
    let mut others = Vec::new();
    for n in 3..=6 {
        others.push(wait(&store, "r", MINUTE));
        until("queued", || waiting(&mut connection, "r") == n).await;
    }
    proxy.set(Conduct::stalled());
    store.unlock(unlock(&held, "r")).await.unwrap();
    soon(others.remove(0)).await.unwrap().unwrap();
    until("dropped", || places_of(&mut connection, &process) == 0).await;
    proxy.heal();
    // The others still wait, so the length of the queue is no evidence.
    until("both have a place", || places_of(&mut connection, &process) == 2).await;
    drop(skipped);
}

/// Trap: redis 42
#[tokio::test]
async fn a_lost_place_is_noticed_while_others_wait() {
    let server = RedisServer::start();
    let here = open(&server).await;
    let mut connection = server.connect();
    let process = processes(&mut connection).remove(0);
    let there = open(&server).await;
    take(&there, "r", MINUTE).await;
    let waiter = wait(&here, "r", MINUTE);
    let others = [wait(&there, "r", MINUTE), wait(&there, "r", MINUTE)];
    until("queued", || waiting(&mut connection, "r") == 3).await;
    let lost = places(&mut connection, "r").into_iter().find(|p| p.starts_with(&process));
    let _: i64 = ask(&mut connection, &["ZREM", "\x01q{2Rk}r", &lost.unwrap()]);
    until("it has a place again", || places_of(&mut connection, &process) == 1).await;
    drop((waiter, others));
}

/// Trap: redis 42
#[tokio::test]
async fn a_wait_outlives_a_shortage_of_memory() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    let held = take(&store, "r", SECOND * 5).await;
    let waiters = [wait(&store, "r", SECOND * 5), wait(&store, "r", SECOND * 5)];
    until("queued", || waiting(&mut connection, "r") == 2).await;
    let () = ask(&mut connection, &["CONFIG", "SET", "maxmemory", "1"]);
    // Nobody releases it: whoever looks hands it over.
    until("expired", || {
        ask::<Option<String>>(&mut connection, &["GET", "r"]).as_deref()
            != Some(held.lock_id.as_str())
    })
    .await;
    for waiter in waiters {
        soon(waiter).await.unwrap().unwrap();
    }
}

/// Trap: redis 45
#[tokio::test]
async fn an_unlock_by_another_client_is_noticed() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    take(&store, "r", MINUTE).await;
    let () = ask(&mut connection, &["CONFIG", "RESETSTAT"]);
    let first = wait(&store, "r", MINUTE);
    // The look after the first second saw how long the grant still lasts.
    until("the waiter's first look", || {
        let stats: String = ask(&mut connection, &["INFO", "commandstats"]);
        stats.contains(&format!("cmdstat_{}:calls=2", call().to_lowercase()))
    })
    .await;
    let () = ask(&mut connection, &["DEL", "r"]);
    in_few_lapses(first).await.unwrap().unwrap();
}

/// A store with a held lock, and a resource that many wait for.
async fn crowded(
    server: &RedisServer,
    waiters: usize,
) -> (Store, Granted, Vec<tokio::task::JoinHandle<Result<Granted, LockError>>>) {
    let store = open(server).await;
    let kept = take(&store, "kept", MINUTE).await;
    take(&store, "r", MINUTE).await;
    let crowd = (0..waiters).map(|_| wait(&store, "r", MINUTE)).collect();
    let mut connection = server.connect();
    until("queued", || waiting(&mut connection, "r") == waiters).await;
    let () = ask(&mut connection, &["CONFIG", "RESETSTAT"]);
    (store, kept, crowd)
}

/// How many functions were called since the statistics were reset.
pub(super) fn calls_made(connection: &mut redis::Connection) -> usize {
    let stats: String = ask(connection, &["INFO", "commandstats"]);
    let calls = stats.split(&format!("cmdstat_{}:calls=", call().to_lowercase())).nth(1);
    calls.and_then(|calls| calls.split(',').next()?.parse().ok()).unwrap_or(0)
}

/// Trap: redis 44
#[tokio::test]
async fn renewals_go_before_waiters_that_enter_again() {
    const WAITERS: usize = 5_000;
    let server = RedisServer::start();
    let (store, kept, crowd) = crowded(&server, WAITERS).await;
    let mut connection = server.connect();
    let _: i64 = ask(&mut connection, &["CLIENT", "KILL", "TYPE", "pubsub"]);
    until("the first enter again", || calls_made(&mut connection) > 0).await;
    store.renew(renewal(&kept, "kept", MINUTE)).await.unwrap();
    let before = calls_made(&mut connection);
    assert!(before < WAITERS / 2, "{before} calls were made before the renewal was answered");
    until("all have entered again", || calls_made(&mut connection) > WAITERS).await;
    assert_eq!(waiting(&mut connection, "r"), WAITERS);
    drop(crowd);
}

/// Trap: redis 44
#[tokio::test]
async fn renewals_go_before_waiters_that_leave() {
    const WAITERS: usize = 5_000;
    let server = RedisServer::start();
    let (store, kept, crowd) = crowded(&server, WAITERS).await;
    let mut connection = server.connect();
    crowd.iter().for_each(tokio::task::JoinHandle::abort);
    until("the first have left", || waiting(&mut connection, "r") < WAITERS).await;
    store.renew(renewal(&kept, "kept", MINUTE)).await.unwrap();
    let before = calls_made(&mut connection);
    assert!(before < WAITERS / 2, "{before} calls were made before the renewal was answered");
    until("all have left", || waiting(&mut connection, "r") == 0).await;
}

/// Renewals waited until no attempt with the lock ID was being undone, which was never the case.
/// Trap: redis 35
#[tokio::test]
async fn a_holder_renews_while_waits_with_its_lock_id_end() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address()).await;
    let store = try_open(proxy.address(), &[]).await.unwrap();
    let held = take(&store, "r", MINUTE).await;
    proxy.delay_replies(SECOND / 25);
    let ended = Arc::new(AtomicUsize::new(0));
    let callers: Vec<_> = (0..50_u64)
        .map(|caller| {
            let (store, ended) = (store.clone(), Arc::clone(&ended));
            let lock_id = Some(held.lock_id.clone());
            AbortOnDropHandle::new(tokio::spawn(async move {
                loop {
                    let wait = Duration::from_millis(500 + 10 * caller);
                    let wait_end = Some(tokio::time::Instant::now() + wait);
                    let lock_id = lock_id.clone();
                    let asked = AcquireRequest { lock_id, wait_end, ..request("r", MINUTE) };
                    let waited = store.lock(asked).await;
                    assert_eq!(waited.unwrap_err(), LockError::WaitDeadline);
                    ended.fetch_add(1, Ordering::Relaxed);
                }
            }))
        })
        .collect();
    while ended.load(Ordering::Relaxed) < 300 {
        store.renew(renewal(&held, "r", MINUTE)).await.unwrap();
    }
    drop(callers);
}

/// Trap: redis 42
#[tokio::test]
async fn waiters_outlive_a_server_that_stands_still() {
    let server = RedisServer::start_with(&["--enable-debug-command", "local"]);
    let stores = [open(&server).await, open(&server).await];
    let mut connection = server.connect();
    let held = take(&stores[0], "r", MINUTE).await;
    let waiters: Vec<_> = (0..4)
        .map(|n| {
            let store = stores[n % 2].clone();
            tokio::spawn(async move {
                let granted = store.lock(request("r", MINUTE)).await?;
                granted.receipt.accept();
                store.unlock(unlock(&granted, "r")).await
            })
        })
        .collect();
    until("queued", || waiting(&mut connection, "r") == 4).await;
    // Longer than a hand-over lasts, with one in the middle of it.
    let still =
        std::thread::spawn(move || ask::<()>(&mut connection, &["DEBUG", "SLEEP", "3"]));
    stores[0].unlock(unlock(&held, "r")).await.unwrap();
    for waiter in waiters {
        soon(waiter).await.unwrap().unwrap();
    }
    still.join().unwrap();
}

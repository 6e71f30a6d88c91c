//! Grants that a release makes for the next waiter of its own process.

use std::{pin::pin, task::Poll};

use super::*;

/// Polls a future this often at most, and drops it. Returns its output if it had ended.
async fn dropped_after<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    std::future::poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Pending if left > 0 => Poll::Pending,
            Poll::Pending => Poll::Ready(None),
            Poll::Ready(output) => Poll::Ready(Some(output)),
        }
    })
    .await
}

/// The resource `r`, held, with a waiter, through a store behind a proxy.
struct Contended {
    _server: RedisServer,
    connection: redis::Connection,
    proxy: Proxy,
    store: Store,
    held: Granted,
    waiter: tokio::task::JoinHandle<Result<Granted, LockError>>,
}

impl Contended {
    async fn new() -> Self {
        let server = RedisServer::start();
        let proxy = Proxy::start(server.address()).await;
        let store = try_open(proxy.address(), &[]).await.unwrap();
        let held = take(&store, "r", MINUTE).await;
        let waiter = wait(&store, "r", MINUTE);
        let mut connection = server.connect();
        until("queued", || waiting(&mut connection, "r") == 1).await;
        Self { _server: server, connection, proxy, store, held, waiter }
    }

    /// Unlocks in the background.
    fn unlock(&self) -> tokio::task::JoinHandle<Result<(), LockError>> {
        let (store, request) = (self.store.clone(), unlock(&self.held, "r"));
        tokio::spawn(async move { store.unlock(request).await })
    }

    fn value(&mut self) -> Option<String> {
        ask(&mut self.connection, &["GET", "r"])
    }
}

/// Its answer has the grant of somebody else.
/// Trap: redis 10
#[tokio::test]
async fn the_next_has_its_grant_at_whatever_moment_the_unlock_is_dropped() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    let mut held = take(&store, "r", MINUTE).await;
    let (mut polls, mut passed_on) = (0, 0);
    loop {
        let next = wait(&store, "r", MINUTE);
        until("queued", || waiting(&mut connection, "r") == 1).await;
        let began = Instant::now();
        let ended = dropped_after(polls, store.unlock(unlock(&held, "r"))).await;
        if polls == 0 {
            store.unlock(unlock(&held, "r")).await.unwrap();
        }
        let answered = leasehold_lock::Instant::now();
        held = soon(next).await.unwrap().unwrap();
        if ended.is_some() || polls == 0 {
            assert!(held.since < answered, "the waiter had to confirm it");
        }
        // Later than that, a look may have found it.
        if ended.is_none() && polls > 0 && began.elapsed() < SECOND {
            passed_on += 1;
        }
        if ended.is_some() {
            break;
        }
        polls += 1;
    }
    assert!(polls > 1, "it never waited");
    assert!(passed_on > 0, "only looks found the grants of unlocks that were dropped");
}

/// Trap: redis 10
#[tokio::test]
async fn the_next_has_its_grant_though_the_unlock_is_dropped_before_its_answer() {
    let mut contended = Contended::new().await;
    contended.proxy.delay_replies(SECOND / 5);
    let released = contended.unlock();
    let lock_id = contended.held.lock_id.as_str().to_owned();
    until("granted", || contended.value().is_some_and(|value| value != lock_id)).await;
    released.abort();
    let dropped = leasehold_lock::Instant::now();
    let granted = soon(contended.waiter).await.unwrap().unwrap();
    assert!(granted.since < dropped, "a look found it later");
}

/// Trap: redis 10
#[tokio::test]
async fn the_grant_of_a_waiter_that_left_meanwhile_is_released_at_once() {
    let mut contended = Contended::new().await;
    contended.proxy.delay_replies(SECOND / 2);
    let released = contended.unlock();
    let lock_id = contended.held.lock_id.as_str().to_owned();
    until("granted", || contended.value().is_some_and(|value| value != lock_id)).await;
    contended.waiter.abort();
    until("free", || contended.value().is_none()).await;
    soon(released).await.unwrap().unwrap();
}

/// Trap: redis 1
#[tokio::test]
async fn a_waiter_finds_the_grant_whose_answer_was_lost_with_its_connection() {
    let mut contended = Contended::new().await;
    // No look finds it without this command.
    let () = ask(&mut contended.connection, &["ACL", "SETUSER", "default", "-pttl"]);
    contended.proxy.lose_reply_to("release");
    let _released = contended.unlock();
    let granted = soon(contended.waiter).await.unwrap().unwrap();
    contended.store.unlock(unlock(&granted, "r")).await.unwrap();
}

/// Trap: redis 1
#[tokio::test]
async fn a_look_finds_the_grant_whose_answer_was_lost() {
    let mut contended = Contended::new().await;
    let place = places(&mut contended.connection, "r").remove(0);
    let [_, attempt, terms]: [&str; 3] =
        place.splitn(3, ':').collect::<Vec<_>>().try_into().unwrap();
    let lock_id = terms.rsplit(':').next().unwrap();
    let record = format!("7:{attempt}:{attempt}:{terms}");
    let grant = "redis.call('ZREM', KEYS[1], ARGV[1]) \
                 redis.call('SET', KEYS[2], ARGV[2], 'PX', 30000) \
                 redis.call('SET', KEYS[3], ARGV[3], 'PX', 30000)";
    let keys = [key('q', "r"), "r".into(), key('h', "r")];
    let call = ["EVAL", grant, "3", &keys[0], &keys[1], &keys[2], &place, lock_id, &record];
    let () = ask(&mut contended.connection, &call);
    let granted = in_few_lapses(contended.waiter).await.unwrap().unwrap();
    assert_eq!(granted.token.map(leasehold_lock::FencingToken::get), Some(7));
    let left_ms: u64 = ask(&mut contended.connection, &["PTTL", "r"]);
    assert!(left_ms > 30_000, "its TTL started again: {left_ms} ms");
}

/// Trap: redis 15
#[tokio::test]
async fn the_ttl_counts_from_the_sending_of_the_release() {
    let contended = Contended::new().await;
    contended.proxy.delay_replies(SECOND / 2);
    contended.unlock().await.unwrap().unwrap();
    let granted = soon(contended.waiter).await.unwrap().unwrap();
    assert!(granted.since.elapsed() >= SECOND / 2, "{:?}", granted.since.elapsed());
}

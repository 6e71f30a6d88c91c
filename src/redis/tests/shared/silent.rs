//! Waiters in both modes whose process has died, or stands still.

use super::{
    super::{
        dead::{FROZEN, freeze, freeze_as},
        vanished::names,
    },
    *,
};

const DEAD: &str = "dddddddddddddddddddddddddddddddd";

/// Unlocks `r` once as many wait as `queued`, and returns when `waiter` is granted it.
async fn released_to(
    connection: &mut redis::Connection,
    store: &Store,
    held: &Granted,
    queued: usize,
    waiter: tokio::task::JoinHandle<Result<Granted, LockError>>,
) {
    until("queued", || waiting(connection, "r") == queued).await;
    store.unlock(unlock(held, "r")).await.unwrap();
    in_few_lapses(waiter).await.unwrap().unwrap();
}

/// Trap: redis 58
#[tokio::test]
async fn a_reader_behind_a_dead_writer_joins_those_that_hold() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    read(&store, "r", MINUTE).await;
    put_place(&mut connection, DEAD, 'x');
    in_few_lapses(wait_to_read(&store, "r")).await.unwrap().unwrap();
}

/// Trap: redis 58
#[tokio::test]
async fn a_reader_behind_ten_thousand_dead_waiters_joins_those_that_hold() {
    let server = RedisServer::start();
    let store = open_with(&server, &[("maxWaiters", "20000")]).await;
    let mut connection = server.connect();
    read(&store, "r", MINUTE).await;
    put_places(&mut connection, "r", DEAD, 10_000);
    in_few_lapses(wait_to_read(&store, "r")).await.unwrap().unwrap();
}

/// Trap: redis 58
#[tokio::test]
async fn shared_tries_are_granted_when_only_a_dead_writer_waits() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    read(&store, "r", MINUTE).await;
    reunited().await;
    put_place(&mut connection, DEAD, 'x');
    read(&store, "r", MINUTE).await;
    assert_eq!(waiting(&mut connection, "r"), 0);
}

/// Trap: redis 58
#[tokio::test]
async fn shared_tries_are_granted_again_when_a_writer_stands_still() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    read(&store, "r", MINUTE).await;
    let _frozen = freeze(&server);
    put_place(&mut connection, FROZEN, 'x');
    soon(async {
        while store.try_lock(shared("r", MINUTE)).await.is_err() {
            tokio::time::sleep(SECOND / 20).await;
        }
    })
    .await;
}

/// Trap: redis 58
#[tokio::test]
async fn a_reader_behind_a_writer_that_stands_still_joins_those_that_hold() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    read(&store, "r", MINUTE).await;
    let _frozen = freeze(&server);
    put_place(&mut connection, FROZEN, 'x');
    soon(wait_to_read(&store, "r")).await.unwrap().unwrap();
}

/// Trap: redis 57
#[tokio::test]
async fn a_writer_that_lives_keeps_its_place_before_readers() {
    let server = RedisServer::start();
    let (here, there) = (open(&server).await, open(&server).await);
    let mut connection = server.connect();
    read(&here, "r", MINUTE).await;
    let writer = wait(&there, "r", MINUTE);
    until("queued", || waiting(&mut connection, "r") == 1).await;
    let reader = wait_to_read(&here, "r");
    until("queued", || waiting(&mut connection, "r") == 2).await;
    let before = places(&mut connection, "r");
    let (mut asked, mut last_ms) = (0, 0);
    until("asked and answered twice", || {
        let left_ms: i64 = ask(&mut connection, &["PTTL", "\x01a{2Rk}r"]);
        asked += u8::from(left_ms > last_ms);
        last_ms = left_ms;
        asked >= 2 && ask::<u64>(&mut connection, &["SCARD", "\x01a{2Rk}r"]) == 1
    })
    .await;
    assert_eq!(places(&mut connection, "r"), before);
    drop((writer, reader));
}

#[tokio::test]
async fn a_reader_that_does_not_confirm_keeps_a_writer_waiting_for_a_lapse_only() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    let held = take(&store, "r", MINUTE).await;
    let _frozen = freeze(&server);
    put_place(&mut connection, FROZEN, 's');
    let writer = wait(&store, "r", MINUTE);
    released_to(&mut connection, &store, &held, 2, writer).await;
}

#[tokio::test]
async fn all_places_of_a_process_whose_reader_lapsed_are_dropped() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    let held = take(&store, "r", MINUTE).await;
    let _frozen = freeze(&server);
    for mode in "sx".chars().cycle().take(MANY) {
        put_place(&mut connection, FROZEN, mode);
    }
    let reader = wait_to_read(&store, "r");
    released_to(&mut connection, &store, &held, MANY + 1, reader).await;
    until("dropped", || waiting(&mut connection, "r") == 0).await;
    until("no hand-over is left", || called(&mut connection, "r") == 0).await;
}

#[tokio::test]
async fn readers_of_several_silent_processes_cost_one_lapse() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    let held = take(&store, "r", MINUTE).await;
    let silent = names(MANY);
    let _frozen: Vec<_> = silent.iter().map(|process| freeze_as(&server, process)).collect();
    // More than are handed over at the same time.
    for process in silent.iter().cycle().take(72) {
        put_place(&mut connection, process, 's');
    }
    let writer = wait(&store, "r", MINUTE);
    released_to(&mut connection, &store, &held, 73, writer).await;
}

#[tokio::test]
async fn readers_behind_a_dead_one_are_granted_at_once() {
    let server = RedisServer::start();
    let store = open(&server).await;
    reunited().await;
    let mut connection = server.connect();
    let held = take(&store, "r", MINUTE).await;
    put_place(&mut connection, DEAD, 's');
    let waits: Vec<_> = (0..3).map(|_| wait_to_read(&store, "r")).collect();
    until("queued", || waiting(&mut connection, "r") == 4).await;
    store.unlock(unlock(&held, "r")).await.unwrap();
    for wait in waits {
        in_few_lapses(wait).await.unwrap().unwrap();
    }
    assert_eq!(called(&mut connection, "r"), 0);
}

#[tokio::test]
async fn hand_overs_to_unknown_readers_are_passed_on_at_once() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    let own = processes(&mut connection);
    let mut forgetful = Vec::new();
    for _ in 0..MANY {
        forgetful.push(open(&server).await);
    }
    let all = processes(&mut connection);
    let held = take(&store, "r", MINUTE).await;
    let others = all.iter().filter(|name| !own.contains(name));
    for (process, mode) in others.zip("sx".chars().cycle()) {
        put_place(&mut connection, process, mode);
    }
    let writer = wait(&store, "r", MINUTE);
    until("queued", || waiting(&mut connection, "r") == MANY + 1).await;
    // They wait, so that they answer the question who is alive, and keep their place.
    let behind: Vec<_> = forgetful.iter().map(|there| wait(there, "r", MINUTE)).collect();
    // Each place would cost a lapse of 2 s otherwise.
    released_to(&mut connection, &store, &held, 2 * MANY + 1, writer).await;
    drop(behind);
}

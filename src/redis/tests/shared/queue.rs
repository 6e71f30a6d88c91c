//! One queue for both modes.

use super::*;

/// Trap: redis 58
#[tokio::test]
async fn readers_in_a_row_are_granted_together() {
    /// More than may be handed over at the same time.
    const READERS: usize = 200;
    let server = RedisServer::start();
    let stores = [open(&server).await, open(&server).await];
    let held = take(&stores[0], "r", MINUTE).await;
    let waits: Vec<_> = (0..READERS).map(|n| wait_to_read(&stores[n % 2], "r")).collect();
    let mut connection = server.connect();
    until("queued", || waiting(&mut connection, "r") == READERS).await;
    stores[0].unlock(unlock(&held, "r")).await.unwrap();
    // None of them unlocks before all hold.
    for wait in waits {
        soon(wait).await.unwrap().unwrap();
    }
    assert_eq!(ask::<usize>(&mut connection, &["ZCARD", "\x01e{2Rk}r"]), READERS);
}

#[tokio::test]
async fn at_most_sixty_four_hand_overs_are_unconfirmed() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let held = take(&store, "r", MINUTE).await;
    let mut connection = server.connect();
    let _frozen = super::super::dead::freeze(&server);
    for _ in 0..100 {
        put_place(&mut connection, super::super::dead::FROZEN, 's');
    }
    store.unlock(unlock(&held, "r")).await.unwrap();
    assert_eq!((called(&mut connection, "r"), waiting(&mut connection, "r")), (64, 36));
}

/// Trap: redis 5
#[tokio::test]
async fn a_writer_waits_for_the_last_reader() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    let all = readers(&store, "r", 2).await;
    let writer = wait(&store, "r", MINUTE);
    until("queued", || waiting(&mut connection, "r") == 1).await;
    store.unlock(unlock(&all[0], "r")).await.unwrap();
    assert_eq!(waiting(&mut connection, "r"), 1, "the writer still waits");
    store.renew(renewal(&all[1], "r", MINUTE)).await.unwrap();
    store.unlock(unlock(&all[1], "r")).await.unwrap();
    soon(writer).await.unwrap().unwrap();
}

/// Trap: redis 57
#[tokio::test]
async fn a_try_in_either_mode_is_refused_while_a_writer_waits() {
    let server = RedisServer::start();
    let (here, there) = (open(&server).await, open(&server).await);
    let mut connection = server.connect();
    read(&here, "r", MINUTE).await;
    let writer = wait(&here, "r", MINUTE);
    until("queued", || waiting(&mut connection, "r") == 1).await;
    for store in [&here, &there] {
        assert!(is_locked(&store.try_lock(shared("r", MINUTE)).await));
        assert!(is_locked(&store.try_lock(request("r", MINUTE)).await));
    }
    assert_eq!(waiting(&mut connection, "r"), 1);
    drop(writer);
}

#[tokio::test]
async fn a_refused_shared_try_writes_nothing() {
    let server = RedisServer::start();
    let store = open(&server).await;
    take(&store, "r", MINUTE).await;
    let mut connection = server.connect();
    let before = changes(&mut connection);
    for _ in 0..100 {
        assert!(is_locked(&store.try_lock(shared("r", MINUTE)).await));
    }
    assert_eq!(changes(&mut connection), before);
}

/// Trap: redis 58
#[tokio::test]
async fn a_writer_that_gives_up_calls_the_readers_behind_it_though_nobody_looks() {
    let server = RedisServer::start();
    let (here, there) = (open(&server).await, open(&server).await);
    let mut connection = server.connect();
    read(&here, "r", MINUTE).await;
    let _frozen = super::super::dead::freeze(&server);
    let writer = wait(&there, "r", MINUTE);
    until("queued", || waiting(&mut connection, "r") == 1).await;
    put_place(&mut connection, super::super::dead::FROZEN, 's');
    writer.abort();
    until("called", || called(&mut connection, "r") == 1).await;
}

#[tokio::test]
async fn force_hands_shared_grants_over_to_the_writer_that_waits() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let all = readers(&store, "r", 5).await;
    let writer = wait(&store, "r", MINUTE);
    let mut connection = server.connect();
    until("queued", || waiting(&mut connection, "r") == 1).await;
    store.unlock(force("r")).await.unwrap();
    let written = soon(writer).await.unwrap().unwrap();
    assert!(all.iter().all(|reader| reader.token < written.token));
    let keys: Vec<String> = ask(&mut connection, &["KEYS", "\x01[retp]{???}r"]);
    assert!(keys.is_empty(), "{keys:?}");
}

#[tokio::test]
async fn readers_that_wait_outlive_a_restart_that_lost_everything() {
    let mut server = RedisServer::start();
    let store = open(&server).await;
    take(&store, "r", MINUTE).await;
    let waits: Vec<_> = (0..5).map(|_| wait_to_read(&store, "r")).collect();
    let mut connection = server.connect();
    until("queued", || waiting(&mut connection, "r") == 5).await;
    server.kill();
    server.restart();
    for wait in waits {
        soon(wait).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn whenever_a_reader_goes_away_nothing_of_it_is_left() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    for round in 0..100_u64 {
        let held = take(&store, "r", MINUTE).await;
        let patience = Duration::from_micros(round * 40);
        let gone = tokio::time::timeout(patience, store.lock(shared("r", MINUTE)));
        let release = store.unlock(unlock(&held, "r"));
        let (gone, released) = tokio::join!(gone, release);
        released.unwrap();
        drop(gone);
        until("free again", || {
            let keys = [
                "EXISTS",
                "r",
                "\x01q{2Rk}r",
                "\x01h{2Rk}r",
                "\x01r{2Rk}r",
                "\x01e{2Rk}r",
                "\x01p{2Rk}r",
            ];
            ask::<i64>(&mut connection, &keys) == 0
        })
        .await;
    }
}

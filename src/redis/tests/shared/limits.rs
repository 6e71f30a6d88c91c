//! The limits of shared grants, and the cost of many of them.

use super::{
    super::{
        dead::{FROZEN, freeze},
        grants::commands,
    },
    *,
};

#[tokio::test]
async fn at_the_limit_of_holders_a_try_is_refused_and_a_lock_waits() {
    let server = RedisServer::start();
    let store = open_with(&server, &[("maxHolders", "2")]).await;
    let all = readers(&store, "r", 2).await;
    let refused = store.try_lock(shared("r", MINUTE)).await;
    assert_eq!(refused.unwrap_err(), LockError::TooManyHolders);
    let waits = wait_to_read(&store, "r");
    let mut connection = server.connect();
    until("queued", || waiting(&mut connection, "r") == 1).await;
    store.unlock(unlock(&all[0], "r")).await.unwrap();
    soon(waits).await.unwrap().unwrap();
}

#[tokio::test]
async fn an_expired_reader_makes_room_for_one_that_waits() {
    let server = RedisServer::start();
    let store = open_with(&server, &[("maxHolders", "2")]).await;
    read(&store, "r", MINUTE).await;
    let brief = read(&store, "r", MINUTE).await;
    end_reader_in(&mut server.connect(), &brief, 1000);
    soon(wait_to_read(&store, "r")).await.unwrap().unwrap();
}

#[tokio::test]
async fn expired_shared_grants_do_not_pile_up() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut last = read(&store, "r", MINUTE).await;
    for n in 0..500 {
        let asked = AcquireRequest {
            request_id: RequestId::new(&format!("request {n}")).unwrap(),
            ..shared("r", SECOND / 10)
        };
        // On a slow machine the answer may come after the TTL.
        if let Ok(granted) = store.try_lock(asked).await {
            last = granted;
            last.receipt.accept();
        }
    }
    let mut connection = server.connect();
    until("over", || is_over(&mut connection, &last)).await;
    let live = readers(&store, "r", 10).await;
    for key in ["\x01e{2Rk}r", "\x01t{2Rk}r"] {
        assert_eq!(ask::<usize>(&mut connection, &["ZCARD", key]), live.len() + 1);
    }
    // The mark and the newest token besides the records and the public IDs.
    assert_eq!(
        ask::<usize>(&mut connection, &["HLEN", "\x01r{2Rk}r"]),
        2 * (live.len() + 1) + 2
    );
}

#[tokio::test]
async fn the_keys_of_a_long_reader_who_has_left_end_soon_after_those_who_stay() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    let stays = read(&store, "r", MINUTE).await;
    let long = read(&store, "r", MINUTE * 60).await;
    let kept_ms = |connection: &mut _| {
        ["\x01r{2Rk}r", "\x01e{2Rk}r", "\x01t{2Rk}r"]
            .map(|key| ask::<i64>(connection, &["PTTL", key]))
    };
    let minute_ms = i64::try_from(MINUTE.as_millis()).unwrap();
    assert!(kept_ms(&mut connection).iter().all(|left| *left > 59 * minute_ms));
    store.unlock(unlock(&long, "r")).await.unwrap();
    for left in kept_ms(&mut connection) {
        assert!((1..=minute_ms + 20_000).contains(&left), "{left}");
    }
    store.unlock(unlock(&stays, "r")).await.unwrap();
}

/// A process of an earlier version moves the expiry of all keys to the end of the last reader.
#[tokio::test]
async fn the_records_of_a_reader_last_as_long_as_it_whoever_moved_their_expiry() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    read(&store, "r", MINUTE).await;
    for key in ["\x01r{2Rk}r", "\x01e{2Rk}r", "\x01t{2Rk}r"] {
        let () = ask(&mut connection, &["PEXPIRE", key, "5000"]);
    }
    let reader = read(&store, "r", MINUTE).await;
    store.renew(renewal(&reader, "r", MINUTE)).await.unwrap();
    let end: i64 = ask(&mut connection, &["PEXPIRETIME", "r"]);
    for key in ["\x01r{2Rk}r", "\x01e{2Rk}r", "\x01t{2Rk}r"] {
        assert!(ask::<i64>(&mut connection, &["PEXPIRETIME", key]) >= end);
    }
}

#[tokio::test]
async fn no_verb_costs_more_commands_beside_many_readers() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    let mut spent = Vec::new();
    for more in [3, 3_000] {
        readers(&store, "r", more).await;
        // Outlasts the reader that is counted, so that no expiry has to be moved for it.
        read(&store, "r", MINUTE * 10).await;
        let () = ask(&mut connection, &["CONFIG", "RESETSTAT"]);
        let reader = read(&store, "r", MINUTE).await;
        store.renew(renewal(&reader, "r", MINUTE)).await.unwrap();
        store.unlock(unlock(&reader, "r")).await.unwrap();
        assert!(is_locked(&store.try_lock(request("r", MINUTE)).await));
        spent.push(commands(&mut connection));
    }
    assert_eq!(spent[0], spent[1], "commands with few and with many readers");
}

#[tokio::test]
async fn without_memory_readers_are_renewed_and_released_but_not_added() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let all = readers(&store, "r", 2).await;
    let mut connection = server.connect();
    let () = ask(&mut connection, &["CONFIG", "SET", "maxmemory", "1"]);
    match store.try_lock(shared("r", MINUTE)).await {
        Err(LockError::StoreUnavailable(why)) => assert!(why.contains("OOM"), "{why}"),
        other => panic!("{other:?}"),
    }
    store.renew(renewal(&all[0], "r", MINUTE * 2)).await.unwrap();
    unlock_all(&store, "r", &all).await;
    assert_eq!(ask::<i64>(&mut connection, &["EXISTS", "r"]), 0);
}

#[tokio::test]
async fn a_reader_that_has_waited_removes_expired_ones_too() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    read(&store, "r", MINUTE).await;
    let brief = read(&store, "r", MINUTE).await;
    end_reader_in(&mut connection, &brief, -1);
    let writer = wait(&store, "r", MINUTE);
    until("queued", || waiting(&mut connection, "r") == 1).await;
    let reader = wait_to_read(&store, "r");
    until("queued", || waiting(&mut connection, "r") == 2).await;
    writer.abort();
    soon(reader).await.unwrap().unwrap();
    assert_eq!(ask::<usize>(&mut connection, &["ZCARD", "\x01e{2Rk}r"]), 2);
}

#[tokio::test]
async fn a_try_does_not_take_the_last_place_that_it_hands_over() {
    let server = RedisServer::start();
    let store = open_with(&server, &[("maxHolders", "2")]).await;
    let mut connection = server.connect();
    read(&store, "r", MINUTE).await;
    let _frozen = freeze(&server);
    put_place(&mut connection, FROZEN, 's');
    assert!(is_locked(&store.try_lock(shared("r", MINUTE)).await));
    assert_eq!((called(&mut connection, "r"), waiting(&mut connection, "r")), (1, 0));
}

//! Shared grants and the built-in `lock.redis` on the same key.

use super::*;

/// Locks `r` as the built-in `lock.redis` does. Whether it was free.
fn lock_by_the_built_in(connection: &mut redis::Connection) -> bool {
    ask::<Option<String>>(connection, &["SET", "r", "owner", "EX", "30", "NX"]).is_some()
}

/// Unlocks `r` as the built-in does.
fn unlock_by_the_built_in(connection: &mut redis::Connection, owner: &str) -> i64 {
    const SCRIPT: &str = "local v = redis.call('get', KEYS[1]); if v == false then return -1 \
        end; if v ~= ARGV[1] then return -2 else return redis.call('del', KEYS[1]) end";
    ask(connection, &["EVAL", SCRIPT, "1", "r", owner])
}

#[tokio::test]
async fn the_built_in_is_refused_while_a_reader_holds() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let reader = read(&store, "r", MINUTE).await;
    let mut connection = server.connect();
    assert!(!lock_by_the_built_in(&mut connection));
    store.unlock(unlock(&reader, "r")).await.unwrap();
    assert!(lock_by_the_built_in(&mut connection));
}

#[tokio::test]
async fn the_built_in_finds_nothing_of_its_own_to_unlock() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let reader = read(&store, "r", MINUTE).await;
    let mut connection = server.connect();
    for owner in ["owner", reader.lock_id.as_str()] {
        assert_eq!(unlock_by_the_built_in(&mut connection, owner), -2);
    }
    store.renew(renewal(&reader, "r", MINUTE)).await.unwrap();
}

#[tokio::test]
async fn a_reader_is_refused_while_the_built_in_holds_and_served_after_it() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    assert!(lock_by_the_built_in(&mut connection));
    assert!(is_locked(&store.try_lock(shared("r", MINUTE)).await));
    let waits = wait_to_read(&store, "r");
    until("queued", || waiting(&mut connection, "r") == 1).await;
    assert_eq!(unlock_by_the_built_in(&mut connection, "owner"), 1);
    soon(waits).await.unwrap().unwrap();
}

/// Trap: redis 61
#[tokio::test]
async fn the_built_in_is_refused_while_one_reader_renews_and_others_expire() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    let ttl = SECOND * 3;
    let renewed = read(&store, "r", ttl).await;
    for tenths in 1..20 {
        read(&store, "r", SECOND * tenths / 10).await;
    }
    // A new reader would move the key's end too.
    let over = Instant::now() + ttl * 2;
    while Instant::now() < over {
        tokio::time::sleep(SECOND / 20).await;
        store.renew(renewal(&renewed, "r", ttl)).await.unwrap();
        assert!(!lock_by_the_built_in(&mut connection));
    }
    let longest = read(&store, "r", MINUTE).await;
    store.unlock(unlock(&renewed, "r")).await.unwrap();
    assert!(!lock_by_the_built_in(&mut connection));
    store.unlock(unlock(&longest, "r")).await.unwrap();
    until("the others have expired", || lock_by_the_built_in(&mut connection)).await;
}

/// Trap: redis 61
#[tokio::test]
async fn readers_whose_key_was_deleted_are_not_those_of_a_later_key() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let old = read(&store, "r", MINUTE).await;
    let mut connection = server.connect();
    let _: i64 = ask(&mut connection, &["DEL", "r"]);
    let gone = store.renew(renewal(&old, "r", MINUTE)).await;
    assert_eq!(gone, Err(LockError::NotFound { held: false }));
    let new = read(&store, "r", MINUTE).await;
    let gone = store.renew(renewal(&old, "r", MINUTE)).await;
    assert_eq!(gone, Err(LockError::NotFound { held: true }));
    store.unlock(unlock(&new, "r")).await.unwrap();
    assert!(lock_by_the_built_in(&mut connection));
}

#[tokio::test]
async fn readers_are_not_those_of_another_mark() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let reader = read(&store, "r", MINUTE).await;
    let another = format!("\x01s{}", "0".repeat(32));
    let () = ask(&mut server.connect(), &["SET", "r", &another, "KEEPTTL"]);
    let gone = store.renew(renewal(&reader, "r", MINUTE)).await;
    assert_eq!(gone, Err(LockError::NotFound { held: true }));
}

#[tokio::test]
async fn a_mark_whose_records_were_deleted_keeps_everybody_out_until_it_ends() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let reader = read(&store, "r", SECOND * 2).await;
    let mut connection = server.connect();
    let _: i64 = ask(&mut connection, &["DEL", "\x01r{2Rk}r"]);
    let gone = store.renew(renewal(&reader, "r", MINUTE)).await;
    assert_eq!(gone, Err(LockError::NotFound { held: true }));
    assert!(is_locked(&store.try_lock(shared("r", MINUTE)).await));
    assert!(is_locked(&store.try_lock(request("r", MINUTE)).await));
    soon(wait_to_read(&store, "r")).await.unwrap().unwrap();
}

/// Trap: redis 61
#[tokio::test]
async fn a_hand_over_to_readers_keeps_the_built_in_out() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    let held = take(&store, "r", MINUTE).await;
    let _frozen = super::super::dead::freeze(&server);
    put_place(&mut connection, super::super::dead::FROZEN, 's');
    store.unlock(unlock(&held, "r")).await.unwrap();
    assert_eq!(called(&mut connection, "r"), 1);
    assert!(!lock_by_the_built_in(&mut connection));
    // It lapses, and leaves nothing.
    until("free again", || lock_by_the_built_in(&mut connection)).await;
    assert_eq!(unlock_by_the_built_in(&mut connection, "owner"), 1);
}

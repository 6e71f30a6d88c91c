//! The cost of shared locks, by command.

use super::{
    super::costs::{executed, expected, reset},
    *,
};

#[tokio::test]
async fn a_shared_cycle_on_a_free_resource_costs_thirty_four_commands() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    reset(&mut connection);
    let reader = read(&store, "r", MINUTE).await;
    let acquired = [
        ("fcall", 1),
        ("mget", 1),
        ("get", 1),
        ("exists", 1),
        ("time", 1),
        ("unlink", 1),
        ("hset", 2),
        ("set", 1),
        ("getset", 1),
        ("zadd", 2),
        ("zrange", 2),
        ("pexpireat", 4),
        ("pttl", 1),
    ];
    assert_eq!(executed(&mut connection), expected(&acquired));
    reset(&mut connection);
    store.unlock(unlock(&reader, "r")).await.unwrap();
    let released = [
        ("fcall", 1),
        ("mget", 1),
        ("hget", 2),
        ("time", 1),
        ("zscore", 1),
        ("hmget", 1),
        ("hdel", 1),
        ("zrem", 2),
        ("zrange", 2),
        ("unlink", 1),
        ("zpopmin", 1),
        ("del", 1),
    ];
    assert_eq!(executed(&mut connection), expected(&released));
}

#[tokio::test]
async fn a_shared_try_beside_readers_costs_nineteen_commands() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    read(&store, "r", MINUTE).await;
    reset(&mut connection);
    read(&store, "r", MINUTE).await;
    let joined = [
        ("fcall", 1),
        ("mget", 1),
        ("hget", 1),
        ("time", 1),
        ("zscore", 1),
        ("zcount", 4),
        ("exists", 1),
        ("zrangebyscore", 1),
        ("getset", 1),
        ("hset", 1),
        ("zadd", 2),
        ("zrange", 2),
        ("pexpireat", 1),
        ("pttl", 1),
    ];
    assert_eq!(executed(&mut connection), expected(&joined));
}

#[tokio::test]
async fn an_unlock_beside_a_reader_costs_fifteen_commands() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    let first = read(&store, "r", MINUTE).await;
    read(&store, "r", MINUTE * 2).await;
    reset(&mut connection);
    store.unlock(unlock(&first, "r")).await.unwrap();
    let released = [
        ("fcall", 1),
        ("mget", 1),
        ("hget", 2),
        ("time", 1),
        ("zscore", 1),
        ("hmget", 1),
        ("hdel", 1),
        ("zrem", 2),
        ("zrange", 2),
        ("exists", 1),
        ("pexpireat", 1),
        ("pttl", 1),
    ];
    assert_eq!(executed(&mut connection), expected(&released));
}

#[tokio::test]
async fn a_shared_renewal_costs_eleven_commands() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    let reader = read(&store, "r", MINUTE).await;
    reset(&mut connection);
    store.renew(renewal(&reader, "r", MINUTE)).await.unwrap();
    let renewed = [
        ("fcall", 1),
        ("mget", 1),
        ("hget", 2),
        ("time", 1),
        ("zscore", 1),
        ("zadd", 1),
        ("zrange", 2),
        ("pexpireat", 1),
        ("pttl", 1),
    ];
    assert_eq!(executed(&mut connection), expected(&renewed));
}

#[tokio::test]
async fn a_hand_over_to_a_reader_and_its_confirmation_cost_forty_commands() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    let both = [
        ("fcall", 2),
        ("mget", 3),
        ("zpopmin", 1),
        ("publish", 1),
        ("time", 2),
        ("unlink", 1),
        ("hset", 2),
        ("pttl", 2),
        ("set", 1),
        ("zadd", 3),
        ("pexpire", 1),
        ("zrange", 4),
        ("pexpireat", 8),
        ("exists", 2),
        ("hget", 1),
        ("zscore", 2),
        ("zrem", 2),
        ("getset", 1),
        ("zrangebyscore", 1),
    ];
    let mut seen = Vec::new();
    // On a slow machine a look may come in between, but not each time.
    for _ in 0..10 {
        let held = take(&store, "r", MINUTE).await;
        let waits = wait_to_read(&store, "r");
        until("queued", || waiting(&mut connection, "r") == 1).await;
        reset(&mut connection);
        store.unlock(unlock(&held, "r")).await.unwrap();
        let reader = soon(waits).await.unwrap().unwrap();
        let spent = executed(&mut connection);
        store.unlock(unlock(&reader, "r")).await.unwrap();
        if spent == expected(&both) {
            return;
        }
        seen.push(spent);
    }
    panic!("never exactly that: {seen:?}");
}

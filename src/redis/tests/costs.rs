//! The cost of an exclusive lock, by command: shared locks add nothing to it.

use std::collections::BTreeMap;

use super::*;

/// How often each command was executed since the statistics were reset.
pub(super) fn executed(connection: &mut redis::Connection) -> BTreeMap<String, u64> {
    let info: String = ask(connection, &["INFO", "commandstats"]);
    info.lines()
        .filter_map(|line| {
            let (name, fields) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            let calls = fields.split(',').next()?.parse().ok()?;
            (!name.starts_with("config") && name != "info").then(|| (name.to_owned(), calls))
        })
        .collect()
}

pub(super) fn reset(connection: &mut redis::Connection) {
    let () = ask(connection, &["CONFIG", "RESETSTAT"]);
}

pub(super) fn expected(counts: &[(&str, u64)]) -> BTreeMap<String, u64> {
    counts.iter().map(|(name, calls)| ((*name).to_owned(), *calls)).collect()
}

/// Checks the cost of an operation. The server's clock may go on between two readings of
/// expiries, which are then read again, but not each time.
async fn assert_costs(
    connection: &mut redis::Connection,
    counts: &[(&str, u64)],
    operation: impl AsyncFn(),
) {
    let mut seen = Vec::new();
    for _ in 0..10 {
        reset(connection);
        operation().await;
        seen.push(executed(connection));
        if seen.last() == Some(&expected(counts)) {
            return;
        }
    }
    panic!("never exactly that: {seen:?}");
}

#[tokio::test]
async fn an_exclusive_cycle_without_contention_costs_ten_commands_and_a_renewal_five() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    reset(&mut connection);
    let granted = take(&store, "r", MINUTE).await;
    store.unlock(unlock(&granted, "r")).await.unwrap();
    let cycle = [("fcall", 2), ("exists", 1), ("time", 1), ("getset", 1), ("set", 2)];
    let mut cycle = expected(&cycle);
    cycle.extend(expected(&[("mget", 1), ("zpopmin", 1), ("del", 1)]));
    assert_eq!(executed(&mut connection), cycle);
    let granted = take(&store, "r", MINUTE).await;
    let costs = [("fcall", 1), ("mget", 1), ("time", 1), ("pexpireat", 2)];
    let renew = async || {
        store.renew(renewal(&granted, "r", MINUTE)).await.unwrap();
    };
    assert_costs(&mut connection, &costs, renew).await;
}

#[tokio::test]
async fn a_refused_exclusive_try_costs_four_commands() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    take(&store, "r", MINUTE).await;
    let costs = [("fcall", 1), ("time", 1), ("set", 1), ("mget", 1)];
    let refused = async || assert!(store.try_lock(request("r", MINUTE)).await.is_err());
    assert_costs(&mut connection, &costs, refused).await;
}

#[tokio::test]
async fn an_exclusive_grant_after_a_wait_costs_fifteen_commands() {
    let server = RedisServer::start();
    let (here, there) = (open(&server).await, open(&server).await);
    let costs = [
        ("fcall", 3),
        ("srem", 1),
        ("zrange", 1),
        ("zadd", 1),
        ("mget", 2),
        ("zpopmin", 1),
        ("publish", 1),
        ("set", 3),
        ("time", 1),
        ("getset", 1),
    ];
    assert_hand_over_costs(&server, &here, &there, &costs).await;
}

#[tokio::test]
async fn an_exclusive_grant_to_the_next_of_the_same_process_costs_eleven_commands() {
    let server = RedisServer::start();
    let here = open(&server).await;
    let costs = [
        ("fcall", 2),
        ("srem", 1),
        ("zrange", 1),
        ("zadd", 1),
        ("mget", 1),
        ("zpopmin", 1),
        ("set", 2),
        ("time", 1),
        ("getset", 1),
    ];
    assert_hand_over_costs(&server, &here, &here, &costs).await;
}

/// Checks the cost of a waiter's entry, and of a hand-over from one store to another.
async fn assert_hand_over_costs(
    server: &RedisServer,
    from: &Store,
    to: &Store,
    counts: &[(&str, u64)],
) {
    let mut connection = server.connect();
    let mut seen = Vec::new();
    // On a slow machine a look may come in between, but not each time.
    for _ in 0..10 {
        let held = take(from, "r", MINUTE).await;
        let last = wait(to, "r", MINUTE);
        until("queued", || waiting(&mut connection, "r") == 1).await;
        reset(&mut connection);
        let next = wait(from, "r", MINUTE);
        soon(async {
            // Any other command would be counted.
            while executed(&mut connection).get("zadd") != Some(&1) {
                tokio::time::sleep(SECOND / 100).await;
            }
        })
        .await;
        from.unlock(unlock(&held, "r")).await.unwrap();
        let first = soon(last).await.unwrap().unwrap();
        let spent = executed(&mut connection);
        next.abort();
        to.unlock(unlock(&first, "r")).await.unwrap();
        until("free again", || {
            ask::<i64>(&mut connection, &["EXISTS", "r", "\x01q{2Rk}r", "\x01h{2Rk}r"]) == 0
        })
        .await;
        if spent == expected(counts) {
            return;
        }
        seen.push(spent);
    }
    panic!("never exactly that: {seen:?}");
}

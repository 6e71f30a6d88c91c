//! What one caller sees: try, renew, unlock, force, replay, tokens, foreign keys.

use leasehold_lock::{Abandoned, Mode};

use super::*;

/// Trap: redis 29
#[tokio::test]
async fn the_key_is_the_resource_and_its_value_the_lock_id() {
    let server = RedisServer::start();
    let granted = take(&open(&server).await, "lock||app||r", MINUTE).await;
    let value: String = ask(&mut server.connect(), &["GET", "lock||app||r"]);
    assert_eq!(value, granted.lock_id.as_str());
}

/// Trap: redis 2
#[tokio::test]
async fn a_failed_try_writes_nothing() {
    let server = RedisServer::start();
    let store = open(&server).await;
    take(&store, "r", MINUTE).await;
    let mut connection = server.connect();
    let before = changes(&mut connection);
    for _ in 0..1000 {
        assert!(store.try_lock(request("r", MINUTE)).await.is_err());
    }
    assert_eq!(changes(&mut connection), before);
}

/// Free resources leave no key, but for the counters.
/// Trap: redis 20, redis 28
#[tokio::test]
async fn many_locks_leave_only_a_bounded_number_of_counters() {
    const LOCKS: usize = 20_000;
    const CALLERS: usize = 50;
    let server = RedisServer::start();
    let store = open(&server).await;
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let store = store.clone();
            tokio::spawn(async move {
                for n in (caller..LOCKS).step_by(CALLERS) {
                    let resource = format!("r{n}");
                    let granted = take(&store, &resource, MINUTE).await;
                    store.unlock(unlock(&granted, &resource)).await.unwrap();
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
    let mut connection = server.connect();
    let keys: Vec<String> = ask(&mut connection, &["KEYS", "*"]);
    assert!(keys.len() <= 16384, "{}", keys.len());
    assert!(keys.iter().all(|key| key.starts_with("\x01c")), "{keys:?}");
}

/// Trap: redis 26
#[tokio::test]
async fn tokens_rise_across_release_force_flush_and_a_restart() {
    let mut server = RedisServer::start();
    let store = open(&server).await;
    let mut last = 0;
    for round in 0..20 {
        let granted = soon(async {
            loop {
                match store.try_lock(request("r", MINUTE)).await {
                    Ok(granted) => return granted,
                    Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
                }
            }
        })
        .await;
        granted.receipt.accept();
        assert!(token_of(&granted) > last, "round {round}");
        last = token_of(&granted);
        match round % 4 {
            0 => store.unlock(unlock(&granted, "r")).await.unwrap(),
            1 => store.unlock(force("r")).await.unwrap(),
            2 => ask(&mut server.connect(), &["FLUSHALL"]),
            _ => {
                server.kill();
                server.restart();
            }
        }
    }
}

/// Trap: redis 26
#[tokio::test]
async fn a_token_rises_also_where_the_counter_is_ahead_of_the_clock() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let granted = take(&store, "r", MINUTE).await;
    store.unlock(unlock(&granted, "r")).await.unwrap();
    let mut connection = server.connect();
    let counters: Vec<String> = ask(&mut connection, &["KEYS", "\x01c*"]);
    let ahead = token_of(&granted) + 1_000_000_000_000;
    let () = ask(&mut connection, &["SET", &counters[0], &ahead.to_string()]);
    assert_eq!(token_of(&take(&store, "r", MINUTE).await), ahead + 1);
}

#[tokio::test]
async fn a_counter_that_somebody_spoilt_counts_for_nothing() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let token = token_of(&take(&store, "r", MINUTE).await);
    let mut connection = server.connect();
    let counters: Vec<String> = ask(&mut connection, &["KEYS", "\x01c*"]);
    for spoilt in ["9007199254740991", "9007199254740992", "1e300", "inf", "nan", "-1", "x"] {
        let () = ask(&mut connection, &["SET", &counters[0], spoilt]);
        store.unlock(force("r")).await.unwrap();
        assert!(token_of(&take(&store, "r", MINUTE).await) > token, "{spoilt}");
    }
}

/// Trap: redis 13
#[tokio::test]
async fn a_renewal_changes_the_ttl_either_way_and_never_creates() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let granted = take(&store, "r", MINUTE).await;
    let mut connection = server.connect();
    for ttl in [MINUTE * 5, SECOND * 10] {
        let renewed = store.renew(renewal(&granted, "r", ttl)).await.unwrap();
        assert_eq!(renewed.ttl, ttl);
        for key in ["r", "\x01h{2Rk}r"] {
            let left: u64 = ask(&mut connection, &["PTTL", key]);
            let ttl_ms = u64::try_from(ttl.as_millis()).unwrap();
            assert!(left <= ttl_ms && left + 5000 > ttl_ms, "{key} {left}");
        }
    }
    store.unlock(unlock(&granted, "r")).await.unwrap();
    let gone = store.renew(renewal(&granted, "r", MINUTE)).await;
    assert_eq!(gone.unwrap_err(), LockError::NotFound { held: false });
    let exists: i64 = ask(&mut connection, &["EXISTS", "r", "\x01h{2Rk}r"]);
    assert_eq!(exists, 0);
}

/// Trap: redis 23
#[tokio::test]
async fn a_repeated_request_finds_its_grant_and_its_clean_up_spares_it() {
    let server = RedisServer::start();
    let (here, there) = (open(&server).await, open(&server).await);
    let asked =
        AcquireRequest { request_id: RequestId::new("once").unwrap(), ..request("r", MINUTE) };
    let first = here.try_lock(asked.clone()).await.unwrap();
    let second = there.try_lock(asked.clone()).await.unwrap();
    assert_eq!((&second.lock_id, second.token), (&first.lock_id, first.token));
    // The first answer was not received; the second claimed the grant.
    drop(first);
    here.clone().retire().await;
    drop(second);
    let other = AcquireRequest { lock_id: LockId::optional("other").unwrap(), ..asked };
    match there.try_lock(other).await {
        Err(LockError::InvalidRequest(violation)) => assert_eq!(violation.field, "lock_id"),
        other => panic!("{other:?}"),
    }
}

/// Trap: redis 22
#[tokio::test]
async fn a_release_spares_what_a_repeated_request_has_got_elsewhere() {
    let server = RedisServer::start();
    let (here, there) = (open(&server).await, open(&server).await);
    for mode in [Mode::Exclusive, Mode::Shared] {
        let request_id = RequestId::new("once").unwrap();
        let asked = AcquireRequest { request_id, mode, ..request("r", MINUTE) };
        let first = here.try_lock(asked.clone()).await.unwrap();
        let second = there.try_lock(asked).await.unwrap();
        let end = async |store: &Store, granted: &Granted| {
            let abandoned = Abandoned {
                resource: "r".parse().unwrap(),
                lock_id: granted.lock_id.clone(),
                id: granted.id,
                claims: vec![granted.attempt],
            };
            store.abandon(abandoned).end().await;
        };
        end(&here, &first).await;
        assert!(here.try_lock(request("r", MINUTE)).await.is_err(), "{mode:?}: it was spared");
        end(&there, &second).await;
        let third = here.try_lock(request("r", MINUTE)).await.unwrap();
        end(&here, &third).await;
    }
}

#[tokio::test]
async fn a_grant_that_nobody_received_is_released_at_once() {
    let server = RedisServer::start();
    let store = open(&server).await;
    drop(store.try_lock(request("r", MINUTE)).await.unwrap());
    let mut connection = server.connect();
    until("released", || ask::<i64>(&mut connection, &["EXISTS", "r"]) == 0).await;
}

#[tokio::test]
async fn a_foreign_value_is_held_by_whoever_knows_it() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    let () = ask(&mut connection, &["SET", "r", "owner", "NX", "EX", "60"]);
    let held = store.try_lock(request("r", MINUTE)).await;
    assert_eq!(held.unwrap_err(), LockError::Locked { by: None });
    let renew = RenewRequest {
        resource: "r".parse().unwrap(),
        lock_id: "owner".parse().unwrap(),
        ttl: Some(MINUTE * 2),
    };
    store.renew(renew).await.unwrap();
    let by =
        |lock_id: &str| UnlockRequest::owner("r".parse().unwrap(), lock_id.parse().unwrap());
    assert_eq!(store.unlock(by("x")).await, Err(LockError::NotFound { held: true }));
    store.unlock(by("owner")).await.unwrap();
}

#[tokio::test]
async fn a_record_that_a_foreigner_outdated_is_not_believed() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let asked = AcquireRequest {
        request_id: RequestId::new("once").unwrap(),
        holder: Holder::new("old").unwrap(),
        ..request("r", MINUTE)
    };
    store.try_lock(asked.clone()).await.unwrap().receipt.accept();
    let () = ask(&mut server.connect(), &["SET", "r", "owner", "EX", "60"]);
    let held = store.try_lock(asked).await;
    assert_eq!(held.unwrap_err(), LockError::Locked { by: None });
}

#[tokio::test]
async fn a_holder_that_is_no_text_is_left_out_of_the_refusal() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    // A record is believed if it ends with the key.
    let ends = "4102444800000";
    let () = ask(&mut connection, &["SET", "r", "foo", "PXAT", ends]);
    let record: &[u8] = b"5:ab:ab:x:1:30000:00:3:0:foo\xff";
    let mut set = redis::cmd("SET");
    let () = set
        .arg("\x01h{2Rk}r")
        .arg(record)
        .arg("PXAT")
        .arg(ends)
        .query(&mut connection)
        .unwrap();
    let refused = store.try_lock(request("r", MINUTE)).await;
    match refused {
        Err(LockError::Locked { by: Some(grant) }) => assert_eq!(grant.holder, None),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_key_of_another_type_is_never_touched() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    let () = ask(&mut connection, &["HSET", "r", "a", "b"]);
    assert!(matches!(
        store.try_lock(request("r", MINUTE)).await,
        Err(LockError::InvalidRequest(_))
    ));
    assert!(matches!(store.unlock(force("r")).await, Err(LockError::InvalidRequest(_))));
    assert_eq!(ask::<String>(&mut connection, &["TYPE", "r"]), "hash");
}

/// A wait for one counted as a wait for a lock without an end.
#[tokio::test]
async fn a_wait_for_a_key_of_another_type_is_refused() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    let _: i64 = ask(&mut connection, &["LPUSH", "r", "a"]);
    let refused = soon(wait(&store, "r", MINUTE)).await.unwrap().map(drop);
    assert!(matches!(refused, Err(LockError::InvalidRequest(_))), "{refused:?}");
    assert_eq!(waiting(&mut connection, "r"), 0);
}

/// The key of the resource was set before a later command failed.
#[tokio::test]
async fn a_try_that_fails_at_a_key_of_another_type_leaves_nothing() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    for foreign in [["SET", "\x01q{2Rk}r", "by", ""], ["HSET", "\x01c{2Rk}", "by", "hand"]] {
        let words = if foreign[0] == "SET" { &foreign[..3] } else { &foreign };
        let _: redis::Value = ask(&mut connection, words);
        let refused = store.try_lock(request("r", MINUTE)).await.map(drop);
        assert!(matches!(refused, Err(LockError::InvalidRequest(_))), "{refused:?}");
        assert_eq!(ask::<i64>(&mut connection, &["EXISTS", "r", "\x01h{2Rk}r"]), 0);
        let _: i64 = ask(&mut connection, &["DEL", foreign[1]]);
    }
}

#[tokio::test]
async fn without_memory_nothing_is_changed() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let held = take(&store, "held", MINUTE).await;
    let mut connection = server.connect();
    let () = ask(&mut connection, &["CONFIG", "SET", "maxmemory", "1"]);
    match store.try_lock(request("r", MINUTE)).await {
        Err(LockError::StoreUnavailable(why)) => assert!(why.contains("OOM"), "{why}"),
        other => panic!("{other:?}"),
    }
    store.unlock(unlock(&held, "held")).await.unwrap();
    let () = ask(&mut connection, &["CONFIG", "SET", "maxmemory", "0"]);
    let keys: Vec<String> = ask(&mut connection, &["KEYS", "*"]);
    assert!(keys.iter().all(|key| key.starts_with("\x01c")), "{keys:?}");
}

/// A server without memory refused the repetition of a request that had its grant.
#[tokio::test]
async fn without_memory_a_repeated_request_finds_its_grant_and_nobody_gets_a_new_one() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let asked = || AcquireRequest {
        request_id: RequestId::new("once").unwrap(),
        ..request("r", MINUTE)
    };
    let held = store.try_lock(asked()).await.unwrap();
    held.receipt.accept();
    let () = ask(&mut server.connect(), &["CONFIG", "SET", "maxmemory", "1"]);
    let again = store.try_lock(asked()).await.unwrap();
    again.receipt.accept();
    assert_eq!((again.lock_id, again.token), (held.lock_id, held.token));
    let other = store.try_lock(request("r", MINUTE)).await;
    assert!(matches!(other, Err(LockError::Locked { .. })), "{:?}", other.map(drop));
    let waits = store.lock(request("r", MINUTE)).await;
    assert!(matches!(waits, Err(LockError::StoreUnavailable(_))), "{:?}", waits.map(drop));
}

#[tokio::test]
async fn an_uncontended_cycle_costs_few_commands() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    let () = ask(&mut connection, &["CONFIG", "RESETSTAT"]);
    for _ in 0..100 {
        let granted = take(&store, "r", MINUTE).await;
        store.unlock(unlock(&granted, "r")).await.unwrap();
    }
    let spent = commands(&mut connection);
    assert!(spent <= 1050, "{spent} commands for 100 cycles");
}

fn token_of(granted: &Granted) -> u64 {
    granted.token.unwrap().get()
}

pub(super) fn commands(connection: &mut redis::Connection) -> u64 {
    let info: String = ask(connection, &["INFO", "commandstats"]);
    info.lines()
        .filter(|line| line.starts_with("cmdstat_"))
        .filter(|line| !line.contains("config") && !line.contains("info"))
        .filter_map(|line| line.split("calls=").nth(1)?.split(',').next()?.parse::<u64>().ok())
        .sum()
}

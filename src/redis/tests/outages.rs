//! Lost messages, and faults of the server.

use leasehold_lock::inspect::{Listing, PageRequest, Scope};

use super::*;

fn kill_clients(connection: &mut redis::Connection) {
    let _: i64 = ask(connection, &["CLIENT", "KILL", "TYPE", "pubsub"]);
}

#[tokio::test]
async fn a_library_that_was_flushed_is_loaded_again() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    let library = if without_functions() { "SCRIPT" } else { "FUNCTION" };
    let () = ask(&mut connection, &[library, "FLUSH"]);
    let held = take(&store, "r", MINUTE).await;
    let () = ask(&mut connection, &[library, "FLUSH"]);
    store.renew(renewal(&held, "r", MINUTE)).await.unwrap();
    let () = ask(&mut connection, &[library, "FLUSH"]);
    store.unlock(unlock(&held, "r")).await.unwrap();
}

/// Trap: redis 6, redis 39
#[tokio::test]
async fn a_cut_connection_is_made_anew_and_waiters_stay_in_line() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let held = take(&store, "r", MINUTE).await;
    let first = wait(&store, "r", MINUTE);
    let mut connection = server.connect();
    until("queued", || waiting(&mut connection, "r") == 1).await;
    kill_clients(&mut connection);
    store.renew(renewal(&held, "r", MINUTE)).await.unwrap();
    assert_eq!(waiting(&mut connection, "r"), 1);
    store.unlock(unlock(&held, "r")).await.unwrap();
    soon(first).await.unwrap().unwrap();
}

/// Trap: redis 6
#[tokio::test]
async fn waiters_outlive_a_restart_that_lost_everything() {
    let mut server = RedisServer::start();
    let store = open(&server).await;
    take(&store, "r", MINUTE).await;
    let first = wait(&store, "r", MINUTE);
    let mut connection = server.connect();
    until("queued", || waiting(&mut connection, "r") == 1).await;
    server.kill();
    server.restart();
    soon(first).await.unwrap().unwrap();
}

#[tokio::test]
async fn without_a_server_it_did_not_happen_and_does_not_later() {
    let mut server = RedisServer::start();
    let store = open_with(&server, &[("operationTimeout", "300ms")]).await;
    server.kill();
    assert!(!unavailable(&store).await.is_empty());
    server.restart();
    soon(async { while store.ping().await.is_err() {} }).await;
    let exists: i64 = ask(&mut server.connect(), &["EXISTS", "r"]);
    assert_eq!(exists, 0);
    take(&store, "r", MINUTE).await;
}

/// Trap: redis 1
#[tokio::test]
async fn a_silent_server_makes_the_outcome_unknown_and_it_is_settled_afterwards() {
    let server = RedisServer::start();
    let store = open_with(&server, &[("operationTimeout", "300ms")]).await;
    server.process.suspend().unwrap();
    let unknown = store.try_lock(request("r", MINUTE)).await;
    assert!(matches!(unknown, Err(LockError::OutcomeUnknown(_))), "{unknown:?}");
    // So long that the connection is doubted, too.
    for _ in 0..3 {
        store.try_lock(request("r", MINUTE)).await.unwrap_err();
    }
    server.process.resume().unwrap();
    // Whatever had been sent is ordered before its clean-up, or ended with its
    // connection: another caller gets the lock, and its grant stays.
    let granted = soon(async {
        loop {
            if let Ok(granted) = store.try_lock(request("r", MINUTE)).await {
                return granted;
            }
        }
    })
    .await;
    granted.receipt.accept();
    store.clone().retire().await;
    let value: String = ask(&mut server.connect(), &["GET", "r"]);
    assert_eq!(value, granted.lock_id.as_str());
}

#[tokio::test]
async fn a_wait_ends_unavailable_when_the_outage_is_longer_than_it_bears() {
    let mut server = RedisServer::start();
    let store = open_with(&server, &[("operationTimeout", "300ms")]).await;
    take(&store, "r", MINUTE).await;
    let first = wait(&store, "r", MINUTE);
    let mut connection = server.connect();
    until("queued", || waiting(&mut connection, "r") == 1).await;
    server.kill();
    let ended = soon(first).await.unwrap();
    assert!(matches!(ended, Err(LockError::StoreUnavailable(_))), "{ended:?}");
}

#[tokio::test]
async fn a_wrong_password_is_the_fault_of_the_property_and_is_not_repeated() {
    let server = RedisServer::start_with(&["--requirepass", "right"]);
    for more in [&[("redisPassword", "wrong-secret")][..], &[]] {
        match try_open(&server.address(), more).await {
            Err(LockError::InvalidMetadata(violations)) => {
                assert_eq!(violations[0].field, "redisPassword");
                assert!(!violations[0].problem.contains("wrong-secret"));
            }
            other => panic!("{:?}", other.err()),
        }
    }
    take(&open_with(&server, &[("redisPassword", "right")]).await, "r", MINUTE).await;
}

#[tokio::test]
async fn a_database_that_is_not_there_is_the_fault_of_the_property() {
    let server = RedisServer::start();
    match try_open(&server.address(), &[("redisDB", "99")]).await {
        Err(LockError::InvalidMetadata(violations)) => {
            assert_eq!(violations[0].field, "redisDB");
        }
        other => panic!("{:?}", other.err()),
    }
    take(&open_with(&server, &[("redisDB", "3")]).await, "r", MINUTE).await;
}

#[tokio::test]
async fn an_unreachable_server_is_unavailable() {
    let mut server = RedisServer::start();
    server.kill();
    let refused = try_open(&server.address(), &[]).await.err();
    assert!(matches!(refused, Some(LockError::StoreUnavailable(_))), "{refused:?}");
}

/// Trap: redis 20
#[tokio::test]
async fn a_closed_store_leaves_nothing() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let held = take(&store, "r", MINUTE).await;
    let first = wait(&store, "r", MINUTE);
    let mut connection = server.connect();
    until("queued", || waiting(&mut connection, "r") == 1).await;
    store.unlock(unlock(&held, "r")).await.unwrap();
    let granted = soon(first).await.unwrap().unwrap();
    store.unlock(unlock(&granted, "r")).await.unwrap();
    store.retire().await;
    let keys: Vec<String> = ask(&mut connection, &["KEYS", "*"]);
    assert!(keys.iter().all(|key| key.starts_with("\x01c")), "{keys:?}");
    until("disconnected", || {
        let clients: String = ask(&mut connection, &["CLIENT", "LIST"]);
        clients.lines().count() == 1
    })
    .await;
}

/// Adds the user that the page describes, with further permissions.
pub(super) fn add_documented_user(connection: &mut redis::Connection, in_cluster: bool) {
    let documented = include_str!("../../../docs/redis.md");
    // The first is for a single node, the second for a node of a Cluster.
    let mut rules = documented.split("ACL SETUSER leasehold on >password").skip(1);
    let rule = rules.nth(usize::from(in_cluster)).unwrap();
    let (rule, _) = rule.split_once("\nEND").unwrap();
    assert!(!rule.contains('\n'), "redis-cli takes a line for a command");
    // As redis-cli reads it.
    let rule = rule.replace(r#""&\x01n*""#, "&\x01n*");
    let mut setuser = redis::cmd("ACL");
    setuser.arg("SETUSER").arg("leasehold").arg("on").arg(">password");
    setuser.arg(rule.split_whitespace().collect::<Vec<_>>());
    let () = setuser.query(connection).unwrap();
}

#[tokio::test]
async fn the_documented_permissions_suffice() {
    let server = RedisServer::start();
    let mut connection = server.connect();
    add_documented_user(&mut connection, false);
    let user = [("redisUsername", "leasehold"), ("redisPassword", "password")];
    let store = open_with(&server, &user).await;
    let held = take(&store, "r", SECOND * 5).await;
    store.renew(renewal(&held, "r", SECOND * 5)).await.unwrap();
    let first = wait(&store, "r", SECOND * 5);
    let second = wait(&store, "r", SECOND * 5);
    until("queued", || waiting(&mut connection, "r") == 2).await;
    kill_clients(&mut connection);
    store.unlock(unlock(&held, "r")).await.unwrap();
    soon(first).await.unwrap().unwrap();
    store.unlock(force("r")).await.unwrap();
    soon(second).await.unwrap().unwrap();
    store.unlock(force("r")).await.unwrap();
    share_with_documented_permissions(&store, &mut connection).await;
    let denied: Vec<redis::Value> = ask(&mut connection, &["ACL", "LOG"]);
    assert!(denied.is_empty(), "{denied:?}");
}

/// Waiters whose notices the server refused counted as dead, and lost the resource.
#[tokio::test]
async fn a_waiter_keeps_its_turn_where_nobody_may_publish() {
    let server = RedisServer::start();
    let mut connection = server.connect();
    let user = ["ACL", "SETUSER", "u", "on", ">p", "~*", "&*", "+@all", "-publish"];
    let () = ask(&mut connection, &user);
    let user = [("redisUsername", "u"), ("redisPassword", "p")];
    let (store, other) = (open_with(&server, &user).await, open_with(&server, &user).await);
    let held = take(&store, "r", MINUTE).await;
    let waits = wait(&other, "r", MINUTE);
    until("queued", || waiting(&mut connection, "r") == 1).await;
    store.unlock(unlock(&held, "r")).await.unwrap();
    let overtaken = store.try_lock(request("r", MINUTE)).await.map(drop);
    assert!(matches!(overtaken, Err(LockError::Locked { .. })), "{overtaken:?}");
    soon(waits).await.unwrap().unwrap();
}

/// Whatever shared locks need.
async fn share_with_documented_permissions(store: &Store, connection: &mut redis::Connection) {
    let shared = AcquireRequest { mode: leasehold_lock::Mode::Shared, ..request("r", MINUTE) };
    store.try_lock(shared.clone()).await.unwrap().receipt.accept();
    // Only its key ends, as if somebody had deleted it.
    end_in(connection, 1);
    until("over", || ask::<i64>(connection, &["EXISTS", "r"]) == 0).await;
    let reader = store.try_lock(shared.clone()).await.unwrap();
    reader.receipt.accept();
    let brief = store.try_lock(shared.clone()).await.unwrap();
    brief.receipt.accept();
    super::shared::end_reader_in(connection, &brief, -1);
    // The next drops what has expired.
    store.try_lock(shared.clone()).await.unwrap().receipt.accept();
    store.renew(renewal(&reader, "r", MINUTE)).await.unwrap();
    let writer = wait(store, "r", MINUTE);
    until("queued", || waiting(connection, "r") == 1).await;
    let behind = tokio::spawn({
        let store = store.clone();
        async move { store.lock(shared).await.map(|granted| granted.receipt.accept()) }
    });
    until("queued", || waiting(connection, "r") == 2).await;
    let before = super::places::calls_made(connection);
    until("looked at", || super::places::calls_made(connection) >= before + 2).await;
    writer.abort();
    soon(behind).await.unwrap().unwrap();
    inspect_with_documented_permissions(store).await;
    store.unlock(unlock(&reader, "r")).await.unwrap();
    store.unlock(force("r")).await.unwrap();
}

async fn inspect_with_documented_permissions(store: &Store) {
    let (resource, page) = ("r".parse().unwrap(), PageRequest::first(10));
    let found = store.get(&resource, &page).await.unwrap();
    assert!(!found.lock.grants.is_empty(), "{found:?}");
    store.waiters(&resource, &page).await.unwrap();
    let (scope, holder_prefix) = (Scope::prefix(""), String::new());
    store.list(&Listing { scope, holder_prefix, page }).await.unwrap();
}

/// Opening a connection took some twenty round trips, more than its time allows for.
#[tokio::test]
async fn a_server_that_is_far_away_is_connected_to_again() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address()).await;
    let store = try_open(proxy.address(), &[]).await.unwrap();
    take(&store, "r", MINUTE).await;
    proxy.delay_replies(Duration::from_millis(250));
    proxy.cut();
    let reconnected = tokio::time::timeout(Duration::from_secs(30), async {
        while store.try_lock(request("free", MINUTE)).await.is_err() {}
    });
    reconnected.await.expect("the connection is opened again");
}

/// The ID of the store's connection at the server.
fn client_id(connection: &mut redis::Connection) -> String {
    let list: String = ask(connection, &["CLIENT", "LIST", "TYPE", "pubsub"]);
    list.split_whitespace().next().unwrap().to_owned()
}

/// A firewall forgets a connection, and new ones work.
/// Trap: redis 39
#[tokio::test]
async fn a_connection_that_falls_silent_is_replaced_however_patient_calls_are() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address()).await;
    let patient = [("operationTimeout", "60s")];
    let store = try_open(proxy.address(), &patient).await.unwrap();
    let held = take(&store, "r", MINUTE).await;
    let first = wait(&store, "r", MINUTE);
    let mut connection = server.connect();
    until("queued", || waiting(&mut connection, "r") == 1).await;
    proxy.vanish();
    soon(store.renew(renewal(&held, "r", MINUTE))).await.unwrap();
    assert_eq!(waiting(&mut connection, "r"), 1);
    store.unlock(unlock(&held, "r")).await.unwrap();
    soon(first).await.unwrap().unwrap();
    soon(proxy.given_up()).await;
}

/// Trap: redis 39
#[tokio::test]
async fn a_server_that_is_silent_on_new_connections_too_keeps_the_old_one() {
    for slow in [&["DEBUG", "SLEEP", "4"][..], &["CLIENT", "PAUSE", "4000", "WRITE"]] {
        let server = RedisServer::start_with(&["--enable-debug-command", "local"]);
        let proxy = Proxy::start(server.address()).await;
        let patient = [("operationTimeout", "60s")];
        let store = try_open(proxy.address(), &patient).await.unwrap();
        take(&store, "r", MINUTE).await;
        let first = wait(&store, "r", MINUTE);
        let mut connection = server.connect();
        until("queued", || waiting(&mut connection, "r") == 1).await;
        let (before, opened) = (client_id(&mut connection), proxy.admitted());
        let sleeping = std::thread::spawn(move || {
            let () = ask(&mut connection, slow);
            connection
        });
        soon(async {
            while proxy.admitted() == opened {
                let _ = store.try_lock(request("r", MINUTE)).await;
            }
        })
        .await;
        soon(store.try_lock(request("free", MINUTE))).await.unwrap();
        let mut connection = sleeping.join().unwrap();
        assert_eq!(client_id(&mut connection), before, "{slow:?}");
        assert_eq!(waiting(&mut connection, "r"), 1);
        assert!(proxy.admitted() <= opened + 2, "{} connections", proxy.admitted() - opened);
        first.abort();
    }
}

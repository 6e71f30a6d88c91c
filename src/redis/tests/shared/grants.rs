//! Shared grants beside each other: each has its own life.

use super::{super::grants::commands, *};

/// Trap: redis 61
#[tokio::test]
async fn the_key_ends_with_the_last_reader_whoever_comes_renews_and_goes() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    let mut rng = fastrand::Rng::with_seed(1);
    let mut all = vec![read(&store, "r", MINUTE).await];
    for _ in 0..200 {
        let ttl = SECOND * rng.u32(10..100);
        let which = rng.usize(..all.len());
        match rng.u8(..3) {
            0 => all.push(read(&store, "r", ttl).await),
            1 => drop(store.renew(renewal(&all[which], "r", ttl)).await.unwrap()),
            _ if all.len() > 1 => {
                store.unlock(unlock(&all.swap_remove(which), "r")).await.unwrap();
            }
            _ => {}
        }
        let (key, last) = ends(&mut connection);
        assert_eq!(key, last);
    }
}

/// Trap: redis 59
#[tokio::test]
async fn a_renewal_extends_no_other_shared_grant() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let dead = read(&store, "r", MINUTE).await;
    let live = read(&store, "r", MINUTE).await;
    let mut connection = server.connect();
    end_reader_in(&mut connection, &dead, 500);
    let over = Instant::now() + SECOND;
    while Instant::now() < over {
        store.renew(renewal(&live, "r", MINUTE)).await.unwrap();
        tokio::time::sleep(SECOND / 20).await;
    }
    let renewed = store.renew(renewal(&dead, "r", MINUTE)).await;
    assert_eq!(renewed, Err(LockError::NotFound { held: true }));
    let (key, last) = ends(&mut connection);
    assert_eq!(key, last);
}

#[tokio::test]
async fn the_last_release_leaves_no_key() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let all = readers(&store, "r", 3).await;
    unlock_all(&store, "r", &all).await;
    let keys: Vec<String> = ask(&mut server.connect(), &["KEYS", "*"]);
    assert!(keys.iter().all(|key| key.starts_with("\x01c")), "{keys:?}");
    let gone = store.unlock(unlock(&all[0], "r")).await;
    assert_eq!(gone, Err(LockError::NotFound { held: false }));
}

/// Trap: redis 59
#[tokio::test]
async fn an_expired_shared_grant_exists_for_no_verb() {
    let server = RedisServer::start();
    let store = open_with(&server, &[("maxHolders", "2")]).await;
    let asked =
        AcquireRequest { request_id: RequestId::new("once").unwrap(), ..shared("r", MINUTE) };
    let dead = store.try_lock(asked.clone()).await.unwrap();
    dead.receipt.accept();
    read(&store, "r", MINUTE).await;
    let expired = Err(LockError::NotFound { held: true });
    end_reader_in(&mut server.connect(), &dead, -1);
    assert_eq!(store.renew(renewal(&dead, "r", MINUTE)).await.map(drop), expired);
    assert_eq!(store.unlock(unlock(&dead, "r")).await, expired);
    let newer = store.try_lock(asked).await.unwrap();
    assert_ne!(newer.lock_id, dead.lock_id);
}

#[tokio::test]
async fn a_repeated_request_finds_its_own_grant_among_thousands() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let asked =
        AcquireRequest { request_id: RequestId::new("once").unwrap(), ..shared("r", MINUTE) };
    let first = store.try_lock(asked.clone()).await.unwrap();
    first.receipt.accept();
    let mut connection = server.connect();
    let mut spent = Vec::new();
    for more in [3, 3_000] {
        readers(&store, "r", more).await;
        let () = ask(&mut connection, &["CONFIG", "RESETSTAT"]);
        let found = store.try_lock(asked.clone()).await.unwrap();
        assert_eq!((&found.lock_id, found.token), (&first.lock_id, first.token));
        spent.push(commands(&mut connection));
    }
    assert_eq!(spent[0], spent[1], "commands with few and with many readers");
}

#[tokio::test]
async fn two_waiters_with_one_lock_id_are_granted_once() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let held = take(&store, "r", MINUTE).await;
    let asked =
        AcquireRequest { lock_id: LockId::optional("me").unwrap(), ..shared("r", MINUTE) };
    let waits = [store.clone(), store.clone()].map(|store| {
        let asked = asked.clone();
        tokio::spawn(async move { store.lock(asked).await.map(|got| got.receipt.accept()) })
    });
    let mut connection = server.connect();
    until("queued", || waiting(&mut connection, "r") == 2).await;
    store.unlock(unlock(&held, "r")).await.unwrap();
    let mut granted = 0;
    for wait in waits {
        match soon(wait).await.unwrap() {
            Ok(_) => granted += 1,
            Err(LockError::InvalidRequest(violation)) => {
                assert_eq!(violation.field, "lock_id");
            }
            Err(other) => panic!("{other:?}"),
        }
    }
    assert_eq!(granted, 1);
}

/// The lock ID of a grant must never equal another value of the resource's key.
#[tokio::test]
async fn a_lock_id_that_begins_with_the_byte_one_is_refused_by_every_verb() {
    let server = RedisServer::start();
    let store = open(&server).await;
    read(&store, "r", MINUTE).await;
    let mark: String = ask(&mut server.connect(), &["GET", "r"]);
    let lock_id: LockId = mark.parse().unwrap();
    let asked = AcquireRequest { lock_id: Some(lock_id.clone()), ..request("free", MINUTE) };
    let resource: leasehold_lock::ResourceId = "r".parse().unwrap();
    let renew =
        RenewRequest { resource: resource.clone(), lock_id: lock_id.clone(), ttl: None };
    for refused in [
        store.try_lock(asked.clone()).await.map(drop),
        soon(store.lock(asked)).await.map(drop),
        store.renew(renew).await.map(drop),
        store.unlock(UnlockRequest::owner(resource, lock_id)).await,
    ] {
        match refused {
            Err(LockError::InvalidRequest(violation)) => {
                assert_eq!(violation.field, "lock_id");
            }
            other => panic!("{other:?}"),
        }
    }
}

/// The release of the only reader looked at the key alone, which somebody had made last.
#[tokio::test]
async fn the_only_reader_past_its_end_holds_nothing_though_its_key_is_there() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    let reader = read(&store, "r", MINUTE).await;
    for key in ["r", "\x01r{2Rk}r", "\x01e{2Rk}r", "\x01t{2Rk}r"] {
        let () = ask(&mut connection, &["PERSIST", key]);
    }
    end_reader_in(&mut connection, &reader, -1);
    let late = store.unlock(unlock(&reader, "r")).await;
    assert_eq!(late.unwrap_err(), LockError::NotFound { held: false });
}

#[tokio::test]
async fn the_last_reader_leaves_no_record_of_an_exclusive_grant_deleted_by_hand() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    take(&store, "r", MINUTE).await;
    let () = ask(&mut connection, &["DEL", "r"]);
    let reader = read(&store, "r", MINUTE).await;
    store.unlock(unlock(&reader, "r")).await.unwrap();
    assert_eq!(ask::<Vec<String>>(&mut connection, &["KEYS", "*r"]), Vec::<String>::new());
}

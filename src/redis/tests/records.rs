//! Which record belongs to a key, and when it is over.

use super::{
    dead::{FROZEN, freeze},
    *,
};

/// What an app asks that brings its own owner name and repeats its requests.
fn asked(ttl: Duration) -> AcquireRequest {
    AcquireRequest {
        lock_id: LockId::optional("owner").unwrap(),
        request_id: RequestId::new("once").unwrap(),
        holder: Holder::new("app-1").unwrap(),
        ..request("r", ttl)
    }
}

/// The key's end and its record's, in milliseconds of the server's clock.
fn ends(connection: &mut redis::Connection) -> (i64, i64) {
    (ask(connection, &["PEXPIRETIME", "r"]), ask(connection, &["PEXPIRETIME", "\x01h{2Rk}r"]))
}

/// Locks `r` as the built-in `lock.redis` does.
fn lock_by_the_built_in(connection: &mut redis::Connection) {
    let set: String = ask(connection, &["SET", "r", "owner", "EX", "30", "NX"]);
    assert_eq!(set, "OK");
}

/// A process that stands still once it waits: connected and subscribed, but it
/// never confirms.
fn stand_still_waiting(server: &RedisServer) -> std::sync::mpsc::Sender<()> {
    let address = server.address();
    let mut connection = server.connect();
    let (go_on, going_on) = std::sync::mpsc::channel::<()>();
    let (queued, waits) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.unwrap();
        runtime.block_on(async {
            let store = try_open(&address, &[]).await.unwrap();
            tokio::spawn(async move { store.lock(asked(MINUTE)).await.map(drop) });
            until("queued", || ask::<i64>(&mut connection, &["EXISTS", "\x01q{2Rk}r"]) == 1)
                .await;
        });
        queued.send(()).unwrap();
        let _ = going_on.recv();
        runtime.shutdown_background();
    });
    waits.recv().unwrap();
    go_on
}

/// Trap: redis 48
#[tokio::test]
async fn a_record_ends_with_its_key_however_the_grant_was_made() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    let held = store.try_lock(asked(MINUTE)).await.unwrap();
    held.receipt.accept();
    let (key, record) = ends(&mut connection);
    assert_eq!(key, record, "granted");
    store.renew(renewal(&held, "r", MINUTE * 2)).await.unwrap();
    let (key, record) = ends(&mut connection);
    assert_eq!(key, record, "renewed");
    store.try_lock(asked(MINUTE)).await.unwrap().receipt.accept();
    let (key, record) = ends(&mut connection);
    assert_eq!(key, record, "found again");
    let next = wait(&store, "r", MINUTE);
    until("queued", || ask::<i64>(&mut connection, &["EXISTS", "\x01q{2Rk}r"]) == 1).await;
    store.unlock(unlock(&held, "r")).await.unwrap();
    soon(next).await.unwrap().unwrap();
    let (key, record) = ends(&mut connection);
    assert_eq!(key, record, "handed over");
}

/// Trap: redis 48
#[tokio::test]
async fn a_hand_over_that_lapsed_leaves_no_record() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    let held = take(&store, "r", MINUTE).await;
    let still = stand_still_waiting(&server);
    store.unlock(unlock(&held, "r")).await.unwrap();
    let value: String = ask(&mut connection, &["GET", "r"]);
    assert!(value.contains("once"), "handed over: {value}");
    // The built-in store takes it as soon as the hand-over has lapsed.
    until("lapsed", || {
        let set: Option<String> =
            ask(&mut connection, &["SET", "r", "owner", "EX", "30", "NX"]);
        set.is_some()
    })
    .await;
    let repeated = store.try_lock(asked(MINUTE)).await;
    assert!(matches!(repeated, Err(LockError::Locked { .. })), "{repeated:?}");
    drop(still);
}

/// A hand-over that nobody confirmed or looked at left the record of the grant
/// before: a lock by other means that ended in its millisecond was taken for it.
/// Trap: redis 48
#[tokio::test]
async fn a_released_grant_leaves_no_record_behind_a_hand_over() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    let _frozen = freeze(&server);
    for how in ["unlock", "force", "withdrawal"] {
        let granted = store.try_lock(asked(MINUTE)).await.unwrap();
        let ends: String = ask(&mut connection, &["PEXPIRETIME", "\x01h{2Rk}r"]);
        put_places(&mut connection, "r", FROZEN, 1);
        match how {
            "withdrawal" => drop(granted),
            _ => {
                let release = if how == "force" { force("r") } else { unlock(&granted, "r") };
                granted.receipt.accept();
                store.unlock(release).await.unwrap();
            }
        }
        until("handed over", || {
            ask::<String>(&mut connection, &["GET", "r"]).starts_with('\x01')
        })
        .await;
        let () = ask(&mut connection, &["SET", "r", "owner", "PXAT", &ends]);
        let repeated = store.try_lock(asked(MINUTE)).await;
        assert!(matches!(repeated, Err(LockError::Locked { .. })), "{how}: {repeated:?}");
        let _: i64 = ask(&mut connection, &["DEL", "r", "\x01h{2Rk}r"]);
    }
}

/// Trap: redis 48
#[tokio::test]
async fn a_foreign_lock_of_the_same_owner_is_not_taken_for_a_dead_grant() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    store.try_lock(asked(MINUTE)).await.unwrap().receipt.accept();
    let () = ask(&mut connection, &["DEL", "r"]);
    lock_by_the_built_in(&mut connection);
    let repeated = store.try_lock(asked(SECOND)).await;
    assert_eq!(repeated.map(drop).unwrap_err(), LockError::Locked { by: None });
    let left_ms: u64 = ask(&mut connection, &["PTTL", "r"]);
    assert!(left_ms > 20_000, "its TTL was cut to {left_ms} ms");
}

/// Trap: redis 48
#[tokio::test]
async fn a_renewed_foreign_lock_is_not_taken_for_a_dead_grant() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    let dead = store.try_lock(asked(MINUTE)).await.unwrap();
    dead.receipt.accept();
    let () = ask(&mut connection, &["DEL", "r"]);
    lock_by_the_built_in(&mut connection);
    store.renew(renewal(&dead, "r", MINUTE)).await.unwrap();
    let repeated = store.try_lock(asked(SECOND)).await;
    assert_eq!(repeated.map(drop).unwrap_err(), LockError::Locked { by: None });
}

/// Trap: redis 48
#[tokio::test]
async fn the_clean_up_of_a_dead_grant_spares_a_foreign_lock_of_the_same_owner() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    let unreceived = store.try_lock(asked(MINUTE)).await.unwrap();
    let () = ask(&mut connection, &["DEL", "r"]);
    lock_by_the_built_in(&mut connection);
    drop(unreceived);
    store.retire().await;
    assert_eq!(ask::<i64>(&mut connection, &["EXISTS", "r"]), 1);
}

/// Trap: redis 48
#[tokio::test]
async fn a_key_whose_expiry_was_taken_away_by_hand_counts_as_foreign() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    store.try_lock(asked(MINUTE)).await.unwrap().receipt.accept();
    for key in ["r", "\x01h{2Rk}r"] {
        let () = ask(&mut connection, &["PERSIST", key]);
    }
    let repeated = store.try_lock(asked(MINUTE)).await;
    assert_eq!(repeated.map(drop).unwrap_err(), LockError::Locked { by: None });
}

/// A server that is not let run for some milliseconds between two readings of its clock
/// took a live grant's record for a dead one's.
#[tokio::test]
async fn a_clock_that_jumps_between_two_readings_separates_no_record_from_its_key() {
    let server = RedisServer::start();
    let (_, text) =
        include_str!("../library/grant.lua").split_once("local function end_to").unwrap();
    let (body, _) = text.split_once("\nend\n").unwrap();
    let script = format!("local function end_to{body}\nend\n");
    for (left_ms, together) in [
        // The key's, the record's, then both again as often as they are asked for.
        ("100, 97, 97, 97, 97", 1),
        ("100, 100", 1),
        ("100, 97, 100", 0),
        ("100, 101", 0),
        ("-1, -1", 0),
        ("100, -1, 100", 0),
    ] {
        let stand_in = format!(
            "local APART_MS, answers, at = 0, {{ {left_ms} }}, 0\n\
             local redis = {{ call = function() at = at + 1; return answers[at] end }}\n"
        );
        let text = format!("{stand_in}{script}\nreturn end_together('a', 'b') and 1 or 0");
        let both: i64 = ask(&mut server.connect(), &["EVAL", &text, "0"]);
        assert_eq!(both, together, "{left_ms}");
    }
}

/// The record of a grant that a newer version made: its lock ID and the rest cannot be read.
#[tokio::test]
async fn the_grant_of_a_newer_version_is_neither_renewed_nor_released_nor_found() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    let time: (u64, u64) = ask(&mut connection, &["TIME"]);
    let ends = ((time.0 + 60) * 1000).to_string();
    let record = format!("7:{:032x}:{:032x}:x:2:unknown", 1, 1);
    let () = ask(&mut connection, &["SET", "r", "owner", "PXAT", &ends]);
    let () = ask(&mut connection, &["SET", &key('h', "r"), &record, "PXAT", &ends]);
    let before = changes(&mut connection);
    let newer = |error| match error {
        LockError::StoreUnavailable(why) | LockError::OutcomeUnknown(why) => {
            assert!(why.contains("a newer version of leasehold made the grant"), "{why}");
        }
        other => panic!("{other:?}"),
    };
    let (resource, lock_id) = ("r".parse().unwrap(), "owner".parse::<LockId>().unwrap());
    let renewal = RenewRequest { resource, lock_id: lock_id.clone(), ttl: Some(MINUTE) };
    newer(store.renew(renewal).await.unwrap_err());
    let unlock = UnlockRequest::owner("r".parse().unwrap(), lock_id);
    newer(store.unlock(unlock).await.unwrap_err());
    let repeated =
        AcquireRequest { request_id: RequestId::new("once").unwrap(), ..request("r", MINUTE) };
    newer(store.try_lock(repeated).await.map(drop).unwrap_err());
    let refused = store.try_lock(request("r", MINUTE)).await.map(drop);
    assert!(matches!(refused, Err(LockError::Locked { .. })), "{refused:?}");
    assert_eq!(changes(&mut connection), before);
}

/// A hand-over spares the record of a grant that a newer version made. A waiter that had missed its
/// notice then did not find its turn, and entered again at the end.
#[tokio::test]
async fn a_missed_notice_is_repeated_beside_the_record_of_a_newer_version() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    let _held = take(&store, "r", MINUTE).await;
    let first = wait(&store, "r", MINUTE);
    until("queued", || waiting(&mut connection, "r") == 1).await;
    let second = wait(&store, "r", MINUTE);
    until("queued", || waiting(&mut connection, "r") == 2).await;
    let place = places(&mut connection, "r").swap_remove(0);
    let record = format!("7:{:032x}:{:032x}:x:2:unknown", 1, 1);
    let () = ask(&mut connection, &["SET", &key('h', "r"), &record, "PX", "60000"]);
    let () = ask(&mut connection, &["SET", "r", &format!("\x01{place}"), "PX", "4000"]);
    let _: i64 = ask(&mut connection, &["ZREM", &key('q', "r"), &place]);
    soon(first).await.unwrap().unwrap();
    assert!(!second.is_finished());
}

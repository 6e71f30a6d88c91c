//! Shared grants when replies are lost.

use leasehold_lock::{Attempt, BackendError, ReleaseOf};

use super::{
    super::{
        port::{attempt, backend, in_time, known, owner, release},
        releases::by_force,
    },
    *,
};

fn sharing(lock_id: &str) -> Arc<Attempt> {
    Arc::new(Attempt { mode: Mode::Shared, ..(*attempt(lock_id)).clone() })
}

fn is_reader(connection: &mut redis::Connection, lock_id: &str) -> bool {
    ask::<Option<String>>(connection, &["ZSCORE", "\x01e{2Rk}r", lock_id]).is_some()
}

#[tokio::test]
async fn a_shared_try_whose_reply_was_lost_is_recognised_as_its_own() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address()).await;
    let (here, there) = (backend(proxy.address()).await, backend(&server.address()).await);
    there.try_lock(&sharing("other"), in_time()).await.unwrap();
    proxy.lose_reply_to("");
    let grant = here.try_lock(&sharing("me"), in_time()).await.unwrap();
    assert!(grant.created);
    assert_eq!(ask::<usize>(&mut server.connect(), &["ZCARD", "\x01e{2Rk}r"]), 2);
}

#[tokio::test]
async fn a_shared_wait_whose_replies_were_lost_is_granted_once() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address()).await;
    let (here, there) = (backend(proxy.address()).await, backend(&server.address()).await);
    there.try_lock(&attempt("first"), in_time()).await.unwrap();
    proxy.lose_reply_to("");
    let waiter = sharing("second");
    let asked = Arc::clone(&waiter);
    let waits = tokio::spawn(async move { here.lock(&asked).await });
    let mut connection = server.connect();
    until("queued", || waiting(&mut connection, "r") == 1).await;
    until("connected again", || processes(&mut connection).len() == 2).await;
    // The next request is most likely the confirmation.
    proxy.lose_reply_to("");
    there.unlock(&owner("first"), in_time()).await.unwrap();
    let grant = soon(waits).await.unwrap().unwrap();
    assert!(grant.created);
    assert_eq!(ask::<usize>(&mut connection, &["ZCARD", "\x01e{2Rk}r"]), 1);
    assert_eq!((called(&mut connection, "r"), waiting(&mut connection, "r")), (0, 0));
}

#[tokio::test]
async fn a_shared_release_whose_reply_was_lost_is_never_reported_as_not_held() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address()).await;
    let backend = backend(proxy.address()).await;
    backend.try_lock(&sharing("other"), in_time()).await.unwrap();
    let grant = backend.try_lock(&sharing("me"), in_time()).await.unwrap();
    proxy.lose_reply_to("");
    let released = backend.unlock(&known("me", &grant), in_time()).await;
    assert!(matches!(released, Err(BackendError::Unknown(_))), "{released:?}");
    let mut connection = server.connect();
    assert!(!is_reader(&mut connection, "me") && is_reader(&mut connection, "other"));
}

/// Trap: redis 59
#[tokio::test]
async fn a_shared_release_that_is_tried_again_spares_what_was_granted_since() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address()).await;
    let (here, there) = (backend(proxy.address()).await, backend(&server.address()).await);
    there.try_lock(&sharing("other"), in_time()).await.unwrap();
    let grant = here.try_lock(&sharing("me"), in_time()).await.unwrap();
    let release = known("me", &grant);
    proxy.lose_reply_to("");
    assert!(here.unlock(&release, in_time()).await.is_err());
    there.try_lock(&sharing("me"), in_time()).await.unwrap();
    let again = here.unlock(&release, in_time()).await;
    assert_eq!(again, Err(BackendError::NotHeld { held: true }));
    there.unlock(&owner("me"), in_time()).await.unwrap();
}

#[tokio::test]
async fn the_clean_up_of_a_shared_attempt_ends_only_its_own_grant() {
    let server = RedisServer::start();
    let backend = backend(&server.address()).await;
    let (gone, other) = (sharing("gone"), sharing("other"));
    backend.try_lock(&gone, in_time()).await.unwrap();
    backend.try_lock(&other, in_time()).await.unwrap();
    let same_name = release(ReleaseOf::Attempt(sharing("other")));
    let spared = backend.unlock(&same_name, in_time()).await;
    assert_eq!(spared, Err(BackendError::NotHeld { held: true }));
    backend.unlock(&release(ReleaseOf::Attempt(gone)), in_time()).await.unwrap();
    let mut connection = server.connect();
    assert!(!is_reader(&mut connection, "gone") && is_reader(&mut connection, "other"));
}

#[tokio::test]
async fn the_clean_up_of_a_shared_attempt_spares_a_grant_that_a_replay_has_claimed() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let asked =
        AcquireRequest { request_id: RequestId::new("once").unwrap(), ..shared("r", MINUTE) };
    let first = store.try_lock(asked.clone()).await.unwrap();
    let second = store.try_lock(asked).await.unwrap();
    second.receipt.accept();
    drop(first);
    store.clone().retire().await;
    assert!(is_reader(&mut server.connect(), second.lock_id.as_str()));
}

#[tokio::test]
async fn a_force_that_is_tried_again_spares_readers_that_joined_since() {
    /// More than one script ends.
    const OLDER: usize = 150;
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address()).await;
    let (here, there) = (backend(proxy.address()).await, backend(&server.address()).await);
    for n in 0..OLDER {
        there.try_lock(&sharing(&format!("older {n}")), in_time()).await.unwrap();
    }
    let force = release(ReleaseOf::Anyone);
    // The first sending never arrives.
    proxy.hold_request(by_force());
    proxy.refuse(true);
    let at_once = tokio::time::Instant::now() + SECOND / 2;
    assert!(here.unlock(&force, at_once).await.is_err());
    there.try_lock(&sharing("newer"), in_time()).await.unwrap();
    proxy.refuse(false);
    soon(async { while here.ping(in_time()).await.is_err() {} }).await;
    here.unlock(&force, in_time()).await.unwrap();
    let left: Vec<String> = ask(&mut server.connect(), &["ZRANGE", "\x01e{2Rk}r", "0", "-1"]);
    assert_eq!(left, ["newer"]);
}

#[tokio::test]
async fn a_force_that_is_tried_again_spares_later_shared_grants() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address()).await;
    let (here, there) = (backend(proxy.address()).await, backend(&server.address()).await);
    there.try_lock(&sharing("older"), in_time()).await.unwrap();
    let force = release(ReleaseOf::Anyone);
    proxy.lose_reply_to(by_force());
    let unknown = here.unlock(&force, in_time()).await;
    assert!(matches!(unknown, Err(BackendError::Unknown(_))), "{unknown:?}");
    there.try_lock(&sharing("newer"), in_time()).await.unwrap();
    let again = here.unlock(&force, in_time()).await;
    assert_eq!(again, Err(BackendError::NotHeld { held: true }));
    assert!(is_reader(&mut server.connect(), "newer"));
}

#[tokio::test]
async fn readers_in_line_outlive_a_cut_connection() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address()).await;
    let (here, there) = (backend(proxy.address()).await, backend(&server.address()).await);
    there.try_lock(&attempt("first"), in_time()).await.unwrap();
    let waits: Vec<_> = (0..100)
        .map(|n| {
            let (here, asked) = (Arc::clone(&here), sharing(&format!("reader {n}")));
            tokio::spawn(async move { here.lock(&asked).await })
        })
        .collect();
    let mut connection = server.connect();
    until("queued", || waiting(&mut connection, "r") == 100).await;
    proxy.refuse(true);
    proxy.cut();
    // All of them are called while they are away, some for dead.
    until("away", || processes(&mut connection).len() == 1).await;
    there.unlock(&owner("first"), in_time()).await.unwrap();
    proxy.refuse(false);
    for wait in waits {
        assert!(soon(wait).await.unwrap().unwrap().created);
    }
    assert_eq!(ask::<usize>(&mut connection, &["ZCARD", "\x01e{2Rk}r"]), 100);
}

/// A force that ended its last readers in a second step was answered as if nothing had been held.
#[tokio::test]
async fn a_force_of_readers_is_done_though_a_later_one_came_and_went() {
    let server = RedisServer::start();
    let backend = backend(&server.address()).await;
    let mut connection = server.connect();
    for n in 0..64 {
        backend.try_lock(&sharing(&format!("reader {n}")), in_time()).await.unwrap();
    }
    let mark: String = ask(&mut connection, &["GET", "r"]);
    let newest: String = ask(&mut connection, &["HGET", "\x01r{2Rk}r", "t"]);
    let force = release(ReleaseOf::Anyone);
    force.target.fix(format!("r{}:{newest}", &mark[2..]));
    let later = backend.try_lock(&sharing("later"), in_time()).await.unwrap();
    backend.unlock(&known("later", &later), in_time()).await.unwrap();
    let writer = attempt("writer");
    let waits = {
        let (backend, writer) = (Arc::clone(&backend), Arc::clone(&writer));
        tokio::spawn(async move { backend.lock(&writer).await })
    };
    until("queued", || waiting(&mut connection, "r") == 1).await;
    assert_eq!(backend.unlock(&force, in_time()).await, Ok(()));
    assert!(soon(waits).await.unwrap().unwrap().created);
    assert_eq!(ask::<String>(&mut connection, &["GET", "r"]), "writer");
}

/// The hand-over was deleted again, because there was more to do behind it.
#[tokio::test]
async fn a_hand_over_to_a_reader_stays_though_many_dead_waiters_follow() {
    let server = RedisServer::start();
    let backend = backend(&server.address()).await;
    let mut connection = server.connect();
    backend.try_lock(&attempt("first"), in_time()).await.unwrap();
    let mut subscriber = server.connect();
    let live = "1".repeat(32);
    let _: redis::Value = ask(&mut subscriber, &["SUBSCRIBE", &format!("\x01n{live}")]);
    put_place(&mut connection, &live, 's');
    put_places(&mut connection, "r", &"d".repeat(32), 600);
    backend.unlock(&owner("first"), in_time()).await.unwrap();
    assert_eq!(called(&mut connection, "r"), 1);
    assert_eq!(ask::<i64>(&mut connection, &["EXISTS", "r"]), 1);
}

//! Releases that are sent again: completed against the grant that they were
//! aimed at, and against no other.

use leasehold_lock::{Attempt, Backend, BackendError, LockId, ReleaseOf, Settings};

use super::{
    port::{attempt, backend, in_time, owner, release},
    *,
};

/// A force's release in the wire's form: no lock ID behind the last key or the verb.
pub(super) fn by_force() -> &'static str {
    if without_functions() {
        "$7\r\nrelease\r\n$0\r\n\r\n"
    } else {
        "\x01p{2Rk}r\r\n$0\r\n\r\n"
    }
}

fn is_held(connection: &mut redis::Connection) -> bool {
    ask::<i64>(connection, &["EXISTS", "r"]) == 1
}

/// The counter, and so the next token, is an hour ahead of the clock.
fn put_tokens_ahead_of_the_clock(connection: &mut redis::Connection) {
    let time: (u64, u64) = ask(connection, &["TIME"]);
    let ahead = ((time.0 + 3600) * 1_000_000).to_string();
    let () = ask(connection, &["SET", "\x01c{2Rk}", &ahead]);
}

/// Trap: redis 47
#[tokio::test]
async fn an_unlock_during_a_reconnect_is_completed_though_its_request_is_lost() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address()).await;
    let (here, there) = (backend(proxy.address()).await, backend(&server.address()).await);
    there.try_lock(&attempt("me"), in_time()).await.unwrap();
    proxy.refuse(true);
    proxy.cut();
    soon(async {
        let at_once = || tokio::time::Instant::now() + SECOND / 20;
        while here.ping(at_once()).await.is_ok() {}
    })
    .await;
    let unlocking = tokio::spawn(async move { here.unlock(&owner("me"), in_time()).await });
    tokio::time::sleep(SECOND / 20).await;
    proxy.hold_request(call());
    proxy.refuse(false);
    assert_eq!(soon(unlocking).await.unwrap(), Ok(()));
    assert!(!is_held(&mut server.connect()));
}

/// Its outcome was reported as unknown, and it was never completed.
#[tokio::test]
async fn an_unlock_that_has_only_asked_which_grant_is_meant_was_not_sent() {
    let server = RedisServer::start();
    let (here, there) = (backend(&server.address()).await, backend(&server.address()).await);
    there.try_lock(&attempt("me"), in_time()).await.unwrap();
    server.process.suspend().unwrap();
    let release = owner("me");
    let until = tokio::time::Instant::now() + SECOND / 5;
    let ended = here.unlock(&release, until).await;
    assert!(matches!(ended, Err(BackendError::Unknown(_))), "{ended:?}");
    assert!(release.target.fixed().is_none());
    server.process.resume().unwrap();
    assert!(is_held(&mut server.connect()));
    assert_eq!(here.unlock(&owner("me"), in_time()).await, Ok(()));
    assert!(!is_held(&mut server.connect()));
}

/// Trap: redis 47
#[tokio::test]
async fn an_unlock_of_a_foreign_lock_is_completed_though_its_request_is_lost() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address()).await;
    let backend = backend(proxy.address()).await;
    let mut connection = server.connect();
    let () = ask(&mut connection, &["SET", "r", "owner", "EX", "60", "NX"]);
    proxy.hold_request(call());
    assert_eq!(backend.unlock(&owner("owner"), in_time()).await, Ok(()));
    assert!(!is_held(&mut connection));
}

/// Trap: redis 47
#[tokio::test]
async fn a_force_of_a_foreign_lock_is_completed_though_its_request_is_lost() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address()).await;
    let backend = backend(proxy.address()).await;
    let mut connection = server.connect();
    let () = ask(&mut connection, &["SET", "r", "owner", "EX", "60", "NX"]);
    proxy.hold_request(by_force());
    assert_eq!(backend.unlock(&release(ReleaseOf::Anyone), in_time()).await, Ok(()));
    assert!(!is_held(&mut connection));
}

/// Trap: redis 47
#[tokio::test]
async fn a_force_that_is_tried_again_spares_a_foreign_lock_set_since() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address()).await;
    let backend = backend(proxy.address()).await;
    let mut connection = server.connect();
    let () = ask(&mut connection, &["SET", "r", "one", "EX", "60", "NX"]);
    proxy.lose_reply_to(by_force());
    let force = release(ReleaseOf::Anyone);
    let unknown = backend.unlock(&force, in_time()).await;
    assert!(matches!(unknown, Err(BackendError::Unknown(_))), "{unknown:?}");
    let () = ask(&mut connection, &["SET", "r", "two", "EX", "60", "NX"]);
    let again = backend.unlock(&force, in_time()).await;
    assert_eq!(again, Err(BackendError::NotHeld { held: true }));
    assert!(is_held(&mut connection));
}

/// Trap: redis 47
#[tokio::test]
async fn a_force_that_is_tried_again_spares_what_was_granted_since() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address()).await;
    let (here, there) = (backend(proxy.address()).await, backend(&server.address()).await);
    there.try_lock(&attempt("me"), in_time()).await.unwrap();
    proxy.lose_reply_to(by_force());
    let force = release(ReleaseOf::Anyone);
    assert!(here.unlock(&force, in_time()).await.is_err());
    there.try_lock(&attempt("me"), in_time()).await.unwrap();
    let again = here.unlock(&force, in_time()).await;
    assert_eq!(again, Err(BackendError::NotHeld { held: true }));
    there.unlock(&owner("me"), in_time()).await.unwrap();
}

/// Trap: redis 47
#[tokio::test]
async fn a_force_is_completed_also_where_tokens_are_ahead_of_the_clock() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address()).await;
    let (here, there) = (backend(proxy.address()).await, backend(&server.address()).await);
    let mut connection = server.connect();
    put_tokens_ahead_of_the_clock(&mut connection);
    there.try_lock(&attempt("me"), in_time()).await.unwrap();
    proxy.hold_request(by_force());
    assert_eq!(here.unlock(&release(ReleaseOf::Anyone), in_time()).await, Ok(()));
    assert!(!is_held(&mut connection));
}

/// Trap: redis 47
#[tokio::test]
async fn an_unlock_by_a_made_lock_id_is_completed_also_where_tokens_are_ahead_of_the_clock() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address()).await;
    let (here, there) = (backend(proxy.address()).await, backend(&server.address()).await);
    let mut connection = server.connect();
    put_tokens_ahead_of_the_clock(&mut connection);
    let lock_id = LockId::random();
    let made = Attempt {
        lock_id: lock_id.clone(),
        lock_id_given: false,
        ..Attempt::clone(&attempt("any"))
    };
    there.try_lock(&made, in_time()).await.unwrap();
    proxy.hold_request(call());
    let unlocked = here.unlock(&release(ReleaseOf::Owner(lock_id)), in_time()).await;
    assert_eq!(unlocked, Ok(()));
    assert!(!is_held(&mut connection));
}

/// A backend that has lost its server, and cannot reach it for now.
async fn cut_off(proxy: &Proxy, backend: &dyn Backend) {
    proxy.refuse(true);
    proxy.cut();
    soon(async {
        let at_once = || tokio::time::Instant::now() + SECOND / 20;
        while backend.ping(at_once()).await.is_ok() {}
    })
    .await;
}

/// A release that ended before anything was sent was carried out after the outage, against
/// whatever was held then.
/// Trap: redis 47
#[tokio::test]
async fn a_release_that_was_never_sent_spares_what_was_granted_since() {
    let server = RedisServer::start();
    let there = backend(&server.address()).await;
    let given = || Attempt { lock_id_given: true, ..(*attempt("me")).clone() };
    let unlock = UnlockRequest::owner("r".parse().unwrap(), "me".parse().unwrap());
    for request in [unlock, force("r")] {
        let proxy = Proxy::start(server.address()).await;
        let here = backend(proxy.address()).await;
        let store = Store::new(Arc::clone(&here), Settings::default());
        there.try_lock(&given(), in_time()).await.unwrap();
        cut_off(&proxy, &*here).await;
        let soon_over = tokio::time::Instant::now() + SECOND / 20;
        let refused = store.unlock_by(request.clone(), soon_over).await;
        assert!(matches!(refused, Err(LockError::StoreUnavailable(_))), "{refused:?}");
        let left = tokio::time::timeout(SECOND / 20, store.unlock(request)).await;
        assert!(left.is_err(), "{left:?}");
        there.unlock(&owner("me"), in_time()).await.unwrap();
        there.try_lock(&given(), in_time()).await.unwrap();
        proxy.refuse(false);
        soon(async { while here.ping(in_time()).await.is_err() {} }).await;
        soon(store.retire()).await;
        assert!(is_held(&mut server.connect()), "the later grant was ended");
        there.unlock(&owner("me"), in_time()).await.unwrap();
    }
}

//! The port's promises when replies are lost.

use leasehold_lock::{
    Attempt, Backend, BackendError, Context, Grant, LockId, Mode, Release, ReleaseOf,
    ResourceId, Settings, Ttl, properties::Properties,
};

use super::*;

pub(super) async fn backend(address: &str) -> Arc<dyn Backend> {
    backend_with(&[("redisHost", address)]).await
}

pub(super) async fn backend_with(items: &[(&str, &str)]) -> Arc<dyn Backend> {
    let items = items.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    let mut properties = Properties::new(items);
    let connect = (leasehold_redis::KIND.read)(&mut properties);
    let context = Context::new(Settings::default(), Clock::system());
    connect(context).await.unwrap()
}

pub(super) fn attempt(lock_id: &str) -> Arc<Attempt> {
    Arc::new(Attempt {
        lock_id: LockId::new(lock_id).unwrap(),
        lock_id_given: true,
        ..Attempt::new(ResourceId::new("r").unwrap(), Ttl::new(MINUTE, MINUTE).unwrap())
    })
}

pub(super) fn release(of: ReleaseOf) -> Release {
    Release::new(ResourceId::new("r").unwrap(), of)
}

/// A release of a grant whose ID the process knows.
pub(super) fn known(lock_id: &str, grant: &Grant) -> Release {
    Release { known: grant.id, ..owner(lock_id) }
}

pub(super) fn owner(lock_id: &str) -> Release {
    release(ReleaseOf::Owner(LockId::new(lock_id).unwrap()))
}

pub(super) fn in_time() -> tokio::time::Instant {
    tokio::time::Instant::now() + SECOND * 5
}

/// Trap: redis 1, redis 23
#[tokio::test]
async fn an_acquisition_whose_reply_was_lost_is_recognised_as_its_own() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address()).await;
    let backend = backend(proxy.address()).await;
    proxy.lose_reply_to("");
    let grant = backend.try_lock(&attempt("me"), in_time()).await.unwrap();
    assert!(grant.created);
    backend.unlock(&owner("me"), in_time()).await.unwrap();
}

/// Trap: redis 1
#[tokio::test]
async fn a_wait_whose_reply_was_lost_has_one_place_only() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address()).await;
    let (here, there) = (backend(proxy.address()).await, backend(&server.address()).await);
    there.try_lock(&attempt("first"), in_time()).await.unwrap();
    proxy.lose_reply_to("");
    let waiter = attempt("second");
    let asked = Arc::clone(&waiter);
    let waits = tokio::spawn(async move { here.lock(&asked).await });
    let mut connection = server.connect();
    until("queued", || waiting(&mut connection, "r") == 1).await;
    there.unlock(&owner("first"), in_time()).await.unwrap();
    soon(waits).await.unwrap().unwrap();
    assert_eq!(waiting(&mut connection, "r"), 0);
}

#[tokio::test]
async fn a_release_whose_reply_was_lost_is_never_reported_as_not_held() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address()).await;
    let backend = backend(proxy.address()).await;
    let grant = backend.try_lock(&attempt("me"), in_time()).await.unwrap();
    proxy.lose_reply_to("");
    let released = backend.unlock(&known("me", &grant), in_time()).await;
    assert!(matches!(released, Err(BackendError::Unknown(_))), "{released:?}");
    let exists: i64 = ask(&mut server.connect(), &["EXISTS", "r"]);
    assert_eq!(exists, 0);
}

/// Trap: redis 21
#[tokio::test]
async fn a_release_that_is_tried_again_spares_what_was_granted_since() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address()).await;
    let (here, there) = (backend(proxy.address()).await, backend(&server.address()).await);
    let grant = here.try_lock(&attempt("me"), in_time()).await.unwrap();
    let release = known("me", &grant);
    proxy.lose_reply_to("");
    assert!(here.unlock(&release, in_time()).await.is_err());
    let newer = there.try_lock(&attempt("me"), in_time()).await.unwrap();
    let again = here.unlock(&release, in_time()).await;
    assert_eq!(again, Err(BackendError::NotHeld { held: true }));
    assert!(newer.token.is_some());
    there.unlock(&owner("me"), in_time()).await.unwrap();
}

/// Trap: redis 24
#[tokio::test]
async fn a_release_that_did_not_happen_is_completed_when_tried_again() {
    let server = RedisServer::start();
    let backend = backend(&server.address()).await;
    let grant = backend.try_lock(&attempt("me"), in_time()).await.unwrap();
    let release = owner("me");
    // As after a first try whose request was lost.
    release.target.fix(grant.id.unwrap().to_string());
    backend.unlock(&release, in_time()).await.unwrap();
}

/// Trap: redis 7
#[tokio::test]
async fn the_clean_up_of_an_attempt_takes_effect_after_what_it_sent() {
    let server = RedisServer::start();
    let backend = backend(&server.address()).await;
    // Still on its way when its attempt is given up.
    let gone = attempt("gone");
    server.process.suspend().unwrap();
    let sent = backend.try_lock(&gone, tokio::time::Instant::now() + SECOND / 2).await;
    assert!(matches!(sent, Err(BackendError::Unknown(_))), "{sent:?}");
    let clean_up = release(ReleaseOf::Attempt(gone));
    let resume = async {
        tokio::time::sleep(SECOND / 5).await;
        server.process.resume().unwrap();
    };
    let (cleaned_up, ()) = tokio::join!(backend.unlock(&clean_up, in_time()), resume);
    cleaned_up.unwrap();
    assert_eq!(ask::<i64>(&mut server.connect(), &["EXISTS", "r"]), 0);
}

/// Trap: redis 7
#[tokio::test]
async fn what_a_lost_connection_still_held_back_never_happens() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address()).await;
    let backend = backend(proxy.address()).await;
    let gone = attempt("gone");
    proxy.hold_request("");
    // Made over the next connection, while the first sending still lies about.
    backend.try_lock(&gone, in_time()).await.unwrap();
    backend.unlock(&release(ReleaseOf::Attempt(gone)), in_time()).await.unwrap();
    soon(proxy.deliver()).await;
    assert_eq!(ask::<i64>(&mut server.connect(), &["EXISTS", "r"]), 0);
}

#[tokio::test]
async fn the_clean_up_of_an_attempt_spares_another_under_the_same_lock_id() {
    let server = RedisServer::start();
    let backend = backend(&server.address()).await;
    backend.try_lock(&attempt("me"), in_time()).await.unwrap();
    let other = release(ReleaseOf::Attempt(attempt("me")));
    let spared = backend.unlock(&other, in_time()).await;
    assert_eq!(spared, Err(BackendError::NotHeld { held: true }));
}

/// The simulation's model is compared with a real server.
#[tokio::test]
async fn operations_have_the_results_that_the_model_has() {
    let server = RedisServer::start();
    for seed in 0..3 {
        let handles = vec![backend(&server.address()).await, backend(&server.address()).await];
        leasehold_testing::Differential::new(handles, seed).run(150).await;
        ask::<()>(&mut server.connect(), &["FLUSHALL"]);
    }
}

/// Also a lock by other means, whose value is the lock ID, is not what was meant.
#[tokio::test]
async fn a_release_that_names_a_token_ends_the_grant_with_that_token_only() {
    let server = RedisServer::start();
    let backend = backend(&server.address()).await;
    let mut connection = server.connect();
    let at = |token| release(ReleaseOf::Token(LockId::new("me").unwrap(), token));
    let first = backend.try_lock(&attempt("me"), in_time()).await.unwrap().token.unwrap();
    backend.unlock(&at(first), in_time()).await.unwrap();
    let second = backend.try_lock(&attempt("me"), in_time()).await.unwrap().token.unwrap();
    let other = Err(BackendError::NotHeld { held: true });
    assert_eq!(backend.unlock(&at(first), in_time()).await, other);
    backend.unlock(&at(second), in_time()).await.unwrap();
    let () = ask(&mut connection, &["SET", "r", "me", "PX", "60000"]);
    assert_eq!(backend.unlock(&at(second), in_time()).await, other);
}

/// A maker that repeated its request after a claim owned the grant again, and its clean-up ended
/// the lock of the claimer.
/// Trap: redis 22
#[tokio::test]
async fn a_claimed_grant_stays_claimed_when_its_maker_asks_again() {
    let server = RedisServer::start();
    let backend = backend(&server.address()).await;
    for mode in [Mode::Exclusive, Mode::Shared] {
        let asked = |lock_id| Attempt {
            request_id: leasehold_lock::RequestId::new("once").unwrap(),
            lock_id_given: false,
            mode,
            ..(*attempt(lock_id)).clone()
        };
        let (maker, claimer) = (asked("maker"), asked("claimer"));
        assert!(backend.try_lock(&maker, in_time()).await.unwrap().created);
        assert!(!backend.try_lock(&claimer, in_time()).await.unwrap().created);
        assert!(!backend.try_lock(&maker, in_time()).await.unwrap().created);
        let clean_up = release(ReleaseOf::Attempt(Arc::new(maker)));
        let spared = backend.unlock(&clean_up, in_time()).await;
        assert_eq!(spared, Err(BackendError::NotHeld { held: true }));
        backend.unlock(&owner("maker"), in_time()).await.unwrap();
    }
}

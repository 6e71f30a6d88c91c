//! Taking, sharing and releasing.

use std::{convert::Infallible, sync::Arc, time::Duration};

use leasehold_client::{Cause, Error, Failure, Lock, Locks, Mode, raw};
use raw::{inspection_client::InspectionClient, locks_client::LocksClient};
use tokio::time::timeout;
use tonic::transport::Endpoint;

use crate::{
    stage::Backend,
    support::{PATIENCE, eventually_free, eventually_waiting, inspect, is_held},
    work::Endless,
};

const NAME: &str = "order";
pub(crate) const SHORT: Duration = Duration::from_secs(1);

/// A name that no other case has.
fn own(case: &str) -> String {
    format!("{NAME}-{case}")
}

async fn hold(locks: &Locks, name: &str) -> Lock {
    locks.lock(name).wait(PATIENCE).acquire().await.unwrap()
}

pub(crate) fn not_acquired<T: std::fmt::Debug>(
    result: Result<T, Error>,
) -> (String, Option<String>) {
    match result {
        Err(Error::NotAcquired(error)) => {
            (error.reason().to_owned(), error.holder().map(str::to_owned))
        }
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn a_lock_is_taken_and_released(backend: Arc<Backend>) {
    let (locks, name) = (backend.shared().locks(), own("taken"));
    let lock = locks.lock(&*name).ttl(PATIENCE).acquire().await.unwrap();
    let token = lock.token();
    assert!(token > 0);
    assert_eq!(lock.resource(), name);
    assert!(!lock.lock_id().is_empty());
    assert!(lock.grant_id().is_some_and(|id| id != lock.lock_id()));
    // Less a twentieth and 20 ms for the drift, and a tenth to stop in.
    let certain = PATIENCE - PATIENCE / 20 - Duration::from_millis(20);
    assert!(lock.valid_for() > Duration::ZERO);
    assert!(lock.valid_for() <= certain - PATIENCE / 10, "{:?}", lock.valid_for());
    lock.check().unwrap();
    assert!(!format!("{lock:?}").contains(lock.lock_id()));
    lock.unlock().await.unwrap();
    assert_eq!(lock.valid_for(), Duration::ZERO);
    assert_eq!(lock.check().unwrap_err().cause(), &Cause::Ended);
    assert_eq!(lock.lost().await.cause(), &Cause::Ended);

    let other = backend.shared().locks();
    let later =
        other.lock(&*name).wait(PATIENCE).run(async |lock| Ok::<_, Infallible>(lock.token()));
    assert!(later.await.unwrap() > token);
    assert!(!is_held(&locks, &name).await);
}

/// The same deadline from CheckLocks as from the grant.
pub(crate) async fn stop_before_counts(backend: Arc<Backend>) {
    const TTL: Duration = Duration::from_secs(12);
    let (locks, stop_before) = (backend.shared().locks(), TTL / 3);
    let ask = || locks.lock(own("stop")).ttl(TTL).stop_before(stop_before).acquire();
    let lock = ask().await.unwrap();
    for _ in 0..2 {
        assert!(lock.valid_for() > Duration::ZERO);
        assert!(lock.valid_for() < TTL - stop_before, "{:?}", lock.valid_for());
        timeout(TTL / 3, lock.lost()).await.unwrap_err();
    }
}

pub(crate) async fn a_try_of_a_held_lock_gives_nothing(backend: Arc<Backend>) {
    let (locks, name) = (backend.shared().locks(), own("tried"));
    let lock = hold(&locks, &name).await;
    assert!(locks.try_lock(&*name).acquire().await.unwrap().is_none());
    let work = async |_: &Lock| Ok::<_, Infallible>(7);
    assert_eq!(locks.try_lock(&*name).run(work).await.unwrap(), None);
    lock.unlock().await.unwrap();
    assert_eq!(locks.try_lock(&*name).run(work).await.unwrap(), Some(7));
}

pub(crate) async fn a_lock_waits_for_its_turn(backend: Arc<Backend>) {
    let (locks, name) = (backend.shared().locks(), own("waited"));
    let first = hold(&locks, &name).await;
    let second = tokio::spawn(locks.lock(&*name).wait(PATIENCE).acquire());
    eventually_waiting(&locks, &name, 1).await;
    assert!(!second.is_finished());
    first.unlock().await.unwrap();
    assert!(second.await.unwrap().unwrap().token() > first.token());
}

pub(crate) async fn a_wait_ends_at_its_limit(backend: Arc<Backend>) {
    let (locks, name) = (backend.shared().locks(), own("limit"));
    let _held = hold(&locks, &name).await;
    let refused = locks.lock(&*name).wait(SHORT).acquire().await;
    let message = refused.as_ref().unwrap_err().to_string();
    let begin = format!("the lock {name:?} was not acquired within 1 s");
    assert!(message.starts_with(&begin), "{message}");
    assert_eq!(not_acquired(refused).0, "WAIT_DEADLINE");
}

pub(crate) async fn a_try_that_may_not_wait_names_the_holder(backend: Arc<Backend>) {
    let (locks, name) = (backend.shared().locks(), own("named"));
    let _held = locks.lock(&*name).label("invoices").acquire().await.unwrap();
    let refused = locks.lock(&*name).wait(Duration::ZERO).acquire().await;
    let message = refused.as_ref().unwrap_err().to_string();
    let (reason, holder) = not_acquired(refused);
    assert_eq!(reason, "RESOURCE_LOCKED");
    let holder = holder.unwrap();
    assert_eq!(message, format!("the lock {name:?} is held by {holder}"));
    assert!(holder.starts_with("app/") && holder.ends_with("/invoices"), "{holder}");
}

pub(crate) async fn the_label_is_seen_by_inspection(backend: Arc<Backend>) {
    let (locks, name) = (backend.shared().locks(), own("label"));
    let _held = locks.lock(&*name).label("invoice run").acquire().await.unwrap();
    let (holders, _) = inspect(&locks, &name).await;
    assert!(matches!(&*holders, [holder] if holder.ends_with("/invoice run")), "{holders:?}");
}

pub(crate) async fn namespaces_are_apart(backend: Arc<Backend>) {
    let (locks, name) = (backend.shared().locks(), own("namespace"));
    let within = |country: &str| locks.try_lock(&*name).namespace(["shop", country]).acquire();
    let (eu, us) = (within("eu").await.unwrap().unwrap(), within("us").await.unwrap().unwrap());
    assert!(within("eu").await.unwrap().is_none());
    eu.unlock().await.unwrap();
    assert!(within("eu").await.unwrap().is_some());
    us.check().unwrap();
}

pub(crate) async fn readers_share_a_lock(backend: Arc<Backend>) {
    let (locks, name) = (backend.shared().locks(), own("shared"));
    let shared = || locks.try_lock(&*name).mode(Mode::Shared).acquire();
    let (one, two) = (shared().await.unwrap().unwrap(), shared().await.unwrap().unwrap());
    assert!(is_held(&locks, &name).await);
    one.unlock().await.unwrap();
    assert!(is_held(&locks, &name).await);
    two.unlock().await.unwrap();
    assert!(!is_held(&locks, &name).await);
}

pub(crate) async fn a_repeated_request_id_finds_its_grant(backend: Arc<Backend>) {
    let (locks, name) = (backend.shared().locks(), own("repeated"));
    let ask = || locks.lock(&*name).request_id("a secret of this case").acquire();
    let first = ask().await.unwrap();
    let second = ask().await.unwrap();
    assert_eq!(second.token(), first.token());
    assert_eq!(first.lost().await.cause(), &Cause::Ended);
    second.check().unwrap();
}

pub(crate) async fn a_bad_option_is_named(backend: Arc<Backend>) {
    fn bad<T: std::fmt::Debug>(result: Result<T, Error>) -> Failure {
        match result {
            Err(Error::Failed(failure)) => failure,
            other => panic!("{other:?}"),
        }
    }
    // Nothing listens there, so these are found before anything is sent. A wait and a
    // `stop_before` cannot be negative here: the type forbids it.
    let nowhere = Locks::builder("lockstore").address("127.0.0.1:1").build().unwrap();
    for (option, lock) in [
        ("name", nowhere.lock("")),
        ("ttl", nowhere.lock(NAME).ttl(Duration::ZERO)),
        ("max_hold", nowhere.lock(NAME).max_hold(Duration::ZERO)),
        ("stop_before", nowhere.lock(NAME).max_hold(SHORT).stop_before(SHORT)),
    ] {
        let failure = bad(lock.acquire().await);
        assert_eq!(failure.reason(), "INVALID_REQUEST");
        assert!(failure.message().starts_with(&format!("{option} ")), "{failure}");
    }
    assert_eq!(bad(nowhere.lock(NAME).acquire().await).reason(), "UNAVAILABLE");
    let no_store = bad(Locks::new(""));
    assert_eq!((no_store.reason(), no_store.message()), ("INVALID_REQUEST", "store is empty"));
    let bad_token = backend.shared().builder().api_token("line\nbreak").build();
    assert!(bad(bad_token).message().starts_with("api_token "));

    // This one is checked against what was granted, and the lock is released.
    let (locks, name) = (backend.shared().locks(), own("bad"));
    let lock = || locks.lock(&*name).ttl(2 * PATIENCE);
    for (lock, problem) in [
        (lock().stop_before(2 * PATIENCE), "is not shorter than the granted TTL of 60 s"),
        (lock().stop_before(Duration::MAX), "is not shorter than the granted TTL of 60 s"),
    ] {
        let failure = bad(lock.acquire().await);
        assert_eq!(failure.reason(), "INVALID_REQUEST");
        assert_eq!(failure.message(), format!("stop_before {problem}"));
        eventually_free(&locks, &name).await;
    }
    let failure = bad(locks.lock(&*name).label("x".repeat(129)).acquire().await);
    assert_eq!(failure.reason(), "INVALID_REQUEST");
    assert!(failure.message().contains("label"), "{failure}");
}

pub(crate) async fn an_unlock_is_idempotent(backend: Arc<Backend>) {
    let (locks, name) = (backend.shared().locks(), own("idempotent"));
    let lock = hold(&locks, &name).await;
    lock.unlock().await.unwrap();
    let next = hold(&locks, &name).await;
    lock.unlock().await.unwrap();
    next.check().unwrap();
    assert!(is_held(&locks, &name).await);
    // Also at once, and by the work before `run` does it.
    let (one, two) = tokio::join!(next.unlock(), next.unlock());
    one.and(two).unwrap();
    let early = locks.lock(&*name).run(async |lock| {
        lock.unlock().await?;
        // It goes on after this too.
        assert!(!is_held(&locks, &name).await);
        assert_eq!(lock.check().unwrap_err().cause(), &Cause::Ended);
        Ok::<_, Error>(())
    });
    early.await.unwrap();
}

pub(crate) async fn an_unlock_is_not_cancelled_with_its_caller(backend: Arc<Backend>) {
    let (locks, name) = (backend.shared().locks(), own("cancelled"));
    let work = Endless::default();
    let task = work.spawn(locks.lock(&*name));
    work.started().await;
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    assert!(work.has_ended());
    eventually_free(&locks, &name).await;

    // The handle lives on, so its stream does not close by its end.
    let lock = hold(&locks, &name).await;
    {
        let mut unlock = std::pin::pin!(lock.unlock());
        std::future::poll_fn(|context| {
            assert!(unlock.as_mut().poll(context).is_pending());
            std::task::Poll::Ready(())
        })
        .await;
    }
    eventually_free(&locks, &name).await;
    lock.unlock().await.unwrap();
}

pub(crate) async fn a_cancelled_wait_leaves_nothing(backend: Arc<Backend>) {
    let (locks, name) = (backend.shared().locks(), own("withdrawn"));
    let first = hold(&locks, &name).await;
    let waiter = tokio::spawn(locks.lock(&*name).acquire());
    eventually_waiting(&locks, &name, 1).await;
    let next = tokio::spawn(locks.lock(&*name).wait(PATIENCE).acquire());
    eventually_waiting(&locks, &name, 2).await;
    waiter.abort();
    eventually_waiting(&locks, &name, 1).await;
    first.unlock().await.unwrap();
    next.await.unwrap().unwrap().unlock().await.unwrap();
    eventually_waiting(&locks, &name, 0).await;
}

pub(crate) async fn a_channel_of_the_caller_is_used_and_left_open(backend: Arc<Backend>) {
    let name = own("channel");
    let address = format!("http://{}", backend.shared().address());
    let channel = Endpoint::from_shared(address).unwrap().connect().await.unwrap();
    let locks = Locks::builder("lockstore").address("127.0.0.1:1").channel(channel.clone());
    let locks = locks.build().unwrap();
    hold(&locks, &name).await.unlock().await.unwrap();
    drop(locks);
    let check = raw::CheckLocksRequest::default();
    let answer = LocksClient::new(channel.clone()).check_locks(check).await.unwrap();
    assert!(answer.into_inner().locks.is_empty());
    let request = raw::GetLockRequest {
        store_name: "lockstore".to_owned(),
        resource_id: name,
        ..Default::default()
    };
    InspectionClient::new(channel).get_lock(request).await.unwrap();
}

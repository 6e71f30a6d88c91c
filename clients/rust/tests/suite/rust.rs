//! What only this library has: handles and futures that end by being dropped.

use std::{convert::Infallible, sync::Arc, time::Duration};

use leasehold_client::{
    Cause, Error, Lock, LockBuilder, Locks, LocksBuilder, RunError, Tries, Waits,
};
use tokio::time::timeout;

use crate::{
    stage::Backend,
    support::{PATIENCE, TTL, eventually_free, eventually_waiting, force_unlock, is_held},
    work::Endless,
};

/// Longer than a case waits, so that no TTL frees the lock.
const LONG_TTL: Duration = Duration::from_secs(120);

/// Somebody who waits for `name` gets it once `end` has been called.
async fn frees(locks: &Locks, name: &str, end: impl AsyncFnOnce()) {
    let next = tokio::spawn(locks.lock(name).wait(PATIENCE).acquire());
    eventually_waiting(locks, name, 1).await;
    end().await;
    next.await.unwrap().unwrap();
}

/// It compiles.
pub(crate) async fn every_future_can_be_sent(backend: Arc<Backend>) {
    fn sent<T: Send>(future: T) -> T {
        future
    }
    fn shared<T: Send + Sync + Unpin + 'static>() {}
    shared::<Locks>();
    shared::<LocksBuilder>();
    shared::<LockBuilder<Waits>>();
    shared::<LockBuilder<Tries>>();
    shared::<Lock>();
    shared::<Error>();
    shared::<RunError<Error>>();

    let locks = backend.shared().locks();
    let work = async |lock: &Lock| Ok::<_, Infallible>(lock.token());
    sent(locks.lock("sent").run(work)).await.unwrap();
    sent(locks.try_lock("sent").run(work)).await.unwrap();
    sent(locks.try_lock("sent-too").acquire()).await.unwrap();
    let lock = sent(locks.lock("sent").wait(PATIENCE).acquire()).await.unwrap();
    timeout(Duration::from_millis(1), sent(lock.lost())).await.unwrap_err();
    sent(lock.unlock()).await.unwrap();
}

pub(crate) async fn secrets_are_not_shown(backend: Arc<Backend>) {
    const SECRET: &str = "a secret of this case";
    let builder = backend.shared().builder().api_token(SECRET);
    let locks = builder.clone().build().unwrap();
    let request = locks.lock("secret").request_id(SECRET);
    let shown = format!("{builder:?} {locks:?} {request:?}");
    assert!(shown.contains("\"secret\"") && !shown.contains(SECRET), "{shown}");
    let lock = request.acquire().await.unwrap();
    let shown = format!("{lock:?}");
    assert!(!shown.contains(SECRET) && !shown.contains(lock.lock_id()), "{shown}");
}

pub(crate) async fn a_dropped_handle_frees_the_lock(backend: Arc<Backend>) {
    let locks = backend.shared().locks();
    let lock = locks.lock("dropped").ttl(LONG_TTL).acquire().await.unwrap();
    frees(&locks, "dropped", async || drop(lock)).await;
}

pub(crate) async fn a_dropped_run_drops_the_work_before_the_lock(backend: Arc<Backend>) {
    let (locks, work) = (backend.shared().locks(), Endless::default());
    let task = work.spawn(locks.lock("aborted").ttl(LONG_TTL));
    work.started().await;
    frees(&locks, "aborted", async || task.abort()).await;
    assert!(work.has_ended());
    assert!(work.held_at_its_end(), "the lock was released before the work had ended");
}

pub(crate) async fn a_dropped_wait_for_the_loss_changes_nothing(backend: Arc<Backend>) {
    let locks = backend.shared().locks();
    let lock = locks.lock("lost-later").acquire().await.unwrap();
    timeout(Duration::from_millis(20), lock.lost()).await.unwrap_err();
    lock.check().unwrap();
    assert!(is_held(&locks, "lost-later").await);
    force_unlock(&locks, "lost-later").await;
    assert_eq!(lock.lost().await.cause(), &Cause::Forced);
}

pub(crate) async fn a_panic_of_the_work_frees_the_lock(backend: Arc<Backend>) {
    let (locks, (go, wait)) = (backend.shared().locks(), tokio::sync::oneshot::channel());
    let panics = locks.lock("panics").ttl(LONG_TTL).run(async |_| {
        let _: Result<(), _> = wait.await;
        // Not `panic!`, whose message would be printed.
        std::panic::resume_unwind(Box::new(()));
        #[expect(unreachable_code, reason = "the type of the result")]
        Ok::<(), Infallible>(())
    });
    let task = tokio::spawn(panics);
    frees(&locks, "panics", async || go.send(()).unwrap()).await;
    assert!(task.await.unwrap_err().is_panic());
}

pub(crate) async fn a_lock_outlives_many_ttls(backend: Arc<Backend>) {
    let locks = backend.shared().locks();
    let lock = locks.lock("renewed").ttl(TTL).acquire().await.unwrap();
    timeout(TTL * 3, lock.lost()).await.unwrap_err();
    assert!(lock.valid_for() > Duration::ZERO && lock.valid_for() < TTL);
    lock.unlock().await.unwrap();
}

pub(crate) async fn a_handle_reports_its_loss(backend: Arc<Backend>) {
    let locks = backend.shared().locks();
    let lock = locks.lock("signalled").acquire().await.unwrap();
    force_unlock(&locks, "signalled").await;
    let lost = lock.lost().await;
    assert_eq!(lost.to_string(), "lock \"signalled\" lost: forced");
    assert_eq!(lock.check(), Err(lost.clone()));
    assert_eq!(lock.valid_for(), Duration::ZERO);
    assert_eq!(lock.unlock().await, Err(lost.clone()));
    assert_eq!(lock.unlock().await, Err(lost));
    eventually_free(&locks, "signalled").await;
}

//! Every way to lose a lock.

use std::{
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use leasehold_client::{Cause, Error, Lock, Locks};
use tokio::time::{Instant, timeout};

use crate::{
    stage::Backend,
    support::{
        PATIENCE, TTL, cause_of, eventually_free, eventually_waiting, force_unlock, is_held,
    },
    work::Endless,
};

/// Loses the lock under endless work by `lose`, and tells the cause and when it was told.
async fn lose(locks: &Locks, name: &str, lose: impl AsyncFnOnce()) -> (Cause, Duration) {
    let work = Endless::default();
    let task = work.spawn(locks.lock(name).ttl(TTL));
    work.started().await;
    let begin = Instant::now();
    lose().await;
    let error = task.await.unwrap().unwrap_err();
    assert!(work.has_ended(), "the loss is reported after the end of the work");
    (cause_of(&error), begin.elapsed())
}

pub(crate) async fn max_hold_ends_the_lock(backend: Arc<Backend>) {
    let (locks, work) = (backend.shared().locks(), Endless::default());
    let limited = locks.lock("max-hold").max_hold(Duration::from_secs(1));
    let error = work.spawn(limited).await.unwrap().unwrap_err();
    assert_eq!(cause_of(&error), Cause::MaxHold);
    assert!(work.has_ended());
    eventually_free(&locks, "max-hold").await;
}

/// The answers of CheckLocks count `max_hold`, so that the local deadline comes first.
pub(crate) async fn max_hold_ends_a_lock_of_a_short_ttl(backend: Arc<Backend>) {
    let (locks, work) = (backend.shared().locks(), Endless::default());
    let limited = locks.lock("max-hold-2").ttl(TTL).max_hold(TTL * 3 / 2);
    let error = work.spawn(limited).await.unwrap().unwrap_err();
    assert_eq!(cause_of(&error), Cause::MaxHold);
}

pub(crate) async fn a_forced_unlock_cancels_the_work(backend: Arc<Backend>) {
    let locks = backend.shared().locks();
    let force = async || force_unlock(&locks, "forced").await;
    let (cause, _) = lose(&locks, "forced", force).await;
    assert_eq!(cause, Cause::Forced);
    eventually_free(&locks, "forced").await;
}

pub(crate) async fn a_killed_sidecar_cancels_the_work(backend: Arc<Backend>) {
    let stage = backend.start();
    let (cause, _) = lose(&stage.locks(), "killed", async || stage.command("kill")).await;
    assert_eq!(cause, Cause::Disconnected);
}

pub(crate) async fn a_stopped_sidecar_cancels_the_work(backend: Arc<Backend>) {
    let stage = backend.start();
    let (cause, _) = lose(&stage.locks(), "stopped", async || stage.command("stop")).await;
    assert_eq!(cause, Cause::ShuttingDown);
    // The same client goes on once the sidecar is back.
    stage.command("start");
    eventually_free(&stage.locks(), "stopped").await;
}

pub(crate) async fn a_suspended_sidecar_cancels_the_work_before_the_deadline(
    backend: Arc<Backend>,
) {
    let stage = backend.start();
    let suspend = async || stage.command("suspend");
    let (cause, after) = lose(&stage.locks(), "suspended", suspend).await;
    assert_eq!(cause, Cause::Unconfirmed);
    assert!(after < TTL, "{after:?}");
    stage.command("resume");
}

pub(crate) async fn a_cut_off_sidecar_cancels_the_work_before_the_deadline(
    backend: Arc<Backend>,
) {
    let stage = backend.start();
    let stall = async || stage.command("stall");
    let (cause, after) = lose(&stage.locks_by_proxy(), "cut-off", stall).await;
    assert_eq!(cause, Cause::Unconfirmed);
    assert!(after < TTL, "{after:?}");
}

pub(crate) async fn a_cut_connection_cancels_the_work(backend: Arc<Backend>) {
    let stage = backend.start();
    let cut = async || stage.command("cut");
    let (cause, _) = lose(&stage.locks_by_proxy(), "cut", cut).await;
    assert_eq!(cause, Cause::Disconnected);
    // The sidecar lives, and has released the lock.
    eventually_free(&stage.locks_by_proxy(), "cut").await;
}

pub(crate) async fn work_that_blocks_sees_the_loss_by_check(backend: Arc<Backend>) {
    let locks = backend.shared().locks();
    let mut after_check = false;
    let blocked = locks.lock("blocks").run(async |lock| {
        let (locks, (forced, ready)) = (locks.clone(), mpsc::channel());
        tokio::spawn(async move {
            force_unlock(&locks, "blocks").await;
            let _ = forced.send(());
        });
        ready.recv_timeout(PATIENCE).unwrap();
        let checked = until_lost(lock);
        after_check = true;
        checked
    });
    let error = blocked.await.unwrap_err();
    assert_eq!(cause_of(&error), Cause::Forced);
    assert!(after_check);
}

/// Blocks the thread until `check` fails.
fn until_lost(lock: &Lock) -> Result<(), Error> {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        lock.check()?;
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Nothing runs while the process is suspended, and nothing has run when it goes on. Here the
/// only thread of a runtime is blocked for as long, which is the same for the handle.
pub(crate) async fn a_suspended_process_sees_the_loss_by_check(backend: Arc<Backend>) {
    let address = backend.shared().address();
    let suspended = move || {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let locks = Locks::builder("lockstore").address(address).build().unwrap();
            let lock = locks.lock("asleep").ttl(TTL).acquire().await.unwrap();
            thread::sleep(TTL);
            let (checked, valid_for) = (lock.check(), lock.valid_for());
            assert_eq!(checked.unwrap_err().cause(), &Cause::Unconfirmed);
            assert_eq!(valid_for, Duration::ZERO);
            // No answer that comes later revives it, although the sidecar has renewed it.
            tokio::time::sleep(TTL / 3).await;
            assert!(lock.check().is_err());
            // Nobody else has it until its work has ended, which the handle stands for.
            assert!(is_held(&locks, "asleep").await);
            lock.unlock().await.unwrap_err();
            eventually_free(&locks, "asleep").await;
        });
    };
    tokio::task::spawn_blocking(suspended).await.unwrap();
}

/// A question that fails is asked again, so that a pause of the network costs no lock.
pub(crate) async fn a_short_silence_of_the_sidecar_is_survived(backend: Arc<Backend>) {
    const TTL: Duration = Duration::from_secs(6);
    let stage = backend.start();
    let lock = stage.locks_by_proxy().lock("silence").ttl(TTL).acquire().await.unwrap();
    stage.command("stall");
    timeout(TTL / 3, lock.lost()).await.unwrap_err();
    stage.command("heal");
    timeout(TTL, lock.lost()).await.unwrap_err();
    lock.unlock().await.unwrap();
}

/// The process was suspended while the grant was on its way, for longer than the TTL.
pub(crate) async fn a_grant_that_comes_too_late_is_not_believed(backend: Arc<Backend>) {
    let locks = backend.shared().locks();
    let first = locks.lock("late").acquire().await.unwrap();
    let (address, (ready, waits)) =
        (backend.shared().address(), tokio::sync::oneshot::channel());
    let suspended = move || {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let locks = Locks::builder("lockstore").address(address).build().unwrap();
            let waiter = tokio::spawn(locks.lock("late").ttl(TTL).acquire());
            eventually_waiting(&locks, "late", 1).await;
            ready.send(()).unwrap();
            thread::sleep(2 * TTL);
            waiter.await.unwrap().unwrap_err()
        })
    };
    let suspended = tokio::task::spawn_blocking(suspended);
    waits.await.unwrap();
    first.unlock().await.unwrap();
    let error = suspended.await.unwrap();
    assert_eq!(error.reason(), "UNAVAILABLE");
    assert!(error.to_string().contains("too long ago"), "{error}");
    eventually_free(&locks, "late").await;
}

//! Every way to lose a lock.

use std::{
    convert::Infallible,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use leasehold_client::{Cause, Error, Lock, Locks, RunError};
use tokio::{
    sync::Notify,
    time::{Instant, timeout},
};

use crate::{
    stage::Backend,
    support::{
        PATIENCE, TTL, cause_of, eventually, eventually_free, eventually_waiting, force_unlock,
        inspect, is_held, on_one_thread,
    },
    work::{Endless, Task},
};

/// The TTL of a lock that is to be lost.
const LOSS_TTL: Duration = Duration::from_secs(9);
/// The client gives the lock up this long before its TTL ends, so that a busy machine may notice
/// the silence late.
const STOP_BEFORE: Duration = Duration::from_secs(4);

/// The error of endless work, which comes only if the work is cancelled.
async fn cancelled(task: Task) -> RunError<Infallible> {
    let ended = timeout(PATIENCE, task).await.expect("the work is not cancelled");
    ended.unwrap().unwrap_err()
}

/// Loses the lock under endless work by `lose`, and returns the cause and after how long it was
/// reported.
async fn lose(locks: &Locks, name: &str, lose: impl AsyncFnOnce()) -> (Cause, Duration) {
    let work = Endless::default();
    let task = work.spawn(locks.lock(name).ttl(LOSS_TTL).stop_before(STOP_BEFORE));
    work.started().await;
    let begin = Instant::now();
    lose().await;
    let error = cancelled(task).await;
    assert!(work.has_ended(), "the loss is reported after the end of the work");
    (cause_of(&error), begin.elapsed())
}

pub(crate) async fn max_hold_ends_the_lock(backend: Arc<Backend>) {
    let (locks, work) = (backend.shared().locks(), Endless::default());
    let limited = locks.lock("max-hold").max_hold(Duration::from_secs(3));
    let error = cancelled(work.spawn(limited)).await;
    assert_eq!(cause_of(&error), Cause::MaxHold);
    assert!(work.has_ended());
    eventually_free(&locks, "max-hold").await;
}

/// Whether `max_hold` ends well within the TTL, just before its end, or after it.
pub(crate) async fn max_hold_ends_a_lock_of_a_short_ttl(backend: Arc<Backend>) {
    let limits = [LOSS_TTL * 2 / 5, LOSS_TTL - LOSS_TTL / 60, LOSS_TTL * 3 / 2];
    let limits = limits.map(|max_hold| {
        let locks = backend.shared().locks();
        tokio::spawn(async move {
            let (work, begin) = (Endless::default(), Instant::now());
            let name = format!("max-hold-{max_hold:?}");
            let limited = locks.lock(name).ttl(LOSS_TTL).max_hold(max_hold);
            let error = cancelled(work.spawn(limited)).await;
            assert_eq!(cause_of(&error), Cause::MaxHold, "{max_hold:?}");
            // The loss comes earlier by `stop_before`, a tenth of the TTL or of `max_hold`.
            assert!(begin.elapsed() > max_hold / 2, "{max_hold:?}");
        })
    });
    for limit in limits {
        limit.await.unwrap();
    }
}

/// Even if the sidecar cannot report it, and would hold the lock for longer.
pub(crate) async fn max_hold_ends_a_lock_without_the_sidecar(backend: Arc<Backend>) {
    let (stage, work) = (backend.start(), Endless::default());
    let limited =
        stage.locks().lock("max-hold-3").ttl(3 * PATIENCE).max_hold(Duration::from_secs(3));
    let task = work.spawn(limited);
    work.started().await;
    stage.command("suspend");
    assert_eq!(cause_of(&cancelled(task).await), Cause::MaxHold);
    stage.command("resume");
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

pub(crate) async fn a_dark_connection_is_replaced(backend: Arc<Backend>) {
    let stage = backend.start();
    let (locks, long) = (stage.locks_by_proxy(), Endless::default());
    let task = long.spawn(locks.lock("long").ttl(2 * PATIENCE));
    long.started().await;
    let (cause, _) = lose(&locks, "short", async || stage.command("vanish")).await;
    assert_eq!(cause, Cause::Unconfirmed);
    locks.lock("next").wait(Duration::ZERO).acquire().await.unwrap();
    assert_eq!(cause_of(&cancelled(task).await), Cause::Disconnected, "by the pings");
}

pub(crate) async fn a_suspended_sidecar_cancels_the_work_before_the_deadline(
    backend: Arc<Backend>,
) {
    let stage = backend.start();
    let suspend = async || stage.command("suspend");
    let (cause, after) = lose(&stage.locks(), "suspended", suspend).await;
    assert_eq!(cause, Cause::Unconfirmed);
    assert!(after < LOSS_TTL, "{after:?}");
    stage.command("resume");
}

pub(crate) async fn a_cut_off_sidecar_cancels_the_work_before_the_deadline(
    backend: Arc<Backend>,
) {
    let stage = backend.start();
    let stall = async || stage.command("stall");
    let (cause, after) = lose(&stage.locks_by_proxy(), "cut-off", stall).await;
    assert_eq!(cause, Cause::Unconfirmed);
    assert!(after < LOSS_TTL, "{after:?}");
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

/// The only thread of a runtime is blocked beyond the deadline, so no timer has fired.
pub(crate) async fn a_blocked_runtime_sees_the_loss_by_check(backend: Arc<Backend>) {
    let address = backend.shared().address();
    on_one_thread(move || async move {
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
    })
    .await
    .unwrap();
}

/// Neither by the work nor by others of its task, which use up the budget that Tokio gives a task.
pub(crate) async fn a_loss_is_not_starved(backend: Arc<Backend>) {
    async fn busy() {
        loop {
            tokio::task::consume_budget().await;
        }
    }
    let address = backend.shared().address();
    let losing = on_one_thread(move || async move {
        let locks = Locks::builder("lockstore").address(address).build().unwrap();
        let started = Notify::new();
        let run = locks.lock("starved").run(async |_| {
            started.notify_one();
            busy().await;
            Ok::<_, Infallible>(())
        });
        let neighbour = async {
            started.notified().await;
            busy().await;
        };
        tokio::select! {
            biased;
            () = neighbour => panic!("it has no end"),
            result = run => result.unwrap_err(),
        }
    });
    let locks = backend.shared().locks();
    // Not by a try, which may take the lock.
    eventually("it is held", async || !inspect(&locks, "starved").await.0.is_empty()).await;
    force_unlock(&locks, "starved").await;
    assert_eq!(cause_of(&losing.await.unwrap()), Cause::Forced);
}

/// A question that fails is asked again, so that a pause of the network costs no lock.
pub(crate) async fn a_short_silence_of_the_sidecar_is_survived(backend: Arc<Backend>) {
    const TTL: Duration = Duration::from_secs(10);
    let stage = backend.start();
    let lock = stage.locks_by_proxy().lock("silence").ttl(TTL).acquire().await.unwrap();
    stage.command("stall");
    timeout(TTL / 3, lock.lost()).await.unwrap_err();
    stage.command("heal");
    timeout(TTL, lock.lost()).await.unwrap_err();
    lock.unlock().await.unwrap();
}

/// The process was suspended while the grant was on its way, for longer than the TTL.
pub(crate) async fn a_grant_that_comes_too_late_is_not_acquired(backend: Arc<Backend>) {
    let locks = backend.shared().locks();
    let first = locks.lock("late").acquire().await.unwrap();
    let (address, (ready, waits)) =
        (backend.shared().address(), tokio::sync::oneshot::channel());
    let suspended = on_one_thread(move || async move {
        let locks = Locks::builder("lockstore").address(address).build().unwrap();
        let waiter = tokio::spawn(locks.lock("late").ttl(TTL).acquire());
        eventually_waiting(&locks, "late", 1).await;
        ready.send(()).unwrap();
        thread::sleep(2 * TTL);
        waiter.await.unwrap().unwrap_err()
    });
    waits.await.unwrap();
    first.unlock().await.unwrap();
    let error = suspended.await.unwrap();
    assert_eq!(error.reason(), "UNAVAILABLE");
    assert!(error.to_string().contains("too long ago"), "{error}");
    eventually_free(&locks, "late").await;
}

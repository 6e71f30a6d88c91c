//! What the cases have in common.

use std::time::Duration;

use leasehold_client::{Cause, Error, Locks, RunError, raw};
use raw::{inspection_client::InspectionClient, locks_client::LocksClient};
use tokio::{
    runtime::Builder,
    task::{JoinHandle, spawn_blocking},
    time::{Instant, sleep, timeout},
};

/// Longer than any awaited event takes, also on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// A TTL that a case can wait for. A busy machine may renew and confirm the lock late.
pub(crate) const TTL: Duration = Duration::from_secs(6);
const POLL: Duration = Duration::from_millis(20);

/// Runs a case, with a time limit.
pub(crate) fn run(case: impl Future<Output = ()>) {
    let mut runtime = Builder::new_multi_thread();
    within(runtime.worker_threads(2), 3 * PATIENCE, case);
}

/// Runs `part` in a runtime of one thread, with a time limit.
pub(crate) fn on_one_thread<F: Future<Output: Send + 'static>>(
    part: impl FnOnce() -> F + Send + 'static,
) -> JoinHandle<F::Output> {
    spawn_blocking(|| within(&mut Builder::new_current_thread(), 2 * PATIENCE, part()))
}

fn within<T>(runtime: &mut Builder, limit: Duration, work: impl Future<Output = T>) -> T {
    let runtime = runtime.enable_all().build().unwrap();
    runtime.block_on(async { timeout(limit, work).await.expect("the case hangs") })
}

/// Polls until `condition` is true.
pub(crate) async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !condition().await {
        assert!(Instant::now() < end, "never: {what}");
        sleep(POLL).await;
    }
}

pub(crate) async fn force_unlock(locks: &Locks, name: &str) {
    let request = raw::ForceUnlockRequest {
        resource_id: name.to_owned(),
        store_name: "lockstore".to_owned(),
        ..Default::default()
    };
    LocksClient::new(locks.channel()).force_unlock(request).await.unwrap();
}

/// Who holds `name`, and how many wait for it.
pub(crate) async fn inspect(locks: &Locks, name: &str) -> (Vec<String>, i32) {
    let request = raw::GetLockRequest {
        resource_id: name.to_owned(),
        store_name: "lockstore".to_owned(),
        ..Default::default()
    };
    let answer = InspectionClient::new(locks.channel()).get_lock(request).await.unwrap();
    let answer = answer.into_inner();
    let grants = answer.lock.unwrap_or_default().grants;
    (grants.into_iter().map(|grant| grant.holder).collect(), answer.waiters)
}

pub(crate) async fn eventually_waiting(locks: &Locks, name: &str, waiters: i32) {
    eventually("the number of waiters", async || inspect(locks, name).await.1 == waiters).await;
}

/// Nobody holds `name`, or will within the usual time.
pub(crate) async fn eventually_free(locks: &Locks, name: &str) {
    locks.lock(name).wait(PATIENCE).acquire().await.unwrap().unlock().await.unwrap();
}

pub(crate) async fn is_held(locks: &Locks, name: &str) -> bool {
    locks.try_lock(name).acquire().await.unwrap().is_none()
}

/// That the work has no error of its own, and why the lock was lost.
#[track_caller]
pub(crate) fn cause_of<E: std::fmt::Debug>(error: &RunError<E>) -> Cause {
    match error {
        RunError::Lock(Error::LockLost(lost)) => lost.cause().clone(),
        other => panic!("not a loss alone: {other:?}"),
    }
}

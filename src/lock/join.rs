//! Repeated waiting requests share one wait.
//!
//! A client that repeats a waiting Lock with the same `request_id` while the first is
//! still open must not queue twice. Both calls poll one wait, which ends when the last
//! caller has left. Once the grant is made, each call claims it by an attempt of its own
//! (`Store::wait_with_others`).

use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures_util::{
    FutureExt as _,
    future::{BoxFuture, Shared},
};
use parking_lot::{Mutex, MutexGuard};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::{Attempt, BackendError, Granted, LockError, LockId, Mode, RequestId, ResourceId};

pub(super) type Outcome = Result<Granted, LockError>;
type Key = (ResourceId, RequestId);

/// The waits that are open under a `request_id`.
#[derive(Default)]
pub(super) struct Joins(Mutex<HashMap<Key, Weak<OpenWait>>>);

struct OpenWait {
    outcome: Shared<BoxFuture<'static, Outcome>>,
    stop: CancellationToken,
    lock_id: LockId,
    mode: Mode,
    /// How many callers have not left. It changes only while the list is locked, so that
    /// exactly one of several callers that leave at once is the last.
    shares: AtomicUsize,
}

impl Joins {
    /// Joins the open wait of this key, or opens one with `open`, which gets the token
    /// that stops it. Returns the outcome of the wait, or `deadline`'s error once that
    /// has passed. The last caller then waits until the wait has ended, but not longer
    /// than `answer_by`.
    pub(super) async fn wait(
        &self,
        request_id: RequestId,
        attempt: &Attempt,
        deadline: impl Future<Output = LockError>,
        answer_by: Option<Instant>,
        open: impl FnOnce(CancellationToken) -> BoxFuture<'static, Outcome>,
    ) -> Outcome {
        let mut share = self.enter((attempt.resource.clone(), request_id), attempt, open)?;
        let outcome = share.wait.outcome.clone();
        tokio::select! {
            biased;
            outcome = outcome.clone() => outcome,
            passed = deadline => {
                if !share.leave() {
                    return Err(passed);
                }
                share.wait.stop.cancel();
                let Some(answer_by) = answer_by else { return outcome.await };
                // If it is dropped unfinished, the wait is settled in the background.
                timeout_at(answer_by, outcome).await.unwrap_or_else(|_| {
                    Err(LockError::OutcomeUnknown(
                        "the wait ended, but the backend did not confirm in time that it left \
                        the queue"
                            .into(),
                    ))
                })
            }
        }
    }

    fn enter(
        &self,
        key: Key,
        attempt: &Attempt,
        open: impl FnOnce(CancellationToken) -> BoxFuture<'static, Outcome>,
    ) -> Result<Share<'_>, LockError> {
        let mut waits = self.waits();
        let wait = match waits.get(&key).and_then(Weak::upgrade) {
            // A wait that has ended is kept by callers that have not seen its outcome yet.
            Some(wait) if wait.outcome.peek().is_none() => {
                wait.must_match(attempt)?;
                wait
            }
            _ => {
                let stop = CancellationToken::new();
                let wait = Arc::new(OpenWait {
                    outcome: open(stop.clone()).shared(),
                    stop,
                    lock_id: attempt.lock_id.clone(),
                    mode: attempt.mode,
                    shares: AtomicUsize::new(0),
                });
                waits.insert(key.clone(), Arc::downgrade(&wait));
                wait
            }
        };
        wait.shares.fetch_add(1, Ordering::Relaxed);
        drop(waits);
        Ok(Share { joins: self, key, wait, left: false })
    }

    fn waits(&self) -> MutexGuard<'_, HashMap<Key, Weak<OpenWait>>> {
        self.0.lock()
    }
}

impl OpenWait {
    fn must_match(&self, attempt: &Attempt) -> Result<(), LockError> {
        let field = if attempt.lock_id_given && attempt.lock_id != self.lock_id {
            "lock_id"
        } else if attempt.mode != self.mode {
            "mode"
        } else {
            return Ok(());
        };
        Err(BackendError::ReplayMismatch { field }.into())
    }
}

/// One caller's share of an open wait.
struct Share<'a> {
    joins: &'a Joins,
    key: Key,
    wait: Arc<OpenWait>,
    left: bool,
}

impl Share<'_> {
    /// Gives the share up. Returns whether it was the last one, in which case the wait
    /// leaves the list, and a later repetition opens a new wait.
    fn leave(&mut self) -> bool {
        if std::mem::replace(&mut self.left, true) {
            return false;
        }
        let mut waits = self.joins.waits();
        let last = self.wait.shares.fetch_sub(1, Ordering::Relaxed) == 1;
        let listed = waits
            .get(&self.key)
            .is_some_and(|listed| std::ptr::eq(listed.as_ptr(), Arc::as_ptr(&self.wait)));
        if last && listed {
            waits.remove(&self.key);
        }
        last
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use std::{future::pending, time::Duration};

    use super::*;
    use crate::Ttl;

    fn attempt() -> Attempt {
        Attempt {
            request_id: RequestId::new("secret").unwrap(),
            ..Attempt::new(
                ResourceId::new("r").unwrap(),
                Ttl::new(Duration::from_secs(1), Duration::from_secs(1)).unwrap(),
            )
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn callers_that_leave_at_once_leave_nothing_behind() {
        let joins = Arc::new(Joins::default());
        for _ in 0..3_000 {
            let gate = CancellationToken::new();
            let callers = [(); 4].map(|()| {
                let (joins, gate) = (Arc::clone(&joins), gate.clone());
                tokio::spawn(async move {
                    let attempt = attempt();
                    let open = move |_| {
                        async move {
                            gate.cancelled().await;
                            Err(LockError::WaitDeadline)
                        }
                        .boxed()
                    };
                    let id = attempt.request_id.clone().unwrap();
                    joins.wait(id, &attempt, pending(), None, open).await
                })
            });
            tokio::task::yield_now().await;
            gate.cancel();
            for caller in callers {
                assert!(caller.await.unwrap().is_err());
            }
            assert!(joins.waits().is_empty());
        }
    }
}

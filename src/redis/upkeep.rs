//! Background tasks: looks at the resources that are waited for, and the removal of places
//! without a waiter.

use std::{
    collections::VecDeque,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use ::redis::Value;
use futures_util::{
    future::join_all,
    stream::{FuturesUnordered, StreamExt as _},
};
use leasehold_lock::{Attempt, BackendError, ResourceId, WaiterSlot};
use parking_lot::MutexGuard;
use tokio::time::{Instant, sleep};
use tracing::{debug, warn};

use super::{
    core::{Core, FIRST_LOOK},
    library::Verb,
    times::TIMES,
};

/// How many looks are under way at the same time.
const LOOKS_MAX: usize = 64;
/// How many places are removed at the same time.
const REMOVALS_MAX: usize = 64;
/// How long to wait before removals that failed are repeated.
const RETRY: Duration = Duration::from_secs(1);
/// The shortest time between two searches of a full queue for dead waiters.
const SEARCH_PERIOD: Duration = Duration::from_secs(1);
/// How many full queues may be searched in that time.
const SEARCHES_MAX: usize = 100;

/// The result of a look.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// In how many milliseconds to look again; negative for never.
    again_ms: i64,
    /// Whether others may depend on that look: the resource is handed over and not confirmed, or
    /// a question is not answered.
    handed: bool,
    /// Whether the oldest waiter has no place in the queue.
    lost: bool,
    /// The attempts of this process to which the resource was handed over, with spaces between
    /// them.
    called: String,
    /// The public ID of the grant. A waiter of this process may have it without knowing, if the
    /// answer to the release that made it was lost.
    grant: String,
}

impl Seen {
    /// Reads the result of the function; the last parts may be absent.
    pub(crate) fn read(value: Value) -> Option<Self> {
        let Value::Array(parts) = value else { return None };
        let mut parts = parts.into_iter();
        let mut number = || match parts.next() {
            Some(Value::Int(number)) => Some(number),
            _ => None,
        };
        let (again_ms, handed, lost) = (number()?, number()? == 1, number()? == 1);
        let mut text = || match parts.next() {
            None => Some(String::new()),
            Some(value) => ::redis::from_redis_value(value).ok(),
        };
        Some(Self { again_ms, handed, lost, called: text()?, grant: text()? })
    }
}

impl Core {
    /// Looks at resources when they are due. A look hands an expired resource over.
    pub(super) async fn keep_looking(self: Arc<Self>) {
        let mut looks = FuturesUnordered::new();
        loop {
            tokio::select! {
                due = self.waiters.due(LOOKS_MAX - looks.len()), if looks.len() < LOOKS_MAX => {
                    for resource in due {
                        let core = Arc::clone(&self);
                        looks.push(async move { core.look(&resource).await });
                    }
                }
                Some(()) = looks.next() => {}
            }
        }
    }

    async fn look(&self, resource: &ResourceId) {
        // A node that is not reached, or does not answer, must not keep looks at the others waiting.
        let _turn = if self.router.has_several() {
            let link = self.router.link(resource).filter(|link| link.is_connected());
            match link.and_then(|link| Arc::clone(&link.looks).try_acquire_owned().ok()) {
                Some(turn) => Some(turn),
                None => return self.waiters.guard(resource, FIRST_LOOK / 4),
            }
        } else {
            None
        };
        loop {
            let seen = self.look_once(resource).await;
            let waiting = self.waiters.waiting(resource) > 0;
            let seen = match seen {
                Ok(seen) => seen,
                // A later look would fail too.
                Err(BackendError::Invalid(_)) if !waiting => return,
                // The waiters of other processes may depend on this look.
                Err(_) => return self.waiters.guard(resource, FIRST_LOOK),
            };
            for attempt in seen.called.split_whitespace() {
                self.waiters.call(attempt, resource.as_str());
            }
            self.waiters.check(&seen.grant);
            match u64::try_from(seen.again_ms) {
                // A chunk of dead waiters was dropped, and there are more.
                Ok(0) if seen.called.is_empty() && !seen.handed => {}
                Ok(left_ms) => {
                    let left = Duration::from_millis(left_ms);
                    if seen.handed {
                        self.waiters.guard(resource, left);
                    } else if waiting {
                        self.waiters.plan(resource, left);
                    }
                    return;
                }
                Err(_) => {
                    if waiting {
                        self.waiters.plan(resource, FIRST_LOOK);
                    }
                    return;
                }
            }
        }
    }

    /// Runs the function, and makes waiters that have lost their places enter again.
    async fn look_once(&self, resource: &ResourceId) -> Result<Seen, BackendError> {
        let oldest = self.waiters.oldest(resource).unwrap_or_default();
        let until = Instant::now() + self.settings.operation_timeout;
        let arguments = |request: &mut ::redis::Cmd, _| {
            request.arg(&oldest.place).arg(&oldest.attempt).arg(self.caller());
        };
        let answer = self.router.run(Verb::Look, resource, arguments, until).await?;
        let seen = Seen::read(answer.value)
            .ok_or_else(|| BackendError::Unknown("the answer was not a look's".into()))?;
        // The waiter may have been granted or have left in the meantime.
        if seen.lost && self.waiters.is_queued(&oldest.attempt) {
            debug!(
                resource = resource.as_str(),
                "places were lost; those who wait enter again"
            );
            self.waiters.enter_again(resource);
        }
        Ok(seen)
    }

    /// Removes places of dead processes from a full queue. Returns whether there were any. If not,
    /// the others have been asked, and a look removes those who do not answer.
    pub(super) async fn drop_dead(&self, resource: &ResourceId) -> bool {
        if !self.may_search(resource) {
            return false;
        }
        let mut after = "-inf".to_owned();
        while let Some((dropped, next)) = self.sweep(resource, &after).await {
            if dropped > 0 {
                return true;
            }
            if next.is_empty() {
                break;
            }
            after = next;
        }
        self.waiters.guard(resource, TIMES.answer);
        false
    }

    async fn sweep(&self, resource: &ResourceId, after: &str) -> Option<(u64, String)> {
        let until = Instant::now() + self.settings.operation_timeout;
        let arguments = |request: &mut ::redis::Cmd, _| {
            request.arg(after).arg(self.caller());
        };
        let answer = self.router.run(Verb::Sweep, resource, arguments, until).await.ok()?;
        ::redis::from_redis_value(answer.value).ok()
    }

    fn may_search(&self, resource: &ResourceId) -> bool {
        let mut searched = self.searched.lock();
        searched.retain(|_, at| at.elapsed() < SEARCH_PERIOD);
        if searched.len() >= SEARCHES_MAX || searched.contains_key(resource) {
            return false;
        }
        searched.insert(resource.clone(), Instant::now());
        true
    }

    /// Removes the places that an outage left behind, and passes on resources that were handed
    /// over to attempts that do not wait here.
    pub(super) async fn keep_up(self: Arc<Self>) {
        // A node that does not answer keeps the removals waiting, which must not delay strays.
        let strays = async {
            loop {
                self.waiters.strayed().await;
                self.pass_strays_on().await;
            }
        };
        let places = async {
            loop {
                sleep(RETRY).await;
                self.log_lost_places();
                self.leave_places().await;
            }
        };
        tokio::join!(strays, places);
    }

    fn log_lost_places(&self) {
        let waiters = self.places_lost.swap(0, Ordering::Relaxed);
        if waiters > 0 {
            warn!(waiters, "waiters had lost their places, and queue again at the end");
        }
    }

    async fn pass_strays_on(&self) {
        loop {
            let strays = self.waiters.strays(REMOVALS_MAX);
            if strays.is_empty() {
                return;
            }
            // If it fails, the hand-over lapses.
            join_all(strays.iter().map(|stray| self.pass_on(stray))).await;
        }
    }

    async fn leave_places(&self) {
        loop {
            let places: Vec<_> = {
                let mut left = self.left();
                let most = left.len().min(REMOVALS_MAX);
                left.drain(..most).collect()
            };
            if places.is_empty() {
                return;
            }
            let until = Instant::now() + self.settings.operation_timeout;
            // A server that is not reached keeps no others waiting.
            let leaving = places.iter().map(|(attempt, _)| async {
                let is_reached = self.router.is_connected(&attempt.resource);
                is_reached
                    && matches!(
                        self.withdraw(attempt, until).await,
                        Ok(()) | Err(BackendError::NotHeld { .. })
                    )
            });
            let have_left = join_all(leaving).await;
            let mut failed: VecDeque<_> = places
                .into_iter()
                .zip(have_left)
                .filter(|(_, has_left)| !has_left)
                .map(|(place, _)| place)
                .collect();
            if !failed.is_empty() {
                self.left().append(&mut failed);
                return;
            }
        }
    }

    /// The places to remove when Redis is back.
    pub(super) fn left(&self) -> MutexGuard<'_, VecDeque<(Arc<Attempt>, WaiterSlot)>> {
        self.left.lock()
    }
}

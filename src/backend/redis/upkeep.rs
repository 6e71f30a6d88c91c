//! What goes on besides calls: looks at what is waited for, signs of life, and
//! places left behind by an outage.

use std::{
    collections::VecDeque,
    sync::{Arc, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::future::join_all;
use tokio::time::{Instant, sleep};

use super::{
    backend::{Core, FIRST_LOOK},
    entry,
    link::Sessions,
    scripts::{SCRIPTS, SIGN},
    sign,
};
use crate::lock::{Attempt, BackendError, ResourceId};

/// How many looks are under way at a time.
const LOOKS_MAX: usize = 64;

impl Core {
    /// Looks at what is due: what has expired is handed over by whoever looks.
    pub(super) async fn keep_looking(self: Arc<Self>) {
        loop {
            let due = self.waiters.due(LOOKS_MAX).await;
            join_all(due.iter().map(|resource| self.look(resource))).await;
        }
    }

    async fn look(&self, resource: &ResourceId) {
        let keys = [resource.as_str(), &entry::counter_key(resource)];
        let until = Instant::now() + self.settings.operation_timeout;
        let answer = self.link.run(&SCRIPTS.look, &keys, |_, _| {}, until).await;
        let seen: Option<(i64, i64, usize)> =
            answer.ok().and_then(|answer| ::redis::from_redis_value(answer.value).ok());
        let here = self.waiters.waiting(resource);
        let waiting = here > 0;
        // The queue was deleted by hand, or with all data: nobody else knows
        // who stood in it. A few are always on their way in or out.
        if let Some((_, _, queued)) = seen
            && 2 * queued < here
        {
            self.waiters.wake_all(resource);
        }
        match seen {
            None | Some((-2, ..)) if waiting => self.waiters.plan(resource, FIRST_LOOK),
            Some((left_ms, handed, _))
                if left_ms >= 0 && (waiting || handed == 1 || left_ms == 0) =>
            {
                let left = Duration::from_millis(u64::try_from(left_ms).unwrap_or_default());
                self.waiters.plan(resource, left);
            }
            _ => {}
        }
    }

    /// Gives signs of life while anybody waits, and leaves places behind that
    /// an outage ended.
    pub(super) async fn keep_up(self: Arc<Self>) {
        let mut sessions = self.link.sessions();
        loop {
            tokio::select! {
                () = self.waiters.occupied() => {}
                changed = next_session(&mut sessions) => {
                    if !changed {
                        return;
                    }
                    self.leave_places().await;
                }
            }
            while self.waiters.any() {
                let now = Instant::now();
                if self.sign.is_due()
                    && self.link.send(&self.sign.request(), now + SIGN).await.is_ok()
                {
                    self.sign.given(now);
                }
                self.leave_places().await;
                sleep(sign::PERIOD).await;
            }
        }
    }

    async fn leave_places(&self) {
        loop {
            let Some(attempt) = self.left().pop_front() else { return };
            let until = Instant::now() + self.settings.operation_timeout;
            if let Err(error) = self.withdraw(&attempt, until).await
                && !matches!(error, BackendError::NotHeld { .. })
            {
                self.left().push_front(attempt);
                return;
            }
        }
    }

    /// Places to be left when Redis is back.
    pub(super) fn left(&self) -> MutexGuard<'_, VecDeque<Arc<Attempt>>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether there is another connection than there was (`true`), or there will
/// never be one again.
async fn next_session(sessions: &mut Sessions) -> bool {
    loop {
        if sessions.changed().await.is_err() {
            return false;
        }
        if sessions.borrow_and_update().is_some() {
            return true;
        }
    }
}

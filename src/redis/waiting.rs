//! A wait, from entering the queue to the grant.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use ::redis::Cmd;
use leasehold_lock::{
    self as lock, Attempt, BackendError, Grant, Mode, ResourceId, WaiterSlot,
};
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Instant, sleep},
};

use super::{
    core::{Core, FIRST_LOOK, out_of_memory},
    entry,
    library::Verb,
    link::{Post, REOPEN_DELAY_MAX, in_turn},
    reply::Reply,
    waiters::{StraightGrant, Summons, WaiterHandle},
};

/// How much longer than the operation timeout an outage may last without ending a wait.
const OUTAGE_GRACE: Duration = Duration::from_secs(1);
// Otherwise a wait could end although the server is back, before the next try to connect.
const _: () = assert!(2 * REOPEN_DELAY_MAX.as_millis() < OUTAGE_GRACE.as_millis());
/// How long a waiter that was refused a new place waits before it retries.
const REENTRY_DELAY: Duration = Duration::from_millis(200);

/// The result of entering the queue.
enum Entered {
    /// The resource was free.
    Granted(Grant),
    /// The attempt has a place in the queue, and its notices have been received there since.
    Queued { post: Post },
    /// The queue is full.
    Full,
}

impl Core {
    /// Waits for a grant.
    pub(super) async fn wait(
        &self,
        attempt: &Attempt,
        slot: WaiterSlot,
    ) -> Result<Grant, BackendError> {
        let waiter = self.waiters.register(attempt);
        let mut post = match self.enter_first(attempt, &waiter).await? {
            Entered::Granted(grant) => return Ok(grant),
            Entered::Queued { post } => post,
            Entered::Full => return Err(full()),
        };
        loop {
            let summons = tokio::select! {
                summons = waiter.summoned() => summons,
                // Messages may have been lost with the connection, so enter again.
                () = self.router.left(&attempt.resource, post) => Summons::EnterAgain,
            };
            let ended = match summons {
                Summons::Confirm => match self.confirm(attempt).await {
                    Ok(Some(grant)) => return Ok(grant),
                    Ok(None) => self.enter_again(attempt, &waiter).await,
                    Err(error) => Err(error),
                },
                Summons::Granted(StraightGrant { token, since }) => {
                    let made = Reply::Made { token, lock_id: None, handed: 0 };
                    self.granted_in_turn(attempt, made, since).map(Entered::Granted)
                }
                Summons::EnterAgain => self.enter_again(attempt, &waiter).await,
            };
            match ended {
                Ok(Entered::Granted(grant)) => return Ok(grant),
                Ok(Entered::Queued { post: now }) => post = now,
                Ok(Entered::Full) => return Err(full()),
                Err(error) => return Err(self.end_wait(attempt, slot, error)),
            }
        }
    }

    /// Acquires the resource if it is free, or else enters the queue. If the queue is full,
    /// dead waiters are removed first.
    async fn enter_first(
        &self,
        attempt: &Attempt,
        waiter: &WaiterHandle,
    ) -> Result<Entered, BackendError> {
        let turn = self.turn(&attempt.resource).await?;
        let entered = in_turn(turn, self.enter(attempt, waiter, false)).await?;
        if matches!(entered, Entered::Full) && self.drop_dead(&attempt.resource).await {
            return self.enter(attempt, waiter, false).await;
        }
        Ok(entered)
    }

    /// Checks the place in the queue. If it is gone, enters again at the end.
    async fn enter_again(
        &self,
        attempt: &Attempt,
        waiter: &WaiterHandle,
    ) -> Result<Entered, BackendError> {
        let give_up = Instant::now() + self.outage_max();
        loop {
            let turn = self.turn(&attempt.resource).await?;
            let entered = in_turn(turn, self.enter(attempt, waiter, true)).await;
            // A full queue and a server without memory count as outages.
            let refused =
                matches!(entered, Ok(Entered::Full) | Err(BackendError::Unavailable(_)));
            if !refused || Instant::now() + REENTRY_DELAY >= give_up {
                return entered;
            }
            if matches!(entered, Ok(Entered::Full)) {
                self.drop_dead(&attempt.resource).await;
            }
            sleep(REENTRY_DELAY).await;
        }
    }

    /// A permit to enter. Only few waiters enter at the same time, so that renewals need not
    /// wait behind thousands. During an outage there are no permits.
    async fn turn(&self, resource: &ResourceId) -> Result<OwnedSemaphorePermit, BackendError> {
        loop {
            let until = Instant::now() + self.outage_max();
            let link = self.router.connected(resource, until).await?;
            let turn = Arc::clone(&link.entries).acquire_owned().await;
            if link.is_connected() {
                return turn
                    .map_err(|_| BackendError::Unavailable("the backend is closed".into()));
            }
        }
    }

    async fn enter(
        &self,
        attempt: &Attempt,
        waiter: &WaiterHandle,
        entered: bool,
    ) -> Result<Entered, BackendError> {
        let rest = entry::rest(attempt);
        let is_plain = attempt.mode == Mode::Exclusive && attempt.request_id.is_none();
        let first = if is_plain { "0" } else { "2" };
        let arguments = |request: &mut Cmd, again: bool| {
            self.acquire_arguments(request, attempt, &rest);
            request
                .arg(if again || entered { "1" } else { first })
                .arg(self.settings.waiters_per_resource_max);
        };
        let until = Instant::now() + self.outage_max();
        let answer = self.acquire(Verb::Enter, attempt, arguments, until).await?;
        match Reply::read(answer.value)? {
            Reply::Queued { left_ms, was_queued } => {
                if entered && !was_queued {
                    self.places_lost.fetch_add(1, Ordering::Relaxed);
                }
                waiter.note_queued();
                let left = u64::try_from(left_ms).map_or(FIRST_LOOK, Duration::from_millis);
                let soon = if waiter.first || entered { left.min(FIRST_LOOK) } else { left };
                self.waiters.plan(&attempt.resource, soon);
                Ok(Entered::Queued { post: answer.post })
            }
            Reply::Full => Ok(Entered::Full),
            Reply::Gone => Err(out_of_memory()),
            other => self.conclude(attempt, other, answer.since).map(Entered::Granted),
        }
    }

    /// Confirms a hand-over; `None` if it does not exist any more.
    async fn confirm(&self, attempt: &Attempt) -> Result<Option<Grant>, BackendError> {
        let rest = entry::rest(attempt);
        let arguments = |request: &mut Cmd, _| {
            self.acquire_arguments(request, attempt, &rest);
        };
        let until = Instant::now() + self.outage_max();
        let answer = self.acquire(Verb::Confirm, attempt, arguments, until).await?;
        match Reply::read(answer.value)? {
            Reply::Gone => Ok(None),
            other => {
                let handed = other.handed();
                let grant = self.granted_in_turn(attempt, other, answer.since)?;
                if handed == 0 {
                    self.waiters.confirmed(&attempt.resource);
                }
                Ok(Some(grant))
            }
        }
    }

    /// Concludes a wait, and plans a look for those who wait behind it.
    fn granted_in_turn(
        &self,
        attempt: &Attempt,
        reply: Reply,
        since: lock::Instant,
    ) -> Result<Grant, BackendError> {
        let grant = self.conclude(attempt, reply, since)?;
        if self.waiters.waiting(&attempt.resource) > 1 {
            self.waiters.plan(&attempt.resource, grant.ttl);
        }
        Ok(grant)
    }

    /// Ends a wait with an error. If an outage ended it, its place, or the grant that a release
    /// made for it, is removed when Redis is back. So its caller may be told that it holds nothing.
    fn end_wait(
        &self,
        attempt: &Attempt,
        slot: WaiterSlot,
        error: BackendError,
    ) -> BackendError {
        if matches!(error, BackendError::Unavailable(_)) {
            self.left().push_back((Arc::new(attempt.clone()), slot));
        }
        error
    }

    fn outage_max(&self) -> Duration {
        self.settings.operation_timeout + OUTAGE_GRACE
    }
}

fn full() -> BackendError {
    BackendError::TooManyWaiters("the resource's limit is reached")
}

//! A lock that is or was held, and until when it may be believed in.

use std::{
    future::{pending, poll_fn},
    pin::pin,
    task::Poll,
    time::Duration,
};

use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use crate::{Cause, LockLost, Mode};

/// What a lock's handles and its task share.
pub(crate) struct Held {
    pub(crate) resource: String,
    pub(crate) namespace: Vec<String>,
    pub(crate) mode: Mode,
    pub(crate) lock_id: String,
    pub(crate) grant_id: String,
    pub(crate) token: i64,
    max_hold_end: Option<Instant>,
    state: watch::Sender<State>,
}

struct State {
    /// The lock is lost then: the safe deadline less `stop_before`.
    deadline: Instant,
    phase: Phase,
}

enum Phase {
    Held,
    Unlocking,
    Unlocked,
    Lost(LockLost),
}

impl State {
    fn is_valid(&self) -> bool {
        matches!(self.phase, Phase::Held) && Instant::now() < self.deadline
    }
}

/// What [`Held`] is made of.
pub(crate) struct Grant {
    pub(crate) resource: String,
    pub(crate) namespace: Vec<String>,
    pub(crate) mode: Mode,
    pub(crate) lock_id: String,
    pub(crate) grant_id: String,
    pub(crate) token: i64,
    /// A deadline that is not before this is that of `max_hold`.
    pub(crate) max_hold_end: Option<Instant>,
}

impl Held {
    pub(crate) fn new(grant: Grant, deadline: Instant) -> Self {
        let Grant { resource, namespace, mode, lock_id, grant_id, token, max_hold_end } = grant;
        let state = watch::Sender::new(State { deadline, phase: Phase::Held });
        Self { resource, namespace, mode, lock_id, grant_id, token, max_hold_end, state }
    }

    /// For how long it may be believed in; reads the clock, so that a process that was suspended
    /// sees the loss before any timer has fired.
    pub(crate) fn valid_for(&self) -> Result<Duration, LockLost> {
        match self.end() {
            // More than zero, although the deadline may have passed since it was looked at.
            None => {
                let left =
                    self.state.borrow().deadline.saturating_duration_since(Instant::now());
                Ok(left.max(Duration::from_nanos(1)))
            }
            Some(Ok(())) => Err(self.loss(Cause::Ended)),
            Some(Err(lost)) => Err(lost),
        }
    }

    /// Whether it is lost, and not only unlocked.
    pub(crate) fn lost(&self) -> Option<LockLost> {
        self.end().and_then(Result::err)
    }

    /// Waits until it is not held any more: `Ok` if it was unlocked by its owner.
    pub(crate) async fn over(&self) -> Result<(), LockLost> {
        let mut waiting = pin!(self.until_over());
        // The state is read at every poll, because the wake-ups of a change are not simultaneous:
        // if one future of a task has seen the loss, so do all that are polled after it.
        let end = poll_fn(|context| match self.end() {
            Some(end) => Poll::Ready(Some(end)),
            None => waiting.as_mut().poll(context).map(|()| self.end()),
        });
        end.await.unwrap_or(Ok(()))
    }

    async fn until_over(&self) {
        let mut changes = self.state.subscribe();
        loop {
            // Before `end` looks, so that no change is marked as seen that it has not seen.
            let deadline = changes.borrow_and_update().deadline;
            if self.end().is_some() {
                break;
            }
            tokio::select! {
                // The sender is in `self`, so it is not gone.
                _ = changes.changed() => {}
                () = sleep_until(deadline) => {}
            }
        }
    }

    /// Waits until it is lost; never ends if it is unlocked by its owner.
    pub(crate) async fn over_by_loss(&self) -> LockLost {
        match self.over().await {
            Err(lost) => lost,
            Ok(()) => pending().await,
        }
    }

    /// How it ended, if it has: `Ok` if it was unlocked by its owner.
    fn end(&self) -> Option<Result<(), LockLost>> {
        self.notice_deadline();
        match &self.state.borrow().phase {
            Phase::Held => None,
            Phase::Unlocking | Phase::Unlocked => Some(Ok(())),
            Phase::Lost(lost) => Some(Err(lost.clone())),
        }
    }

    /// Waits for the end of the Unlock that is under way.
    pub(crate) async fn unlocked(&self) -> Result<(), LockLost> {
        let mut changes = self.state.subscribe();
        let ended = |state: &State| matches!(state.phase, Phase::Unlocked | Phase::Lost(_));
        match changes.wait_for(ended).await.as_deref() {
            Ok(State { phase: Phase::Lost(lost), .. }) => Err(lost.clone()),
            _ => Ok(()),
        }
    }

    /// It is valid until `deadline`, unless it is not held any more.
    pub(crate) fn confirm(&self, deadline: Instant) {
        self.state.send_if_modified(|state| {
            let valid = state.is_valid();
            if valid {
                state.deadline = deadline;
            }
            valid
        });
    }

    /// It is lost, unless it is not held any more.
    pub(crate) fn lose(&self, cause: Cause) {
        self.leave(|state| matches!(state.phase, Phase::Held), Phase::Lost(self.loss(cause)));
    }

    /// Whether the caller is the one to unlock it.
    pub(crate) fn begin_unlock(&self) -> bool {
        self.notice_deadline();
        self.leave(|state| matches!(state.phase, Phase::Held), Phase::Unlocking)
    }

    /// Ends the Unlock that is under way.
    pub(crate) fn end_unlock(&self, lost: Option<LockLost>) {
        let phase = lost.map_or(Phase::Unlocked, Phase::Lost);
        self.leave(|state| matches!(state.phase, Phase::Unlocking), phase);
    }

    /// Whether its stream is to be closed at once: not while it is being unlocked.
    pub(crate) fn abandon(&self) -> bool {
        self.leave(|state| matches!(state.phase, Phase::Held), Phase::Unlocked);
        !matches!(self.state.borrow().phase, Phase::Unlocking)
    }

    pub(crate) fn loss(&self, cause: Cause) -> LockLost {
        LockLost { resource: self.resource.clone(), cause }
    }

    fn notice_deadline(&self) {
        let missed = |state: &State| matches!(state.phase, Phase::Held) && !state.is_valid();
        let deadline = {
            let state = self.state.borrow();
            if !missed(&state) {
                return;
            }
            state.deadline
        };
        let max_hold = self.max_hold_end.is_some_and(|end| deadline >= end);
        let cause = if max_hold { Cause::MaxHold } else { Cause::Unconfirmed };
        self.leave(missed, Phase::Lost(self.loss(cause)));
    }

    /// Goes over to `phase` if `condition` still holds, and tells whether it did.
    fn leave(&self, condition: impl Fn(&State) -> bool, phase: Phase) -> bool {
        self.state.send_if_modified(|state| {
            let leaves = condition(state);
            if leaves {
                state.phase = phase;
            }
            leaves
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, timeout};

    use super::*;

    const VALID: Duration = Duration::from_secs(3);

    fn held(max_hold: Option<Duration>) -> Held {
        let max_hold_end = max_hold.map(|max_hold| Instant::now() + max_hold);
        let grant = Grant {
            resource: "order".to_owned(),
            namespace: Vec::new(),
            mode: Mode::Exclusive,
            lock_id: String::new(),
            grant_id: String::new(),
            token: 1,
            max_hold_end,
        };
        Held::new(grant, Instant::now() + VALID)
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_lost_at_its_deadline_and_not_before() {
        let held = held(None);
        advance(VALID - Duration::from_millis(1)).await;
        assert_eq!(held.valid_for(), Ok(Duration::from_millis(1)));
        advance(Duration::from_millis(1)).await;
        assert_eq!(held.valid_for().unwrap_err().cause, Cause::Unconfirmed);
        assert!(!held.begin_unlock());
    }

    #[tokio::test(start_paused = true)]
    async fn a_confirmation_moves_the_deadline_but_does_not_revive() {
        let held = held(None);
        held.confirm(Instant::now() + 2 * VALID);
        assert!(timeout(2 * VALID - Duration::from_millis(1), held.over()).await.is_err());
        assert_eq!(held.over().await.unwrap_err().cause, Cause::Unconfirmed);
        held.confirm(Instant::now() + VALID);
        assert!(held.valid_for().is_err());
        held.lose(Cause::Forced);
        assert_eq!(held.lost().unwrap().cause, Cause::Unconfirmed, "the first cause stays");
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_at_the_end_of_max_hold_is_that_of_max_hold() {
        let held = held(Some(2 * VALID));
        held.confirm(Instant::now() + 2 * VALID);
        advance(2 * VALID).await;
        assert_eq!(held.lost().unwrap().cause, Cause::MaxHold);
    }

    #[tokio::test]
    async fn an_unlock_ends_once_and_no_loss_comes_after_it() {
        let held = held(None);
        assert!(held.begin_unlock() && !held.begin_unlock());
        held.lose(Cause::Disconnected);
        assert!(!held.abandon(), "the unlock under way closes the stream");
        assert_eq!(held.over().await, Ok(()));
        held.end_unlock(None);
        assert_eq!(held.unlocked().await, Ok(()));
        assert_eq!(held.valid_for().unwrap_err().cause, Cause::Ended);
    }
}

//! A lock that is or was held, and until when it is valid.

use std::{future::poll_fn, pin::pin, sync::OnceLock, task::Poll, time::Duration};

use tokio::{sync::watch, time::Instant};

use crate::{
    Cause, LockLost, Mode,
    clock::{now, sleep_until},
};

/// How a lock ended: `Ok` if its owner has unlocked it.
pub(crate) type End = Result<(), LockLost>;

/// What a lock's handles and its task share.
pub(crate) struct Held {
    pub(crate) grant: Grant,
    limits: Limits,
    /// Called before any handle shows that the lock was not confirmed in time.
    on_silence: Box<dyn Fn() + Send + Sync>,
    state: watch::Sender<State>,
}

/// What was granted.
pub(crate) struct Grant {
    pub(crate) resource: String,
    pub(crate) namespace: Vec<String>,
    pub(crate) mode: Mode,
    pub(crate) lock_id: String,
    pub(crate) grant_id: String,
    pub(crate) token: i64,
}

/// What makes the deadline of a lock earlier than the sidecar says.
pub(crate) struct Limits {
    pub(crate) stop_before: Duration,
    pub(crate) max_hold: Option<MaxHold>,
}

/// When `max_hold` ends a lock.
pub(crate) struct MaxHold {
    pub(crate) end: Instant,
    /// The end less the drift allowance: a safe deadline that is not before it comes from
    /// `max_hold`.
    pub(crate) from: Instant,
}

struct State {
    deadline: Deadline,
    phase: Phase,
    /// How many handles have not ended yet.
    handles: usize,
}

#[derive(Clone, Copy)]
struct Deadline {
    /// The lock is lost then: the safe deadline less `stop_before`.
    at: Instant,
    by_max_hold: bool,
}

enum Phase {
    Held,
    Unlocking,
    Unlocked,
    Lost(LockLost),
}

impl State {
    fn is_valid(&self) -> bool {
        matches!(self.phase, Phase::Held) && now() < self.deadline.at
    }
}

impl Limits {
    fn deadline(&self, safe: Instant) -> Deadline {
        let capped = self.max_hold.as_ref().map_or(safe, |max_hold| safe.min(max_hold.end));
        Deadline {
            at: capped.checked_sub(self.stop_before).unwrap_or_else(now),
            by_max_hold: self.max_hold.as_ref().is_some_and(|limit| capped >= limit.from),
        }
    }
}

/// What to do when a handle has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// Nothing: other handles of the lock go on.
    ToOthers,
    /// Nothing, but the lock is lost: the last of the other handles closes the stream.
    LostToOthers,
    /// Unlock: it was the last one.
    Held,
    /// Close the stream: it was the last one of a lost lock.
    Lost,
}

impl Held {
    /// A lock with one handle.
    pub(crate) fn new(
        grant: Grant,
        limits: Limits,
        safe_deadline: Instant,
        on_silence: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let deadline = limits.deadline(safe_deadline);
        let state = watch::Sender::new(State { deadline, phase: Phase::Held, handles: 1 });
        Self { grant, limits, on_silence: Box::new(on_silence), state }
    }

    /// For how long a lock that has not ended is valid.
    pub(crate) fn left(&self) -> Duration {
        let left = self.state.borrow().deadline.at.saturating_duration_since(now());
        // More than zero, although the deadline may have passed since it was looked at.
        left.max(Duration::from_nanos(1))
    }

    /// How it ended, if it has. Reads the clock, so that a process that was suspended sees the
    /// loss before any timer has fired.
    pub(crate) fn end(&self) -> Option<End> {
        self.notice_deadline();
        match &self.state.borrow().phase {
            Phase::Held => None,
            Phase::Unlocking | Phase::Unlocked => Some(Ok(())),
            Phase::Lost(lost) => Some(Err(lost.clone())),
        }
    }

    /// Waits until `end`, which depends on the state of this lock, has a result.
    pub(crate) async fn wait(&self, end: impl Fn() -> Option<End>) -> End {
        let mut waiting = pin!(self.wait_for_change(&end));
        // The state is read at every poll, because the wake-ups of a change are not simultaneous:
        // if one future of a task has seen the loss, so do all that are polled after it. It does
        // not depend on Tokio's budget either, which other futures may have used up.
        let waiting = poll_fn(|context| match end() {
            Some(end) => Poll::Ready(end),
            None => waiting.as_mut().poll(context),
        });
        waiting.await
    }

    async fn wait_for_change(&self, end: &impl Fn() -> Option<End>) -> End {
        let mut changes = self.state.subscribe();
        loop {
            // Before `end` looks, so that no change is marked as seen that it has not seen.
            let deadline = {
                let state = changes.borrow_and_update();
                matches!(state.phase, Phase::Held).then_some(state.deadline.at)
            };
            if let Some(end) = end() {
                return end;
            }
            tokio::select! {
                // The sender is in `self`, so it is not gone.
                _ = changes.changed() => {}
                () = sleep_until(deadline.unwrap_or_else(now)), if deadline.is_some() => {}
            }
        }
    }

    /// Waits for the end of the Unlock that is under way.
    pub(crate) async fn unlocked(&self) -> End {
        let end = || match &self.state.borrow().phase {
            Phase::Held | Phase::Unlocking => None,
            Phase::Unlocked => Some(Ok(())),
            Phase::Lost(lost) => Some(Err(lost.clone())),
        };
        self.wait(end).await
    }

    /// Moves the safe deadline; a lock that has ended stays so.
    pub(crate) fn confirm(&self, safe_deadline: Instant) {
        let deadline = self.limits.deadline(safe_deadline);
        self.state.send_if_modified(|state| {
            let valid = state.is_valid();
            if valid {
                state.deadline = deadline;
            }
            valid
        });
    }

    /// Records the loss, unless the lock has ended.
    pub(crate) fn lose(&self, cause: Cause) {
        self.enter(|state| matches!(state.phase, Phase::Held), Phase::Lost(self.loss(cause)));
    }

    /// Counts one more handle, unless it has ended.
    pub(crate) fn join(&self) -> bool {
        let mut joined = false;
        self.state.send_if_modified(|state| {
            joined = state.is_valid();
            state.handles += usize::from(joined);
            false
        });
        joined
    }

    /// Ends the handle to which `left` belongs, and sets `left` before any waiter is woken. Returns
    /// `None` if the handle had ended before. After [`Left::Held`] an Unlock is under way.
    pub(crate) fn leave(&self, left: &OnceLock<Left>) -> Option<Left> {
        self.notice_deadline();
        let mut first = None;
        self.state.send_if_modified(|state| {
            if left.get().is_some() {
                return false;
            }
            state.handles -= 1;
            let duty = match state.phase {
                Phase::Lost(_) if state.handles > 0 => Left::LostToOthers,
                Phase::Lost(_) => Left::Lost,
                _ if state.handles > 0 => Left::ToOthers,
                _ => {
                    state.phase = Phase::Unlocking;
                    Left::Held
                }
            };
            first = Some(*left.get_or_init(|| duty));
            true
        });
        first
    }

    /// Ends the Unlock that is under way.
    pub(crate) fn end_unlock(&self, lost: Option<LockLost>) {
        let phase = lost.map_or(Phase::Unlocked, Phase::Lost);
        self.enter(|state| matches!(state.phase, Phase::Unlocking), phase);
    }

    pub(crate) fn loss(&self, cause: Cause) -> LockLost {
        LockLost { resource: self.grant.resource.clone(), cause }
    }

    fn notice_deadline(&self) {
        let missed = |state: &State| matches!(state.phase, Phase::Held) && !state.is_valid();
        let by_max_hold = {
            let state = self.state.borrow();
            if !missed(&state) {
                return;
            }
            state.deadline.by_max_hold
        };
        let cause = if by_max_hold {
            Cause::MaxHold
        } else {
            (self.on_silence)();
            Cause::Unconfirmed
        };
        self.enter(missed, Phase::Lost(self.loss(cause)));
    }

    /// Changes to `phase` if `condition` still holds.
    fn enter(&self, condition: impl Fn(&State) -> bool, phase: Phase) {
        self.state.send_if_modified(|state| {
            let enters = condition(state);
            if enters {
                state.phase = phase;
            }
            enters
        });
    }
}

#[cfg(test)]
mod tests;

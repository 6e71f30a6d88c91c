//! One call of a client, which may be dropped before its answer, and its record in the
//! history.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use leasehold_lock::{LockError, inspect::GrantView};
use tokio::time::{Instant, sleep};

use super::{
    super::{
        history::{Answer, Call, OpId, What},
        world::Process,
    },
    Client,
};

/// How a call ended for its caller.
pub(super) enum Outcome<T> {
    Answered(T),
    /// The caller gave up, or its process died.
    Left,
}

impl Client {
    /// Makes a call whose caller may go away at any poll, at any time, or with
    /// its process.
    pub(super) async fn called<T>(
        &mut self,
        op: OpId,
        process: &Process,
        call: Call,
        patience_ms: Option<u64>,
        future: impl Future<Output = T>,
    ) -> Outcome<T> {
        self.server.history.note(What::Called { op, process: process.number, call });
        let polls_max = if self.rng.u8(..20) == 0 { self.rng.u32(1..6) } else { u32::MAX };
        let patience = match patience_ms {
            Some(ms) => self.between(0, ms),
            None if self.rng.u8(..20) == 0 => self.between(0, 300),
            None => Duration::from_secs(600),
        };
        let future = UntilPoll { future: Box::pin(future), polls_left: polls_max };
        let answered = tokio::select! {
            biased;
            () = process.killed.cancelled() => None,
            answered = future => answered,
            () = sleep(patience) => None,
        };
        match answered {
            Some(answer) => Outcome::Answered(answer),
            None => {
                self.server.history.note(What::Left { op });
                Outcome::Left
            }
        }
    }

    pub(super) fn answered(&self, op: OpId, answer: Answer) {
        // The IDs of grants are random, and a schedule repeats to the byte.
        let answer = match answer {
            Answer::Failed(LockError::Locked { by: Some(grant) }) => {
                let by = Some(GrantView { id: None, ..grant });
                Answer::Failed(LockError::Locked { by })
            }
            answer => answer,
        };
        self.server.history.note(What::Answered { op, answer });
    }

    pub(super) fn believe(&self, token: u64, resource: u8, until: Instant) {
        let until_us = self.server.history.us(until);
        self.server.history.note(What::Believed { token, resource, until_us });
    }
}

/// Returns `None` where a caller would drop the future: after a number of polls
/// in vain.
struct UntilPoll<F> {
    future: Pin<Box<F>>,
    polls_left: u32,
}

impl<F: Future> Future for UntilPoll<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Poll::Ready(output) = self.future.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        self.polls_left -= 1;
        if self.polls_left == 0 { Poll::Ready(None) } else { Poll::Pending }
    }
}

//! How long before its caller's deadline a call is answered: what all edges and backends keep.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::{AcquireRequest, LockError};

/// How long before its deadline a wait is answered, besides a hundredth of its time. The
/// hundredth is for clients on gRPC's C core, which round `grpc-timeout` up.
const ANSWER_MARGIN: Duration = Duration::from_millis(50);
/// The longest such margin. It is never more than a tenth of the time either.
const ANSWER_MARGIN_MAX: Duration = Duration::from_millis(250);
/// The shortest margin for a caller that must have read its answer.
const READ_MARGIN_MIN: Duration = Duration::from_millis(10);
/// The part of a margin that is left once a wait has left the queue.
const KEPT_PART: u32 = 4;
/// A margin that is shorter goes wholly into confirming that nothing is held.
const CONFIRM_MIN: Duration = Duration::from_millis(4);

/// When a wait is given up, and when that must be answered, settled or not.
pub(super) fn limits(request: &AcquireRequest) -> (Option<Instant>, Option<Instant>) {
    let Some(deadline) = request.deadline else { return (request.wait_end, None) };
    let margin = match request.answer_by {
        Some(answer_by) => deadline.saturating_duration_since(answer_by),
        None => answer_margin(deadline.saturating_duration_since(request.arrived)),
    };
    // Confirming takes a round trip, for which a tiny margin leaves no time.
    let kept = if margin < CONFIRM_MIN { Duration::ZERO } else { margin / KEPT_PART };
    let given_up = request.wait_end.map_or(deadline - margin, |end| end.min(deadline - margin));
    (Some(given_up), Some(deadline - kept))
}

/// Completes when a wait must be given up for its answer to arrive in time.
pub(super) async fn wait_deadline(given_up: Option<Instant>) -> LockError {
    match given_up {
        None => std::future::pending().await,
        Some(given_up) => {
            sleep_until(given_up).await;
            LockError::WaitDeadline
        }
    }
}

/// When a call that arrived at `arrived` is answered for its answer to arrive by `deadline`.
#[must_use]
pub fn answered_by(arrived: Instant, deadline: Instant) -> Instant {
    deadline - answer_margin(deadline.saturating_duration_since(arrived))
}

/// How long before its deadline a call that had `whole` is answered.
fn answer_margin(whole: Duration) -> Duration {
    (whole / 10).min(ANSWER_MARGIN + whole / 100).min(ANSWER_MARGIN_MAX)
}

/// When a call must have its grant for its caller to read the answer, and when it must have
/// ended without one: a call that `waits` is given some of the margin to leave the queue. `None`
/// if it has less time than the smallest margin.
///
/// This is for grants that are renewed until their callers end them. The margin is longer than
/// that of [`answered_by`], because nobody would end a grant whose answer was not read.
#[must_use]
pub fn read_by(arrived: Instant, deadline: Instant, waits: bool) -> Option<(Instant, Instant)> {
    let whole = deadline.saturating_duration_since(arrived);
    let margin = (whole / 4).clamp(READ_MARGIN_MIN, ANSWER_MARGIN_MAX);
    let read_by = (margin < whole).then(|| deadline - margin)?;
    Some((read_by, if waits { deadline - margin / KEPT_PART } else { read_by }))
}

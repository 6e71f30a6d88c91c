//! The unlocks of one held lock that the app asked for.

use futures_util::{
    FutureExt as _,
    future::{BoxFuture, Shared, ready},
};
use leasehold_lock::LockError;
use tokio::task::JoinHandle;

use super::{Cause, HoldEnd, renewal::cancel};

/// Ends when nothing is left of a renewal that was cancelled.
pub(super) type RenewalEnd = Shared<BoxFuture<'static, ()>>;

/// What is known of the unlocks of a held lock. An unlock that succeeds removes the
/// record, so success is no state.
///
/// ```text
///   ┌──────┐ ── an unlock begins ──────▶ ┌──────────┐ ◀── an unlock begins ── ┌─────────┐
///   │ None │                             │ UnderWay │                         │ Unknown │
///   └──────┘     ┌────────┐ ◀── all ──── └──────────┘ ── the last one ended ▶ └─────────┘
///      ▲         │ Failed │    failed         ▲          and the outcome of at
///      └──────── └────────┘    without effect │          least one is unknown
///      the app renewed  │                     │
///      the lock         └ an unlock begins ───┘
/// ```
///
/// When the store answers that it does not have the grant: in `None` and `Failed` somebody
/// else ended it, and the lock is lost; in `Unknown` an earlier unlock ended it; in
/// `UnderWay` an unlock may have, and the answer to that unlock decides.
#[derive(Debug)]
pub(super) enum Unlock {
    /// There was none since the lock was acquired or renewed by the app.
    None,
    /// Unlocks are under way.
    UnderWay {
        /// How many.
        calls: u32,
        /// Whether an earlier one may have ended the grant.
        unknown: bool,
        /// What each of them waits for before it is sent.
        renewal_end: RenewalEnd,
    },
    /// None is under way. There were some, and none of them can have ended the grant.
    Failed,
    /// None is under way, but an earlier one may have ended the grant.
    Unknown,
}

impl Unlock {
    /// An unlock begins, and cancels this renewal. The unlock must not be sent before
    /// what is returned has ended, even if it was an earlier unlock that cancelled the
    /// renewal (trap 11).
    pub(super) fn begin(&mut self, renewal: Option<JoinHandle<()>>) -> RenewalEnd {
        let (calls, unknown, earlier) = match self {
            Self::None | Self::Failed => (0, false, None),
            Self::Unknown => (0, true, None),
            Self::UnderWay { calls, unknown, renewal_end } => {
                (*calls, *unknown, Some(renewal_end.clone()))
            }
        };
        let renewal_end = match (renewal, earlier) {
            (Some(renewal), _) => cancel(Some(renewal)).boxed().shared(),
            (None, Some(earlier)) => earlier,
            (None, None) => ready(()).boxed().shared(),
        };
        *self = Self::UnderWay { calls: calls + 1, unknown, renewal_end: renewal_end.clone() };
        renewal_end
    }

    /// An unlock was answered. Returns how the lock ended, or `None` if it is still
    /// held.
    pub(super) fn answered(&mut self, answer: &Result<(), LockError>) -> Option<HoldEnd> {
        let Self::UnderWay { calls, unknown, .. } = self else { return None };
        let ended = match answer {
            Ok(()) => Some(HoldEnd::Unlocked),
            Err(LockError::NotFound { .. }) if *unknown => Some(HoldEnd::Unlocked),
            // Another unlock may have ended it, and its answer is on its way.
            Err(LockError::NotFound { .. }) if *calls > 1 => None,
            Err(LockError::NotFound { .. }) => Some(HoldEnd::Lost(Cause::Forced)),
            Err(error) => {
                *unknown |= matches!(error, LockError::OutcomeUnknown(_));
                None
            }
        };
        *calls -= 1;
        if *calls == 0 {
            *self = if *unknown { Self::Unknown } else { Self::Failed };
        }
        ended
    }

    /// The grant was renewed, which only the app does after an unlock. It holds the lock
    /// again, unless an unlock may still end it.
    pub(super) fn renewed(&mut self) {
        if matches!(self, Self::Failed) {
            *self = Self::None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOT_FOUND: Result<(), LockError> = Err(LockError::NotFound { held: false });

    fn unknown() -> Result<(), LockError> {
        Err(LockError::OutcomeUnknown("no answer".into()))
    }

    #[tokio::test]
    async fn a_grant_that_no_unlock_can_have_ended_was_forced() {
        let mut unlock = Unlock::None;
        drop(unlock.begin(None));
        assert_eq!(unlock.answered(&NOT_FOUND), Some(HoldEnd::Lost(Cause::Forced)));
        drop(unlock.begin(None));
        let refused = Err(LockError::StoreUnavailable("cut off".into()));
        assert_eq!(unlock.answered(&refused), None);
        assert!(matches!(unlock, Unlock::Failed));
        drop(unlock.begin(None));
        assert_eq!(unlock.answered(&NOT_FOUND), Some(HoldEnd::Lost(Cause::Forced)));
    }

    #[tokio::test]
    async fn an_unlock_of_unknown_outcome_explains_a_missing_grant() {
        let mut unlock = Unlock::None;
        drop(unlock.begin(None));
        assert_eq!(unlock.answered(&unknown()), None);
        assert!(matches!(unlock, Unlock::Unknown));
        drop(unlock.begin(None));
        assert_eq!(unlock.answered(&NOT_FOUND), Some(HoldEnd::Unlocked));
    }

    #[tokio::test]
    async fn the_answer_to_another_unlock_is_awaited() {
        let mut unlock = Unlock::None;
        drop(unlock.begin(None));
        drop(unlock.begin(None));
        assert_eq!(unlock.answered(&NOT_FOUND), None);
        assert_eq!(unlock.answered(&unknown()), None);
        assert!(matches!(unlock, Unlock::Unknown));
    }

    #[tokio::test]
    async fn each_unlock_waits_for_the_renewal_that_the_first_cancelled() {
        let mut unlock = Unlock::None;
        let renewal = tokio::spawn(std::future::pending());
        let first = unlock.begin(Some(renewal));
        let second = unlock.begin(None);
        assert!(second.clone().now_or_never().is_none(), "nothing has ended yet");
        first.await;
        assert!(second.now_or_never().is_some());
    }
}

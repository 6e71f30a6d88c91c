//! The renewal of one held lock.

use leasehold_lock::{Instant, LockError};
use tokio::task::{self, JoinHandle};

/// The state of the renewal of one lock.
///
/// ```text
///              due, and the app is healthy       a place in the lane is free
///   ┌─────────┐ ───────────────────────▶ ┌────────┐ ────────────────▶ ┌──────────┐
///   │ Waiting │                          │ Queued │                   │ UnderWay │
///   └─────────┘ ◀──────────────────────────────────────────────────── └──────────┘
///     │     ▲       renewed (due at a third of the TTL), or failed       ▲
/// due │     │ the   (due after a delay)  │                               │
///     ▼     │ app is                     │ the app is unhealthy          │
///   ┌────────┐ healthy again             │                               │
///   │ Parked │ ◀─────────────────────────┘            the app renews, from any state
///   └────────┘
///
///   any state ── an unlock begins ─────────────────────────────────────▶ Off
///   UnderWay ─── it ended, and the engine is not to renew this lock ───▶ Off
/// ```
///
/// A lock that its app renews by itself begins in `Off`, any other in `Waiting`. In
/// each state the lock is lost at its safe deadline.
#[derive(Debug)]
pub(super) enum Renewal {
    /// Nothing is due before the lock is released or lost.
    Off,
    /// The next renewal is due then.
    Waiting(Instant),
    /// Due. It is in the lane of this server of its store, under this safe deadline.
    Queued { server: u64, at: Instant },
    /// This task renews the lock. There is at most one such task per lock (trap 11).
    UnderWay(JoinHandle<()>),
    /// Due, but the app is unhealthy.
    Parked,
}

impl Renewal {
    /// Whether the calling task is the renewal under way, and not an earlier one that
    /// was cancelled or replaced.
    pub(super) fn is_this_task(&self) -> bool {
        matches!(self, Self::UnderWay(renewal) if Some(renewal.id()) == task::try_id())
    }

    /// Takes the task that renews, leaving `Off`. Any other state stays.
    pub(super) fn take_task(&mut self) -> Option<JoinHandle<()>> {
        match std::mem::replace(self, Self::Off) {
            Self::UnderWay(task) => Some(task),
            other => {
                *self = other;
                None
            }
        }
    }

    /// Takes the place in the lane of this server, leaving `Off`. Any other state stays.
    pub(super) fn take_queued(&mut self) -> Option<(u64, Instant)> {
        let Self::Queued { server, at } = *self else { return None };
        *self = Self::Off;
        Some((server, at))
    }
}

/// Cancels a renewal and waits until nothing of it is left.
pub(super) async fn cancel(renewal: Option<JoinHandle<()>>) {
    if let Some(renewal) = renewal {
        renewal.abort();
        let _ = renewal.await;
    }
}

/// Whether a request that failed with this error certainly left the grant as it was.
pub(super) fn changed_nothing(error: &LockError) -> bool {
    matches!(
        error,
        LockError::StoreUnavailable(_)
            | LockError::InvalidRequest(_)
            | LockError::Unsupported(_)
            | LockError::Overloaded
            | LockError::ShuttingDown
    )
}

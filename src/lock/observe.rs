//! What stores report of themselves as they work: the figures behind metrics.
//!
//! One trait, called by [`Store`](super::Store), its settler, the backends and the renewal
//! engine, and by the sidecar for stores that do not open and for notices to its app. So the
//! stores of other programs count, too.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{LockError, Mode, Reason};

/// Observes one store. Nothing is observed by default.
///
/// Calls report on their way: a method must be short, and never wait for input or output.
pub trait Observe: Send + Sync {
    /// A call that acquires has ended.
    fn acquired(&self, call: AcquireOp, mode: Mode, outcome: Outcome) {
        let _ = (call, mode, outcome);
    }

    /// A call waits for a lock since `began`. [`Observe::wait_ended`] follows.
    fn wait_began(&self, began: Instant) {
        let _ = began;
    }

    /// A wait that `began` then has ended, with or without a grant.
    fn wait_ended(&self, began: Instant, granted: bool) {
        let _ = (began, granted);
    }

    /// A call of the backend has ended after `took`. It is a `failure` if the backend was not
    /// reached or the outcome is unknown. A refusal is an answer.
    fn answered(&self, verb: Verb, took: Duration, failure: bool) {
        let _ = (verb, took, failure);
    }

    /// The backend has a new connection in place of one that was lost.
    fn reconnected(&self) {}

    /// A grant is undone, because its caller did not receive it.
    fn undone(&self) {}

    /// The number of releases that are carried out in the background has changed.
    fn unsettled(&self, change: i64) {
        let _ = change;
    }

    /// A call that ends the grants of others has ended.
    fn forced(&self, outcome: Outcome) {
        let _ = outcome;
    }

    /// The number of watches has changed.
    fn watching(&self, change: i64) {
        let _ = change;
    }

    /// The number of locks that this process holds for its app has changed.
    fn held(&self, change: i64) {
        let _ = change;
    }

    /// A lock is no longer held, after it was held for `held`.
    fn hold_ended(&self, end: End, held: Duration) {
        let _ = (end, held);
    }

    /// A renewal of a held lock was answered. `remaining` is the part of the TTL that was left
    /// when the engine's own renewal succeeded.
    fn renewed(&self, outcome: Outcome, remaining: Option<f64>) {
        let _ = (outcome, remaining);
    }

    /// This store could not be opened (1), or is open by now or no longer named in the YAML (-1).
    fn failed_to_open(&self, change: i64) {
        let _ = change;
    }

    /// The app was or was not notified of a lost lock.
    fn notified(&self, notice: Notice) {
        let _ = notice;
    }
}

/// Finds the observer of a store by its name and its type, `lock.redis` for example. The same
/// name has the same observer.
pub type Observers = Arc<dyn Fn(&str, &str) -> Arc<dyn Observe> + Send + Sync>;

/// Observes nothing.
pub struct Unobserved;

impl Observe for Unobserved {}

impl Unobserved {
    /// An observer that does nothing, of one store.
    #[must_use]
    pub fn store() -> Arc<dyn Observe> {
        Arc::new(Self)
    }

    /// Observers that do nothing, of all stores.
    #[must_use]
    pub fn stores() -> Observers {
        Arc::new(|_, _| Self::store())
    }
}

/// Which call acquires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcquireOp {
    /// One that does not wait.
    Try,
    /// One that waits, and is answered once.
    Wait,
    /// A stream that holds its lock until it ends. It may be one that does not wait.
    Stream,
}

impl AcquireOp {
    /// All of them, in their order.
    pub const ALL: [Self; 3] = [Self::Try, Self::Wait, Self::Stream];

    /// Its name in labels.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Try => "try",
            Self::Wait => "wait",
            Self::Stream => "stream",
        }
    }
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It succeeded.
    Ok,
    /// It failed for this reason.
    Failed(Reason),
    /// It was dropped before it had an answer: its caller left, or its time was up.
    Cancelled,
}

impl Outcome {
    /// The outcome of a result.
    pub fn of<T>(result: &Result<T, LockError>) -> Self {
        match result {
            Ok(_) => Self::Ok,
            Err(error) => Self::Failed(error.reason()),
        }
    }
}

/// A call of a backend. A wait is none: how long it takes depends on who holds the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// `try_lock`.
    Try,
    /// `renew`.
    Renew,
    /// `unlock`.
    Unlock,
    /// A read of who holds what, or who waits.
    Read,
    /// `ping`.
    Ping,
}

impl Verb {
    /// All of them, in their order.
    pub const ALL: [Self; 5] = [Self::Try, Self::Renew, Self::Unlock, Self::Read, Self::Ping];

    /// Its name in labels.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Try => "try",
            Self::Renew => "renew",
            Self::Unlock => "unlock",
            Self::Read => "read",
            Self::Ping => "ping",
        }
    }
}

/// How a held lock ended. All but the first two are losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Its holder unlocked it.
    Unlocked,
    /// It was released in its holder's stead: its stream has ended, or its app reported that an
    /// unlock had failed.
    Released,
    /// It was not renewed: its app should have done so, or its unlock failed.
    Expired,
    /// Another caller ended it.
    Forced,
    /// The backend could not be reached to renew it.
    Unreachable,
    /// It was held for the longest allowed time.
    MaxHold,
    /// The app was unhealthy, so it was not renewed.
    Unhealthy,
}

impl End {
    /// All of them, in their order.
    pub const ALL: [Self; 7] = [
        Self::Unlocked,
        Self::Released,
        Self::Expired,
        Self::Forced,
        Self::Unreachable,
        Self::MaxHold,
        Self::Unhealthy,
    ];

    /// Its name in labels.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Unlocked => "unlocked",
            Self::Released => "released",
            Self::Expired => "expired",
            Self::Forced => "forced",
            Self::Unreachable => "unreachable",
            Self::MaxHold => "max_hold",
            Self::Unhealthy => "unhealthy",
        }
    }

    /// Whether the lock is lost for its holder.
    #[must_use]
    pub fn is_loss(self) -> bool {
        !matches!(self, Self::Unlocked | Self::Released)
    }
}

/// What became of the notice of a lost lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The app took it.
    Delivered,
    /// The app was not reached, refused it, or has no such call.
    Failed,
    /// Too many notices waited.
    Dropped,
}

impl Notice {
    /// All of them, in their order.
    pub const ALL: [Self; 3] = [Self::Delivered, Self::Failed, Self::Dropped];

    /// Its name in labels.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Failed => "failed",
            Self::Dropped => "dropped",
        }
    }
}

/// Reports a call that acquires, once: as cancelled if it is dropped before it has ended.
pub(super) struct Acquiring<'a> {
    observer: &'a dyn Observe,
    call: AcquireOp,
    mode: Mode,
    /// Since when it waits, if it does.
    waits_since: Option<Instant>,
    outcome: Outcome,
}

impl<'a> Acquiring<'a> {
    pub(super) fn begin(
        observer: &'a dyn Observe,
        call: AcquireOp,
        mode: Mode,
        waits_since: Option<Instant>,
    ) -> Self {
        if let Some(began) = waits_since {
            observer.wait_began(began);
        }
        Self { observer, call, mode, waits_since, outcome: Outcome::Cancelled }
    }

    /// The call has this result.
    pub(super) fn end<T>(mut self, result: &Result<T, LockError>) {
        self.outcome = Outcome::of(result);
    }
}

impl Drop for Acquiring<'_> {
    fn drop(&mut self) {
        if let Some(began) = self.waits_since {
            self.observer.wait_ended(began, self.outcome == Outcome::Ok);
        }
        self.observer.acquired(self.call, self.mode, self.outcome);
    }
}

/// Counts one of something for as long as it lives.
pub struct Counted {
    observer: Arc<dyn Observe>,
    count: fn(&dyn Observe, i64),
}

impl Counted {
    /// Counts one more, by this method of the observer.
    #[must_use]
    pub fn new(observer: Arc<dyn Observe>, count: fn(&dyn Observe, i64)) -> Self {
        count(&*observer, 1);
        Self { observer, count }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        (self.count)(&*self.observer, -1);
    }
}

impl std::fmt::Debug for Counted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Counted")
    }
}

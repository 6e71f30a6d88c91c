//! The errors of a store.

use std::sync::Arc;

use super::{BackendError, Violation, inspect::GrantView};

/// Why a call failed. `net::status` maps these to codes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LockError {
    /// A try found the resource held, or others waiting for it.
    #[error("the resource is locked{}", holder_suffix(.by.as_ref()))]
    Locked {
        /// The grant in its way, or one of them, if known.
        by: Option<GrantView>,
    },
    /// The lock ID holds nothing there, or a force found the resource free.
    #[error("{}", not_found(*.held))]
    NotFound {
        /// Whether somebody else holds the resource.
        held: bool,
    },
    /// A field of the request is missing or bad; nothing has changed.
    #[error("{0}")]
    InvalidRequest(Violation),
    /// Properties of an instance are missing or bad. All of them are named, and the
    /// instance stays as it was.
    #[error("{}", join(.0))]
    InvalidMetadata(Vec<Violation>),
    /// The instance was not initialised.
    #[error(
        "the instance {instance:?} is not initialised; send Init, or name it in a component YAML given with --resources-path"
    )]
    NotInitialized {
        /// The instance's name, empty for the unnamed one.
        instance: String,
    },
    /// This store cannot do what was asked.
    #[error("{0}")]
    Unsupported(Arc<str>),
    /// The deadline passed while waiting; nothing is held.
    #[error("the deadline passed while waiting for the lock; nothing is held")]
    WaitDeadline,
    /// A queue is full.
    #[error("too many waiters: {0}")]
    TooManyWaiters(&'static str),
    /// The resource has as many shared grants as it may have.
    #[error("the resource has as many shared holders as it may have (maxHolders)")]
    TooManyHolders,
    /// The process has as many calls in flight as it takes.
    #[error("too many calls in flight; try again")]
    Overloaded,
    /// The backend was not reached: it did not happen.
    #[error("the lock store's backend is unavailable: {0}")]
    StoreUnavailable(Arc<str>),
    /// It may have been carried out. leasehold retries until the outcome is settled.
    #[error("the outcome is unknown and is being settled: {0}")]
    OutcomeUnknown(Arc<str>),
    /// The process is draining.
    #[error("the lock store is shutting down")]
    ShuttingDown,
    /// A defect of leasehold, which was logged where it happened.
    #[error("internal error")]
    Internal,
}

impl LockError {
    /// Its text as the reason of another error that says that a store is unavailable.
    #[must_use]
    pub fn as_cause(&self) -> Arc<str> {
        match self {
            Self::StoreUnavailable(why) => Arc::clone(why),
            other => other.to_string().into(),
        }
    }
}

/// The kinds of [`LockError`], as protocols, metrics and logs name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// [`LockError::Locked`].
    ResourceLocked,
    /// [`LockError::NotFound`].
    LockNotFound,
    /// [`LockError::InvalidRequest`].
    InvalidRequest,
    /// [`LockError::InvalidMetadata`].
    InvalidMetadata,
    /// [`LockError::NotInitialized`].
    NotInitialized,
    /// [`LockError::Unsupported`].
    Unsupported,
    /// [`LockError::WaitDeadline`].
    WaitDeadline,
    /// [`LockError::TooManyWaiters`].
    TooManyWaiters,
    /// [`LockError::TooManyHolders`].
    TooManyHolders,
    /// [`LockError::Overloaded`].
    Overloaded,
    /// [`LockError::StoreUnavailable`].
    StoreUnavailable,
    /// [`LockError::OutcomeUnknown`].
    OutcomeUnknown,
    /// [`LockError::ShuttingDown`].
    ShuttingDown,
    /// [`LockError::Internal`].
    Internal,
}

impl Reason {
    /// All of them, in their order.
    pub const ALL: [Self; 14] = [
        Self::ResourceLocked,
        Self::LockNotFound,
        Self::InvalidRequest,
        Self::InvalidMetadata,
        Self::NotInitialized,
        Self::Unsupported,
        Self::WaitDeadline,
        Self::TooManyWaiters,
        Self::TooManyHolders,
        Self::Overloaded,
        Self::StoreUnavailable,
        Self::OutcomeUnknown,
        Self::ShuttingDown,
        Self::Internal,
    ];

    /// Its name in the API.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ResourceLocked => "RESOURCE_LOCKED",
            Self::LockNotFound => "LOCK_NOT_FOUND",
            Self::InvalidRequest => "INVALID_REQUEST",
            Self::InvalidMetadata => "INVALID_METADATA",
            Self::NotInitialized => "NOT_INITIALIZED",
            Self::Unsupported => "UNSUPPORTED",
            Self::WaitDeadline => "WAIT_DEADLINE",
            Self::TooManyWaiters => "TOO_MANY_WAITERS",
            Self::TooManyHolders => "TOO_MANY_HOLDERS",
            Self::Overloaded => "OVERLOADED",
            Self::StoreUnavailable => "STORE_UNAVAILABLE",
            Self::OutcomeUnknown => "OUTCOME_UNKNOWN",
            Self::ShuttingDown => "SHUTTING_DOWN",
            Self::Internal => "INTERNAL",
        }
    }
}

impl From<Violation> for LockError {
    fn from(violation: Violation) -> Self {
        Self::InvalidRequest(violation)
    }
}

impl From<BackendError> for LockError {
    fn from(error: BackendError) -> Self {
        match error {
            BackendError::Locked { by } => Self::Locked { by },
            BackendError::NotHeld { held } => Self::NotFound { held },
            BackendError::ReplayMismatch { field } => Self::InvalidRequest(Violation::new(
                field,
                "differs from that of the live grant with this request_id; repeat the request \
                 unchanged, or use another request_id",
            )),
            BackendError::TooManyWaiters(which) => Self::TooManyWaiters(which),
            BackendError::TooManyHolders => Self::TooManyHolders,
            BackendError::Invalid(violation) => Self::InvalidRequest(violation),
            BackendError::Unsupported(what) => Self::Unsupported(what),
            BackendError::Unavailable(why) => Self::StoreUnavailable(why),
            BackendError::Unknown(why) => Self::OutcomeUnknown(why),
        }
    }
}

impl LockError {
    /// Its kind.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::Locked { .. } => Reason::ResourceLocked,
            Self::NotFound { .. } => Reason::LockNotFound,
            Self::InvalidRequest(_) => Reason::InvalidRequest,
            Self::InvalidMetadata(_) => Reason::InvalidMetadata,
            Self::NotInitialized { .. } => Reason::NotInitialized,
            Self::Unsupported(_) => Reason::Unsupported,
            Self::WaitDeadline => Reason::WaitDeadline,
            Self::TooManyWaiters(_) => Reason::TooManyWaiters,
            Self::TooManyHolders => Reason::TooManyHolders,
            Self::Overloaded => Reason::Overloaded,
            Self::StoreUnavailable(_) => Reason::StoreUnavailable,
            Self::OutcomeUnknown(_) => Reason::OutcomeUnknown,
            Self::ShuttingDown => Reason::ShuttingDown,
            Self::Internal => Reason::Internal,
        }
    }

    /// The error of a read. It changes nothing, so there is no unknown outcome.
    pub(super) fn of_read(error: BackendError) -> Self {
        match error {
            BackendError::Unknown(why) => Self::StoreUnavailable(why),
            error => error.into(),
        }
    }
}

fn not_found(held: bool) -> &'static str {
    if held {
        "no grant with this ID is held there; somebody else holds the resource"
    } else {
        "nothing is held there: it was never locked, was unlocked or forced, or has expired"
    }
}

fn holder_suffix(by: Option<&GrantView>) -> String {
    let holder = by.and_then(|grant| grant.holder.as_ref());
    // The caller chose it, and must not be able to forge log lines.
    holder.map(|holder| format!(" by {}", holder.as_str().escape_debug())).unwrap_or_default()
}

fn join(violations: &[Violation]) -> String {
    violations.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Holder, Mode};

    #[test]
    fn a_holder_cannot_forge_a_line_of_a_log() {
        let holder = Holder::new("app\n\u{1b}[31mINFO all is well").unwrap();
        let by = Some(GrantView { holder, ..GrantView::unknown(Mode::Exclusive) });
        let message = LockError::Locked { by }.to_string();
        assert!(!message.contains(char::is_control), "{message:?}");
    }

    #[test]
    fn the_error_of_a_force_on_a_free_resource_has_no_lock_id() {
        let message = LockError::NotFound { held: false }.to_string();
        assert!(
            !message.contains("lock ID") && message.contains("nothing is held"),
            "{message}"
        );
    }
}

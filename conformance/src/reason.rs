//! The reasons of refusals.

use tonic::Code;

/// The reasons in the protocol's error table that a case can cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    ResourceLocked,
    LockNotFound,
    InvalidRequest,
    InvalidMetadata,
    NotInitialized,
    Unsupported,
    WaitDeadline,
    OutcomeUnknown,
    TooManyHolders,
}

impl Reason {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::ResourceLocked => "RESOURCE_LOCKED",
            Self::LockNotFound => "LOCK_NOT_FOUND",
            Self::InvalidRequest => "INVALID_REQUEST",
            Self::InvalidMetadata => "INVALID_METADATA",
            Self::NotInitialized => "NOT_INITIALIZED",
            Self::Unsupported => "UNSUPPORTED",
            Self::WaitDeadline => "WAIT_DEADLINE",
            Self::OutcomeUnknown => "OUTCOME_UNKNOWN",
            Self::TooManyHolders => "TOO_MANY_HOLDERS",
        }
    }

    pub(crate) fn code(self) -> Code {
        match self {
            Self::ResourceLocked => Code::Aborted,
            Self::LockNotFound => Code::NotFound,
            Self::InvalidRequest | Self::InvalidMetadata => Code::InvalidArgument,
            Self::NotInitialized => Code::FailedPrecondition,
            Self::Unsupported => Code::Unimplemented,
            Self::WaitDeadline => Code::DeadlineExceeded,
            Self::OutcomeUnknown => Code::Unknown,
            Self::TooManyHolders => Code::ResourceExhausted,
        }
    }
}

//! Why a call on a held lock failed.

use super::Cause;
use crate::lock::LockError;

/// Why a call on a held lock failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeldError {
    /// The lock was held through this process, and was lost.
    #[error("the lock is lost: {0}")]
    Lost(Cause),
    /// The lock is not held through this process, which can change nothing about it.
    #[error(
        "the lock is not held through this sidecar, so its max_hold cannot be changed, and it \
         cannot be detached"
    )]
    NotHeldHere,
    /// The store refused the call, or failed.
    #[error(transparent)]
    Lock(#[from] LockError),
}

//! Why a call on a held lock failed.

use super::Cause;
use crate::lock::LockError;

/// Why a call on a held lock failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeldError {
    /// The lock was held through this process, and was lost.
    #[error("the lock is lost: {0}")]
    Lost(Cause),
    /// The store refused the call, or failed.
    #[error(transparent)]
    Lock(#[from] LockError),
}

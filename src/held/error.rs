//! Why a call on a held lock failed.

use leasehold_lock::LockError;

use super::Cause;

/// Why a call on a held lock failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeldError {
    /// The lock was held through this process, and was lost.
    #[error("the lock is lost: {0}")]
    Lost(Cause),
    /// The lock is not held through this process, so it cannot be changed here.
    #[error(
        "the lock is not held through this sidecar, which can only start its TTL again; change \
         max_hold and detach through the sidecar that took it"
    )]
    NotHeldHere,
    /// The store refused the call, or failed.
    #[error(transparent)]
    Lock(#[from] LockError),
}

//! The errors that the sidecar adds to the domain's, and the form of daprd's.

use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use leasehold_held::{Cause, HeldError};
use leasehold_lock::{LockError, Violation};
use serde_json::json;

/// An error in the form of daprd's HTTP API.
pub(crate) fn as_daprd(status: StatusCode, error_code: &str, message: &str) -> Response {
    (status, Json(json!({ "errorCode": error_code, "message": message }))).into_response()
}

/// Why an alpha2 call failed. `alpha2::status` maps these to codes and reasons.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    /// No component YAML names a lock store.
    #[error(
        "no lock store is configured; give --resources-path a folder with a component of a type lock.NAME"
    )]
    NoStores,
    /// No store has this name.
    #[error("lock store {name} not found; there are: {}", there.join(", "))]
    StoreNotFound {
        /// The requested name.
        name: String,
        /// The existing stores, at least one.
        there: Vec<String>,
    },
    /// This process holds as many locks as it may.
    #[error("too many locks are held through this sidecar; unlock some")]
    TooManyHeld,
    /// The client of a stream did not read the event `Acquired`.
    #[error("the lock was released: the client did not read its stream")]
    NotReading,
    /// The lock was held here, and was lost.
    #[error("the lock is lost: {0}")]
    Lost(Cause),
    /// The lock is not held through this sidecar, so it cannot be changed here.
    #[error("{}", HeldError::NotHeldHere)]
    NotHeldHere,
    /// It may be from a page in a browser.
    #[error("{0}")]
    ForbiddenOrigin(String),
    /// The store refused or failed.
    #[error(transparent)]
    Lock(#[from] LockError),
}

impl From<HeldError> for ApiError {
    fn from(error: HeldError) -> Self {
        match error {
            HeldError::Lost(cause) => Self::Lost(cause),
            HeldError::NotHeldHere => Self::NotHeldHere,
            HeldError::Lock(error) => Self::Lock(error),
        }
    }
}

impl From<Violation> for ApiError {
    fn from(violation: Violation) -> Self {
        Self::Lock(violation.into())
    }
}

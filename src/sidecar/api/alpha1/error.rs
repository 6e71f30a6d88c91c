//! The errors of alpha1, with daprd's messages and codes.

use axum::{
    http::StatusCode,
    response::{IntoResponse, Response},
};
use tonic::{Code, Status};

use crate::api::error::as_daprd;

/// Why an alpha1 call failed. `Display` is exactly daprd's message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Alpha1Error {
    /// There is no lock store at all.
    #[error("lock store is not configured")]
    NoStores,
    /// The request names no resource.
    #[error("ResourceId is empty in lock store {0}")]
    NoResource(String),
    /// The request names no owner.
    #[error("LockOwner is empty in lock store {0}")]
    NoOwner(String),
    /// The expiry is absent, zero or negative.
    #[error("ExpiryInSeconds is not positive in lock store {0}")]
    NoExpiry(String),
    /// There is no store of this name.
    #[error("lock store {0} not found")]
    StoreNotFound(String),
    /// The store failed, or its own limits refused the call.
    #[error("failed to try acquiring lock: {0}")]
    TryLock(String),
    /// The store failed, or its own limits refused the call.
    #[error("failed to release lock: {0}")]
    Unlock(String),
    /// The HTTP body is not valid JSON for the message.
    #[error("failed deserializing HTTP body: {0}")]
    Malformed(String),
    /// The HTTP body did not arrive, or is too large.
    #[error("failed to read request body: {0}")]
    BodyRead(String),
}

impl Alpha1Error {
    fn codes(&self) -> (&'static str, StatusCode, Code) {
        const BAD: StatusCode = StatusCode::BAD_REQUEST;
        const FAILED: StatusCode = StatusCode::INTERNAL_SERVER_ERROR;
        match self {
            Self::NoStores => {
                ("ERR_LOCK_STORE_NOT_CONFIGURED", FAILED, Code::FailedPrecondition)
            }
            Self::NoResource(_) | Self::NoOwner(_) | Self::NoExpiry(_) | Self::Malformed(_) => {
                ("ERR_MALFORMED_REQUEST", BAD, Code::InvalidArgument)
            }
            Self::BodyRead(_) => ("ERR_BODY_READ", BAD, Code::InvalidArgument),
            Self::StoreNotFound(_) => ("ERR_LOCK_STORE_NOT_FOUND", BAD, Code::InvalidArgument),
            Self::TryLock(_) => ("ERR_TRY_LOCK", FAILED, Code::Internal),
            Self::Unlock(_) => ("ERR_UNLOCK", FAILED, Code::Internal),
        }
    }
}

impl From<Alpha1Error> for Status {
    fn from(error: Alpha1Error) -> Self {
        let (_, _, code) = error.codes();
        Self::new(code, error.to_string())
    }
}

impl IntoResponse for Alpha1Error {
    fn into_response(self) -> Response {
        let (error_code, status, _) = self.codes();
        as_daprd(status, error_code, &self.to_string())
    }
}

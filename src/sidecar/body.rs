//! Reading the body of a lock call.

use std::time::Duration;

use axum::body::{Body, Bytes};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use tokio::time::timeout;

/// The largest body of a lock call, which is some names and durations.
pub(super) const BYTES_MAX: usize = 64 * 1024;
/// How long a caller may take to send it.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a body was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BodyError {
    /// It is too large.
    #[error("it is larger than {BYTES_MAX} bytes")]
    TooLarge,
    /// It took too long.
    #[error("it did not arrive within {READ_TIMEOUT:?}")]
    TooSlow,
    /// The caller broke off.
    #[error("it broke off")]
    Broken,
}

/// Reads a body whole.
pub(super) async fn read(body: Body) -> Result<Bytes, BodyError> {
    match timeout(READ_TIMEOUT, Limited::new(body, BYTES_MAX).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(BodyError::TooLarge),
        Ok(Err(_)) => Err(BodyError::Broken),
        Err(_) => Err(BodyError::TooSlow),
    }
}

//! Reads the body of a lock call.

use std::error::Error;

use axum::body::{Body, Bytes};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use leasehold_net::request_budget::WHOLE_WITHIN;
use leasehold_util::error_chain::causes;
use tonic::{Code, Status};

/// The largest body of a lock call, which is some names and durations.
pub(crate) const BYTES_MAX: usize = 64 * 1024;

/// Why a body was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BodyError {
    /// It was too large.
    #[error("it is larger than {0} bytes")]
    TooLarge(usize),
    /// It took too long.
    #[error("it did not arrive within {WHOLE_WITHIN:?}")]
    TooSlow,
    /// Other incomplete requests take up the whole budget.
    #[error("too many requests have not ended; try again")]
    Overloaded,
    /// The caller closed the connection.
    #[error("it broke off")]
    Broken,
}

/// Reads the body of a lock call whole, within the limits of
/// [`leasehold_net::request_budget`].
pub(crate) async fn read(body: Body) -> Result<Bytes, BodyError> {
    read_up_to(BYTES_MAX, body).await
}

/// Like [`read`], with another limit on the body's size.
pub(crate) async fn read_up_to(bytes_max: usize, body: Body) -> Result<Bytes, BodyError> {
    match Limited::new(body, bytes_max).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(BodyError::TooLarge(bytes_max)),
        Err(error) => Err(match status_code(&*error) {
            Some(Code::DeadlineExceeded) => BodyError::TooSlow,
            Some(Code::ResourceExhausted) => BodyError::Overloaded,
            _ => BodyError::Broken,
        }),
    }
}

/// The code of the status that caused the error.
fn status_code(error: &(dyn Error + 'static)) -> Option<Code> {
    causes(error).find_map(|cause| cause.downcast_ref::<Status>()).map(Status::code)
}

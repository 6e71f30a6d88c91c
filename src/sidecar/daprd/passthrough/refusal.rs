//! The sidecar's own answers when a call could not be passed on.

use std::error::Error;

use axum::body::Body;
use http::{HeaderMap, Response, StatusCode};
use leasehold_util::error_chain::{causes, chain};
use tonic::Status;
use tower::BoxError;

use super::{Endpoint, protocol::Protocol};
use crate::api::error::as_daprd;

/// Why a call could not be passed on.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    /// Connecting to daprd failed: nothing was sent.
    #[error("daprd at {0} was not reached: {error}", error = chain(&**.1))]
    Unreachable(Endpoint, BoxError),
    /// The connection to daprd broke, or its answer was invalid.
    #[error("daprd at {0} broke the call off: {error}", error = chain(&**.1))]
    Broken(Endpoint, BoxError),
    /// The limit of calls under way to daprd is reached.
    #[error("{0} calls to daprd are under way, as many as may be; try again")]
    Busy(usize),
    /// The request asked for a change of protocol.
    #[error("a change of protocol (to {0}) is not passed on to daprd")]
    Upgrade(String),
}

impl Refusal {
    /// The answer to the call.
    pub(super) fn into_answer(self, protocol: Protocol) -> Response<Body> {
        match protocol {
            Protocol::Grpc => self.into_status().into_http(),
            Protocol::Http => self.into_http(),
        }
    }

    /// As an error of Dapr's HTTP API.
    fn into_http(self) -> Response<Body> {
        let (status, code) = match &self {
            Self::Unreachable(..) => (StatusCode::SERVICE_UNAVAILABLE, "ERR_DAPRD_UNREACHABLE"),
            Self::Broken(..) => (StatusCode::BAD_GATEWAY, "ERR_DAPRD_BROKEN_RESPONSE"),
            Self::Busy(_) => (StatusCode::SERVICE_UNAVAILABLE, "ERR_DAPRD_BUSY"),
            Self::Upgrade(_) => (StatusCode::NOT_IMPLEMENTED, "ERR_UPGRADE_NOT_SUPPORTED"),
        };
        as_daprd(status, code, &self.to_string())
    }

    /// As the status of a gRPC call.
    fn into_status(self) -> Status {
        let message = self.to_string();
        match self {
            // gRPC defines a status for each of HTTP/2's error codes.
            Self::Broken(_, error) if is_reset(&*error) => Status::from_error(error),
            Self::Unreachable(..) | Self::Broken(..) => Status::unavailable(message),
            Self::Busy(_) => Status::resource_exhausted(message),
            Self::Upgrade(_) => Status::unimplemented(message),
        }
    }

    /// As the trailers of a gRPC call; without the message if that cannot be a header's value.
    pub(super) fn into_trailers(self) -> HeaderMap {
        let (mut trailers, status) = (HeaderMap::new(), self.into_status());
        if status.add_header(&mut trailers).is_err() {
            trailers.insert(Status::GRPC_STATUS, i32::from(status.code()).into());
        }
        trailers
    }
}

/// Whether daprd itself reset the stream.
pub(super) fn is_reset(error: &(dyn Error + 'static)) -> bool {
    causes(error)
        .filter_map(|error| error.downcast_ref::<h2::Error>())
        .any(|error| error.is_reset() && error.is_remote())
}

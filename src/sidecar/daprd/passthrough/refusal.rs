//! What the sidecar says itself when a call could not be passed on.

use axum::body::Body;
use http::{HeaderValue, Response, StatusCode, header::CONTENT_TYPE};
use serde_json::json;
use tonic::Status;

use super::Endpoint;

/// Why a call could not be passed on.
#[derive(Debug)]
pub(super) enum Refusal {
    /// daprd could not be connected to: nothing was sent.
    Unreachable(Endpoint, String),
    /// daprd went away, or answered what is no answer.
    Broken(Endpoint, String),
    /// As many calls as may be are on their way to daprd.
    Busy(usize),
    /// The request asked for a change of protocol.
    Upgrade(String),
}

impl Refusal {
    fn http(&self) -> (StatusCode, &'static str) {
        match self {
            Self::Unreachable(..) => (StatusCode::SERVICE_UNAVAILABLE, "ERR_DAPRD_UNREACHABLE"),
            Self::Broken(..) => (StatusCode::BAD_GATEWAY, "ERR_DAPRD_BROKEN_RESPONSE"),
            Self::Busy(_) => (StatusCode::SERVICE_UNAVAILABLE, "ERR_DAPRD_BUSY"),
            Self::Upgrade(_) => (StatusCode::NOT_IMPLEMENTED, "ERR_UPGRADE_NOT_SUPPORTED"),
        }
    }

    /// As an error of Dapr's HTTP API.
    pub(super) fn into_http(self) -> Response<Body> {
        let (status, code) = self.http();
        let body = json!({ "errorCode": code, "message": self.to_string() }).to_string();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = status;
        response
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    }

    /// As the status of a gRPC call.
    pub(super) fn into_status(self) -> Status {
        let message = self.to_string();
        match self {
            Self::Upgrade(_) => Status::unimplemented(message),
            Self::Unreachable(..) | Self::Broken(..) => Status::unavailable(message),
            Self::Busy(_) => Status::resource_exhausted(message),
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unreachable(endpoint, why) => {
                write!(f, "daprd at {endpoint} was not reached: {why}")
            }
            Self::Broken(endpoint, why) => {
                write!(f, "daprd at {endpoint} broke the call off: {why}")
            }
            Self::Busy(limit) => {
                write!(f, "{limit} calls to daprd are under way, as many as may be; try again")
            }
            Self::Upgrade(protocol) => {
                write!(f, "a change of protocol (to {protocol}) is not passed on to daprd")
            }
        }
    }
}

//! What answers the calls that are not served here: the daprd behind, if there is one. Lock calls
//! are never passed on.

use axum::{
    body::Body,
    extract::Request,
    http::{HeaderValue, StatusCode, header::CONTENT_TYPE},
    response::Response,
};
use tonic::Status;

use super::{error::as_daprd, paths};
use crate::daprd::passthrough::Passthrough;

/// Answers an HTTP call. daprd could read a path that matches no route here as a call to its own
/// lock store.
pub(crate) async fn http(daprd: Option<Passthrough>, request: Request) -> Response {
    let path = request.uri().path();
    let kind = request.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let is_grpc = kind.is_some_and(|kind| kind.starts_with(b"application/grpc"));
    if is_grpc && paths::is_lock_method(path) {
        return grpc_is_elsewhere(&request).into_http::<Body>();
    }
    if paths::is_lock_call(path) {
        let message = format!(
            "{} {path} is not how a lock call is written; locks are at \
             /v1.0-alpha2/lock/STORE/RESOURCE, /v1.0-alpha2/locks/STORE, \
             /v1.0-alpha1/lock/STORE and /v1.0-alpha1/unlock/STORE",
            request.method(),
        );
        return as_daprd(StatusCode::NOT_FOUND, "ERR_LOCK_PATH", &message);
    }
    if let Some(daprd) = daprd {
        return daprd.pass(request).await;
    }
    let mut message = format!(
        "{} {path} is not served here and no daprd is configured; give --daprd-http-endpoint",
        request.method(),
    );
    if path.contains("lock") {
        message += "; locks are at /v1.0-alpha2/lock/STORE/RESOURCE, /v1.0-alpha1/lock/STORE \
                    and /v1.0-alpha1/unlock/STORE";
    }
    as_daprd(StatusCode::NOT_IMPLEMENTED, "ERR_DAPRD_NOT_CONFIGURED", &message)
}

/// The answer to a gRPC call that came to the HTTP port.
fn grpc_is_elsewhere(request: &Request) -> Status {
    let address = request.uri().authority().map_or("this", |address| address.as_str());
    Status::unimplemented(format!(
        "{address} is the sidecar's HTTP port; gRPC calls go to its gRPC port, which is 50001 \
         unless --dapr-grpc-port says otherwise: change the address, DAPR_GRPC_ENDPOINT or \
         DAPR_GRPC_PORT",
    ))
}

/// Answers a gRPC call.
pub(crate) async fn grpc(daprd: Option<Passthrough>, request: Request) -> Response {
    let path = request.uri().path();
    let message = if paths::is_lock_method(path) {
        format!("{path} is not the path of a lock call's method")
    } else if let Some(daprd) = daprd {
        return daprd.pass(request).await;
    } else {
        format!(
            "{path} is not served here and no daprd is configured; give --daprd-grpc-endpoint"
        )
    };
    Status::unimplemented(message).into_http::<Body>()
}

/// Refuses a method that a path does not have. The router adds the allowed
/// methods.
pub(crate) async fn wrong_method(request: Request) -> Response {
    let (method, path) = (request.method(), request.uri().path());
    let fix = if path.starts_with("/v1.0-alpha2/lock/") {
        "use GET to see it, POST to lock, PUT to renew, DELETE to unlock"
    } else if path.starts_with("/v1.0-alpha2/locks/") {
        "use GET to list what is held, DELETE to end it"
    } else if path.starts_with("/v1.0-alpha1/") || path.starts_with("/v1.0-alpha2/") {
        "use POST"
    } else {
        "use GET"
    };
    let message = format!("{method} is not for {path}; {fix}");
    as_daprd(StatusCode::METHOD_NOT_ALLOWED, "ERR_METHOD_NOT_ALLOWED", &message)
}

//! What answers the calls that are not served here.

use std::convert::Infallible;

use axum::{
    Json,
    body::Body,
    extract::Request,
    http::{HeaderValue, StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse as _, Response},
};
use serde_json::json;
use tonic::Status;
use tower::{ServiceExt as _, service_fn, util::BoxCloneSyncService};

use super::paths;

/// A service for the calls that are not served here: it passes them on to
/// daprd, or answers that no daprd is configured.
pub type Fallback = BoxCloneSyncService<Request, Response, Infallible>;

/// Answers over HTTP that no daprd is configured.
#[must_use]
pub fn no_daprd_http() -> Fallback {
    BoxCloneSyncService::new(service_fn(async |request: Request| {
        let path = request.uri().path();
        let mut message = format!(
            "{} {path} is not served here and no daprd is configured; give --daprd-http-endpoint",
            request.method(),
        );
        if path.contains("lock") {
            message += "; locks are at /v1.0-alpha2/lock/STORE/RESOURCE, /v1.0-alpha1/lock/STORE \
                        and /v1.0-alpha1/unlock/STORE";
        }
        let body = json!({ "errorCode": "ERR_DAPRD_NOT_CONFIGURED", "message": message });
        Ok((StatusCode::NOT_IMPLEMENTED, Json(body)).into_response())
    }))
}

/// Passes on every HTTP call except lock calls: daprd could read a path that
/// matches no route here as a call to its own lock store.
pub(crate) fn all_but_lock_calls(passing: Fallback) -> Fallback {
    BoxCloneSyncService::new(service_fn(move |request: Request| {
        let passing = passing.clone();
        async move {
            let path = request.uri().path();
            let kind = request.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
            let grpc = kind.is_some_and(|kind| kind.starts_with(b"application/grpc"));
            if grpc && paths::is_lock_method(path) {
                return Ok(grpc_is_elsewhere(&request).into_http::<Body>());
            }
            if !paths::is_lock_call(path) {
                return passing.oneshot(request).await;
            }
            let message = format!(
                "{} {path} is not how a lock call is written; locks are at \
                 /v1.0-alpha2/lock/STORE/RESOURCE, /v1.0-alpha2/locks/STORE, \
                 /v1.0-alpha1/lock/STORE and /v1.0-alpha1/unlock/STORE",
                request.method(),
            );
            let body = json!({ "errorCode": "ERR_LOCK_PATH", "message": message });
            Ok((StatusCode::NOT_FOUND, Json(body)).into_response())
        }
    }))
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

/// Passes on every gRPC call except lock calls.
pub(crate) fn all_but_lock_methods(passing: Fallback) -> Fallback {
    BoxCloneSyncService::new(service_fn(move |request: Request| {
        let passing = passing.clone();
        async move {
            let path = request.uri().path();
            if !paths::is_lock_method(path) {
                return passing.oneshot(request).await;
            }
            let message = format!("{path} is not the path of a lock call's method");
            Ok(Status::unimplemented(message).into_http::<Body>())
        }
    }))
}

/// Refuses a method that a path does not have. The router adds the allowed
/// methods.
pub(crate) fn wrong_method() -> Fallback {
    BoxCloneSyncService::new(service_fn(async |request: Request| {
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
        let body = json!({
            "errorCode": "ERR_METHOD_NOT_ALLOWED",
            "message": format!("{method} is not for {path}; {fix}"),
        });
        Ok((StatusCode::METHOD_NOT_ALLOWED, Json(body)).into_response())
    }))
}

/// Answers over gRPC that no daprd is configured.
#[must_use]
pub fn no_daprd_grpc() -> Fallback {
    BoxCloneSyncService::new(service_fn(async |request: Request| {
        let message = format!(
            "{} is not served here and no daprd is configured; give --daprd-grpc-endpoint",
            request.uri().path(),
        );
        Ok(Status::unimplemented(message).into_http::<Body>())
    }))
}

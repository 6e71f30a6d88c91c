//! A defect of ours costs one answer, not the connection.

use std::panic::AssertUnwindSafe;

use axum::{
    body::Body,
    extract::Request,
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use futures_util::FutureExt as _;
use tonic::Status;
use tracing::error;

use super::error::ApiError;
use crate::lock::LockError;

/// Answers a handler's panic over HTTP.
pub(super) async fn answer_http(request: Request, next: Next) -> Response {
    guarded(request, next)
        .await
        .unwrap_or_else(|| ApiError::Lock(LockError::Internal).into_response())
}

/// Answers a handler's panic over gRPC.
pub(super) async fn answer_grpc(request: Request, next: Next) -> Response {
    guarded(request, next).await.unwrap_or_else(|| {
        Status::from(ApiError::Lock(LockError::Internal)).into_http::<Body>()
    })
}

async fn guarded(request: Request, next: Next) -> Option<Response> {
    let path = request.uri().path().to_owned();
    match AssertUnwindSafe(next.run(request)).catch_unwind().await {
        Ok(response) => Some(response),
        Err(_) => {
            error!(path, "a call panicked; this is a defect");
            None
        }
    }
}

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

#[cfg(test)]
mod tests {
    use axum::{Router, http::StatusCode, middleware::from_fn, routing::get};
    use http_body_util::BodyExt as _;
    use tonic::Code;
    use tower::ServiceExt as _;

    use super::*;

    fn router() -> Router {
        Router::new().route("/", get(async || -> &'static str { panic!("a secret of ours") }))
    }

    fn request() -> Request {
        Request::new(Body::empty())
    }

    #[tokio::test]
    async fn a_panic_is_an_internal_error_over_http_that_tells_nothing() {
        let answer = router().layer(from_fn(answer_http)).oneshot(request()).await.unwrap();
        assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let body = std::str::from_utf8(&body).unwrap();
        assert!(body.contains("\"ERR_INTERNAL\"") && !body.contains("secret"), "{body}");
    }

    #[tokio::test]
    async fn a_panic_is_an_internal_error_over_grpc_that_tells_nothing() {
        let answer = router().layer(from_fn(answer_grpc)).oneshot(request()).await.unwrap();
        let status = Status::from_header_map(answer.headers()).unwrap();
        assert_eq!(status.code(), Code::Internal);
        assert!(!format!("{status:?}").contains("secret"), "{status:?}");
    }
}

//! The API token: `dapr-api-token` on every call but health.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::{Method, StatusCode},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use leasehold_proto::sidecar::TOKEN_HEADER;
use subtle::ConstantTimeEq as _;
use tonic::Status;

const WITHOUT_TOKEN: [&str; 2] = ["/v1.0/healthz", "/v1.0/healthz/outbound"];

/// A secret of the environment, empty meaning none. Not shown by `Debug`.
#[derive(Clone, Default)]
pub struct Token(Option<Arc<str>>);

impl Token {
    /// Takes a secret; an empty one means that none is asked for.
    #[must_use]
    pub fn new(secret: Option<&str>) -> Self {
        Self(secret.filter(|secret| !secret.is_empty()).map(Into::into))
    }

    /// The secret, if there is one: for a header, never for a log.
    #[must_use]
    pub fn secret(&self) -> Option<&str> {
        self.0.as_deref()
    }

    /// Compares in a time that does not depend on where they differ.
    fn admits(&self, request: &Request) -> bool {
        let Some(secret) = self.secret() else { return true };
        let given = request.headers().get(TOKEN_HEADER).map(axum::http::HeaderValue::as_bytes);
        given.is_some_and(|given| given.ct_eq(secret.as_bytes()).into())
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "Token(…)" } else { "Token(none)" })
    }
}

/// Refuses HTTP requests without the token, in daprd's words.
pub async fn check_http(State(token): State<Token>, request: Request, next: Next) -> Response {
    let path = request.uri().path().trim_end_matches('/');
    let exempt = request.method() == Method::GET && WITHOUT_TOKEN.contains(&path);
    if exempt || token.admits(&request) {
        next.run(request).await
    } else {
        (StatusCode::UNAUTHORIZED, "invalid api token\n").into_response()
    }
}

/// Refuses gRPC calls without the token.
pub async fn check_grpc(State(token): State<Token>, request: Request, next: Next) -> Response {
    if token.admits(&request) {
        next.run(request).await
    } else {
        let given = request.headers().contains_key(TOKEN_HEADER);
        Status::unauthenticated(if given {
            "authentication error: api token mismatch"
        } else {
            "missing api token in request metadata"
        })
        .into_http()
    }
}

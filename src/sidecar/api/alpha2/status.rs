//! The errors of alpha2: their descriptions, and how HTTP renders them.

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use leasehold_lock::Violation;
use leasehold_net::status::{DOMAIN, ErrorDescription};
use serde_json::{Map, Value, json};
use tonic::{Code, Status};

use crate::api::error::ApiError;

/// The fields whose names differ between the proto and JSON.
const JSON_NAMES: [(&str, &str); 9] = [
    ("grant_id", "grantID"),
    ("holder_prefix", "holderPrefix"),
    ("lock_id", "lockID"),
    ("max_hold", "maxHold"),
    ("no_renewal", "noRenewal"),
    ("page_token", "page"),
    ("request_id", "requestID"),
    ("resource_id", "resourceID"),
    ("store_name", "storeName"),
];

impl From<ApiError> for ErrorDescription {
    fn from(error: ApiError) -> Self {
        let (code, reason) = match error {
            ApiError::Lock(error) => return error.into(),
            ApiError::NoStores => (Code::FailedPrecondition, "STORES_NOT_CONFIGURED"),
            ApiError::StoreNotFound { .. } => (Code::NotFound, "STORE_NOT_FOUND"),
            ApiError::NotReading | ApiError::TooManyHeld => {
                (Code::ResourceExhausted, "OVERLOADED")
            }
            ApiError::NotHeldHere => (Code::FailedPrecondition, "NOT_HELD_HERE"),
            ApiError::Lost(_) => (Code::Aborted, "LOCK_LOST"),
            ApiError::ForbiddenOrigin(_) => (Code::PermissionDenied, "FORBIDDEN_ORIGIN"),
        };
        let description = Self::new(code, reason, error.to_string());
        match error {
            ApiError::Lost(cause) => description.with("cause", cause.as_str()),
            _ => description,
        }
    }
}

impl From<ApiError> for Status {
    fn from(error: ApiError) -> Self {
        ErrorDescription::from(error).into()
    }
}

/// An error over HTTP, in a response and on a stream.
pub(super) struct HttpError {
    /// `ERR_` and the reason.
    pub(super) error_code: String,
    /// What happened, with the JSON names of fields.
    pub(super) message: String,
    violations: Vec<Violation>,
}

impl HttpError {
    pub(super) fn of(error: &ErrorDescription) -> Self {
        let mut message = error.message.clone();
        let violations = error.violations.iter().map(|violation| {
            let renamed = with_json_name(violation);
            message = message.replace(&violation.to_string(), &renamed.to_string());
            renamed
        });
        let violations = violations.collect();
        Self { error_code: format!("ERR_{}", error.reason), message, violations }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let error = ErrorDescription::from(self);
        let described = HttpError::of(&error);
        let body = json!({
            "errorCode": described.error_code,
            "message": described.message,
            "details": details(&error, &described.violations),
        });
        let mut response = (http_status(error.code), Json(body)).into_response();
        if let Some(delay) = error.retry_after() {
            let seconds = HeaderValue::from(delay.as_secs());
            response.headers_mut().insert(header::RETRY_AFTER, seconds);
        }
        response
    }
}

fn http_status(code: Code) -> StatusCode {
    match code {
        Code::Aborted => StatusCode::CONFLICT,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::InvalidArgument | Code::FailedPrecondition => StatusCode::BAD_REQUEST,
        Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        Code::DeadlineExceeded => StatusCode::REQUEST_TIMEOUT,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// The details in protobuf's JSON encoding of `Any`.
fn details(error: &ErrorDescription, violations: &[Violation]) -> Value {
    let metadata: Map<_, _> = error
        .metadata
        .iter()
        .map(|(key, value)| ((*key).to_owned(), value.clone().into()))
        .collect();
    let mut details = vec![json!({
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": error.reason,
        "domain": DOMAIN,
        "metadata": metadata,
    })];
    if !violations.is_empty() {
        let violations: Vec<Value> = violations
            .iter()
            .map(|violation| {
                json!({ "field": violation.field, "description": violation.problem })
            })
            .collect();
        details.push(json!({
            "@type": "type.googleapis.com/google.rpc.BadRequest",
            "fieldViolations": violations,
        }));
    }
    if let Some(delay) = error.retry_after() {
        details.push(json!({
            "@type": "type.googleapis.com/google.rpc.RetryInfo",
            "retryDelay": format!("{}s", delay.as_secs()),
        }));
    }
    Value::Array(details)
}

fn with_json_name(violation: &Violation) -> Violation {
    // `locks[3].lock_id` is a field of an entry.
    let name_at = violation.field.rfind('.').map_or(0, |dot| dot + 1);
    let (entry, name) = violation.field.split_at(name_at);
    match JSON_NAMES.iter().find(|(proto, _)| *proto == name) {
        Some((proto, json)) => {
            Violation::new(format!("{entry}{json}"), violation.problem.replace(proto, json))
        }
        None => violation.clone(),
    }
}

//! How alpha2 tells errors: the one place that maps them to codes.

use std::collections::HashMap;

use axum::http::StatusCode;
use serde_json::{Value, json};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::{
    lock::{LockError, Violation},
    sidecar::error::ApiError,
};

const DOMAIN: &str = "dapr.io";

/// An error as the wire has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The gRPC code.
    pub code: Code,
    /// The reason of its `ErrorInfo`.
    pub reason: &'static str,
    /// What happened, for people.
    pub message: String,
    /// The metadata of its `ErrorInfo`.
    pub metadata: HashMap<String, String>,
    /// The fields of its `BadRequest`.
    pub violations: Vec<Violation>,
}

impl Fault {
    fn new(code: Code, reason: &'static str, message: String) -> Self {
        Self { code, reason, message, metadata: HashMap::new(), violations: Vec::new() }
    }

    fn with(mut self, key: &str, value: impl Into<String>) -> Self {
        self.metadata.insert(key.to_owned(), value.into());
        self
    }

    /// A field of an HTTP request is bad.
    #[must_use]
    pub fn bad_field(field: &str, problem: impl Into<String>) -> Self {
        ApiError::from(Violation::new(field, problem)).into()
    }

    /// The HTTP error code: `ERR_` and the reason.
    #[must_use]
    pub fn error_code(&self) -> String {
        format!("ERR_{}", self.reason)
    }

    /// The HTTP status.
    #[must_use]
    pub fn http_status(&self) -> StatusCode {
        match self.code {
            Code::Aborted => StatusCode::CONFLICT,
            Code::NotFound => StatusCode::NOT_FOUND,
            Code::InvalidArgument | Code::FailedPrecondition => StatusCode::BAD_REQUEST,
            Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
            Code::DeadlineExceeded => StatusCode::REQUEST_TIMEOUT,
            Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
            Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The JSON of the details, as gRPC's `Any` has it.
    #[must_use]
    pub fn details(&self) -> Value {
        let mut details = vec![json!({
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": self.reason,
            "domain": DOMAIN,
            "metadata": self.metadata,
        })];
        if !self.violations.is_empty() {
            let violations: Vec<Value> = self
                .violations
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
        Value::Array(details)
    }
}

impl From<ApiError> for Fault {
    fn from(error: ApiError) -> Self {
        let message = error.to_string();
        match error {
            ApiError::NoStores => {
                Self::new(Code::FailedPrecondition, "STORES_NOT_CONFIGURED", message)
            }
            ApiError::StoreNotFound(_) => Self::new(Code::NotFound, "STORE_NOT_FOUND", message),
            ApiError::NotReading => Self::new(Code::ResourceExhausted, "OVERLOADED", message),
            ApiError::TooManyHeld => Self::new(Code::ResourceExhausted, "OVERLOADED", message),
            ApiError::Lost(cause) => {
                Self::new(Code::Aborted, "LOCK_LOST", message).with("cause", cause.as_str())
            }
            ApiError::Lock(error) => Self::of_lock(error, &message),
        }
    }
}

impl Fault {
    fn of_lock(error: LockError, message: &str) -> Self {
        let plain = |code, reason| Self::new(code, reason, message.to_owned());
        match error {
            LockError::Locked { holder } => {
                let fault = plain(Code::Aborted, "RESOURCE_LOCKED");
                match holder {
                    Some(holder) => fault.with("holder", holder.as_str()),
                    None => fault,
                }
            }
            LockError::NotFound { held } => {
                plain(Code::NotFound, "LOCK_NOT_FOUND").with("held", held.to_string())
            }
            LockError::InvalidRequest(violation) => Self {
                violations: vec![violation],
                ..plain(Code::InvalidArgument, "INVALID_REQUEST")
            },
            LockError::InvalidMetadata(violations) => {
                Self { violations, ..plain(Code::InvalidArgument, "INVALID_METADATA") }
            }
            LockError::NotInitialized { .. } => {
                plain(Code::FailedPrecondition, "NOT_INITIALIZED")
            }
            LockError::Unsupported(_) => plain(Code::Unimplemented, "UNSUPPORTED"),
            LockError::WaitDeadline => plain(Code::DeadlineExceeded, "WAIT_DEADLINE"),
            LockError::TooManyWaiters(_) => plain(Code::ResourceExhausted, "TOO_MANY_WAITERS"),
            LockError::Overloaded => plain(Code::ResourceExhausted, "OVERLOADED"),
            LockError::StoreUnavailable(_) => plain(Code::Unavailable, "STORE_UNAVAILABLE"),
            LockError::OutcomeUnknown(_) => plain(Code::Unknown, "OUTCOME_UNKNOWN"),
            LockError::ShuttingDown => plain(Code::Unavailable, "SHUTTING_DOWN"),
            LockError::Internal => plain(Code::Internal, "INTERNAL"),
        }
    }
}

impl From<Fault> for Status {
    fn from(fault: Fault) -> Self {
        let mut details = ErrorDetails::new();
        details.set_error_info(fault.reason, DOMAIN, fault.metadata);
        for violation in fault.violations {
            details.add_bad_request_violation(violation.field, violation.problem);
        }
        Self::with_error_details(fault.code, fault.message, details)
    }
}

impl From<ApiError> for Status {
    fn from(error: ApiError) -> Self {
        Fault::from(error).into()
    }
}

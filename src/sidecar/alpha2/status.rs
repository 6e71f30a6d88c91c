//! How alpha2 tells errors: the one place that maps them to codes. A [`Fault`]
//! is what HTTP tells, by the names that its JSON has.

use std::collections::HashMap;

use axum::http::StatusCode;
use serde_json::{Value, json};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::{
    edge::status::{DOMAIN, code_and_reason, metadata, status},
    lock::{LockError, Violation},
    sidecar::error::ApiError,
};

/// The names of fields that JSON writes otherwise than the proto.
const JSON_NAMES: [(&str, &str); 6] = [
    ("lock_id", "lockID"),
    ("max_hold", "maxHold"),
    ("no_renewal", "noRenewal"),
    ("request_id", "requestID"),
    ("resource_id", "resourceID"),
    ("store_name", "storeName"),
];

/// An error as HTTP has it.
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
            ApiError::Lock(error) => Self::of_lock(error, message),
        }
    }
}

impl Fault {
    fn of_lock(error: LockError, message: String) -> Self {
        let (code, reason) = code_and_reason(&error);
        let metadata = metadata(&error);
        let mut message = message;
        let violations = match error {
            LockError::InvalidRequest(violation) => {
                let violation = in_json(violation);
                message = violation.to_string();
                vec![violation]
            }
            LockError::InvalidMetadata(violations) => violations,
            _ => Vec::new(),
        };
        Self { code, reason, message, metadata, violations }
    }
}

fn in_json(violation: Violation) -> Violation {
    let name = JSON_NAMES.iter().find(|(proto, _)| *proto == violation.field);
    match name {
        Some((proto, json)) => Violation::new(*json, violation.problem.replace(proto, json)),
        None => violation,
    }
}

impl From<ApiError> for Status {
    fn from(error: ApiError) -> Self {
        if let ApiError::Lock(error) = &error {
            return status(error);
        }
        let fault = Fault::from(error);
        let details = ErrorDetails::with_error_info(fault.reason, DOMAIN, fault.metadata);
        Self::with_error_details(fault.code, fault.message, details)
    }
}

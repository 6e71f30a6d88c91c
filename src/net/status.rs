//! The one place where an error becomes a gRPC status.

use std::{collections::HashMap, time::Duration};

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::lock::{LockError, Violation};

/// The domain of every `ErrorInfo`.
pub(crate) const DOMAIN: &str = "dapr.io";

/// When to try again what was refused for a passing reason.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The status of an error, with `ErrorInfo`, and `BadRequest` or `RetryInfo`
/// where they help (design table of the component protocol).
pub(crate) fn status(error: &LockError) -> Status {
    let (code, reason) = code_and_reason(error);
    let mut details = ErrorDetails::with_error_info(reason, DOMAIN, metadata(error));
    match error {
        LockError::InvalidRequest(violation) => {
            blame(&mut details, std::slice::from_ref(violation));
        }
        LockError::InvalidMetadata(violations) => blame(&mut details, violations),
        LockError::Overloaded
        | LockError::TooManyWaiters(_)
        | LockError::StoreUnavailable(_)
        | LockError::ShuttingDown => {
            details.set_retry_info(Some(RETRY_AFTER));
        }
        _ => {}
    }
    Status::with_error_details(code, error.to_string(), details)
}

/// The code and the reason of an error.
pub(crate) fn code_and_reason(error: &LockError) -> (Code, &'static str) {
    match error {
        LockError::Locked { .. } => (Code::Aborted, "RESOURCE_LOCKED"),
        LockError::NotFound { .. } => (Code::NotFound, "LOCK_NOT_FOUND"),
        LockError::InvalidRequest(_) => (Code::InvalidArgument, "INVALID_REQUEST"),
        LockError::InvalidMetadata(_) => (Code::InvalidArgument, "INVALID_METADATA"),
        LockError::NotInitialized { .. } => (Code::FailedPrecondition, "NOT_INITIALIZED"),
        LockError::Unsupported(_) => (Code::Unimplemented, "UNSUPPORTED"),
        LockError::WaitDeadline => (Code::DeadlineExceeded, "WAIT_DEADLINE"),
        LockError::TooManyWaiters(_) => (Code::ResourceExhausted, "TOO_MANY_WAITERS"),
        LockError::Overloaded => (Code::ResourceExhausted, "OVERLOADED"),
        LockError::StoreUnavailable(_) => (Code::Unavailable, "STORE_UNAVAILABLE"),
        LockError::OutcomeUnknown(_) => (Code::Unknown, "OUTCOME_UNKNOWN"),
        LockError::ShuttingDown => (Code::Unavailable, "SHUTTING_DOWN"),
        LockError::Internal => (Code::Internal, "INTERNAL"),
    }
}

/// The metadata of an error's `ErrorInfo`.
pub(crate) fn metadata(error: &LockError) -> HashMap<String, String> {
    let entry = match error {
        LockError::Locked { holder: Some(holder) } => {
            Some(("holder", holder.as_str().to_owned()))
        }
        LockError::NotFound { held } => Some(("held", held.to_string())),
        LockError::NotInitialized { instance } => Some(("instance", instance.clone())),
        _ => None,
    };
    entry.map(|(key, value)| (key.to_owned(), value)).into_iter().collect()
}

fn blame(details: &mut ErrorDetails, violations: &[Violation]) {
    for violation in violations {
        details.add_bad_request_violation(&violation.field, &violation.problem);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::Holder;

    fn info(error: &LockError) -> (Code, String, HashMap<String, String>) {
        let status = status(error);
        let info = status.get_details_error_info().unwrap();
        assert_eq!(info.domain, "dapr.io");
        (status.code(), info.reason, info.metadata)
    }

    #[test]
    fn a_locked_resource_is_aborted_and_names_its_holder() {
        let holder = Holder::new("app-1").unwrap();
        let (code, reason, metadata) = info(&LockError::Locked { holder });
        assert_eq!((code, reason.as_str()), (Code::Aborted, "RESOURCE_LOCKED"));
        assert_eq!(metadata["holder"], "app-1");
        assert!(info(&LockError::Locked { holder: None }).2.is_empty());
    }

    #[test]
    fn not_found_tells_whether_somebody_else_holds() {
        for held in [true, false] {
            let (code, reason, metadata) = info(&LockError::NotFound { held });
            assert_eq!((code, reason.as_str()), (Code::NotFound, "LOCK_NOT_FOUND"));
            assert_eq!(metadata["held"], held.to_string());
        }
    }

    #[test]
    fn every_bad_property_is_named() {
        let violations = vec![Violation::new("ttl", "is bad"), Violation::new("maxTTL", "too")];
        let status = status(&LockError::InvalidMetadata(violations));
        let named = status.get_details_bad_request().unwrap().field_violations;
        let named: Vec<_> = named.into_iter().map(|violation| violation.field).collect();
        assert_eq!(named, ["ttl", "maxTTL"]);
    }

    #[test]
    fn what_passes_says_when_to_try_again() {
        assert!(status(&LockError::Overloaded).get_details_retry_info().is_some());
        assert!(status(&LockError::WaitDeadline).get_details_retry_info().is_none());
    }
}

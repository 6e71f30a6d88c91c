//! Errors, described once: [`ErrorDescription`] is what gRPC and HTTP render.

use std::{collections::HashMap, time::Duration};

use leasehold_lock::{LockError, Reason, Violation, inspect::GrantView};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use super::wire::timestamp;

/// The domain of every `ErrorInfo`.
pub const DOMAIN: &str = "dapr.io";

/// When to repeat a call that was refused for a temporary reason.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// An error as callers receive it, in every protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorDescription {
    /// The gRPC code, from which HTTP's status follows.
    pub code: Code,
    /// The reason of its `ErrorInfo`.
    pub reason: &'static str,
    /// What happened, as text.
    pub message: String,
    /// The metadata of its `ErrorInfo`.
    pub metadata: Vec<(&'static str, String)>,
    /// The fields of its `BadRequest`, by their names in the proto or the YAML.
    pub violations: Vec<Violation>,
}

impl ErrorDescription {
    /// An error without metadata and without violations.
    pub fn new(code: Code, reason: &'static str, message: String) -> Self {
        Self { code, reason, message, metadata: Vec::new(), violations: Vec::new() }
    }

    /// Adds an entry to its metadata.
    pub fn with(mut self, key: &'static str, value: impl Into<String>) -> Self {
        self.metadata.push((key, value.into()));
        self
    }

    /// Adds the public facts of a grant. Its ID, mode and time are added together or
    /// not at all.
    fn with_grant(mut self, grant: &GrantView) -> Self {
        if let Some(holder) = &grant.holder {
            self = self.with("holder", holder.as_str());
        }
        if let Some(id) = grant.id {
            self = self.with("grantID", id.to_string()).with("mode", grant.mode.name());
            if let Some(since) = grant.since_unix_ms {
                self = self.with("since", timestamp(since).to_string());
            }
        }
        self
    }

    /// The delay of its `RetryInfo`. Both codes that have one mean that the call may
    /// succeed unchanged later.
    pub fn retry_after(&self) -> Option<Duration> {
        matches!(self.code, Code::ResourceExhausted | Code::Unavailable).then_some(RETRY_AFTER)
    }
}

impl From<LockError> for ErrorDescription {
    fn from(error: LockError) -> Self {
        let reason = error.reason();
        let code = match reason {
            Reason::ResourceLocked => Code::Aborted,
            Reason::LockNotFound => Code::NotFound,
            Reason::InvalidRequest | Reason::InvalidMetadata => Code::InvalidArgument,
            Reason::NotInitialized => Code::FailedPrecondition,
            Reason::Unsupported => Code::Unimplemented,
            Reason::WaitDeadline => Code::DeadlineExceeded,
            Reason::TooManyWaiters | Reason::TooManyHolders | Reason::Overloaded => {
                Code::ResourceExhausted
            }
            Reason::StoreUnavailable | Reason::ShuttingDown => Code::Unavailable,
            Reason::OutcomeUnknown => Code::Unknown,
            Reason::Internal => Code::Internal,
        };
        let description = Self::new(code, reason.name(), error.to_string());
        match error {
            LockError::Locked { by: Some(grant) } => description.with_grant(&grant),
            LockError::NotFound { held } => description.with("held", held.to_string()),
            LockError::NotInitialized { instance } => description.with("instance", instance),
            LockError::InvalidRequest(violation) => {
                Self { violations: vec![violation], ..description }
            }
            LockError::InvalidMetadata(violations) => Self { violations, ..description },
            _ => description,
        }
    }
}

impl From<Violation> for ErrorDescription {
    fn from(violation: Violation) -> Self {
        LockError::from(violation).into()
    }
}

impl From<ErrorDescription> for Status {
    fn from(error: ErrorDescription) -> Self {
        let retry_after = error.retry_after();
        let metadata: HashMap<_, _> =
            error.metadata.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        let mut details = ErrorDetails::with_error_info(error.reason, DOMAIN, metadata);
        for violation in error.violations {
            details.add_bad_request_violation(violation.field, violation.problem);
        }
        if retry_after.is_some() {
            details.set_retry_info(retry_after);
        }
        Self::with_error_details(error.code, error.message, details)
    }
}

#[cfg(test)]
mod tests {
    use leasehold_lock::{Holder, Mode};

    use super::*;

    fn status(error: LockError) -> Status {
        ErrorDescription::from(error).into()
    }

    fn info(error: LockError) -> (Code, String, HashMap<String, String>) {
        let status = status(error);
        let info = status.get_details_error_info().unwrap();
        assert_eq!(info.domain, "dapr.io");
        (status.code(), info.reason, info.metadata)
    }

    #[test]
    fn a_locked_resource_is_aborted_with_the_grant_in_the_way() {
        let by = GrantView {
            id: Some("0".repeat(32).parse().unwrap()),
            holder: Holder::new("app-1").unwrap(),
            since_unix_ms: Some(1_700_000_000_500),
            ..GrantView::unknown(Mode::Shared)
        };
        let (code, reason, metadata) = info(LockError::Locked { by: Some(by) });
        assert_eq!((code, reason.as_str()), (Code::Aborted, "RESOURCE_LOCKED"));
        let expected = [
            ("grantID", "00000000000000000000000000000000"),
            ("holder", "app-1"),
            ("mode", "shared"),
            ("since", "2023-11-14T22:13:20.500Z"),
        ];
        let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(metadata, expected.into());
        assert!(info(LockError::Locked { by: None }).2.is_empty());
    }

    #[test]
    fn a_holder_without_a_grant_id_is_shown_by_its_label_only() {
        let holder = Holder::new("app-1").unwrap();
        let by = GrantView { holder, ..GrantView::unknown(Mode::Exclusive) };
        let metadata = info(LockError::Locked { by: Some(by) }).2;
        assert_eq!(metadata, [("holder".to_owned(), "app-1".to_owned())].into());
    }

    #[test]
    fn not_found_reports_whether_somebody_else_holds() {
        for held in [true, false] {
            let (code, reason, metadata) = info(LockError::NotFound { held });
            assert_eq!((code, reason.as_str()), (Code::NotFound, "LOCK_NOT_FOUND"));
            assert_eq!(metadata["held"], held.to_string());
        }
    }

    #[test]
    fn every_bad_property_is_named() {
        let violations = vec![Violation::new("ttl", "is bad"), Violation::new("maxTTL", "too")];
        let status = status(LockError::InvalidMetadata(violations));
        let named = status.get_details_bad_request().unwrap().field_violations;
        let named: Vec<_> = named.into_iter().map(|violation| violation.field).collect();
        assert_eq!(named, ["ttl", "maxTTL"]);
    }

    #[test]
    fn a_passing_refusal_says_when_to_try_again() {
        for passing in [
            LockError::Overloaded,
            LockError::TooManyWaiters("the resource's limit is reached"),
            LockError::StoreUnavailable("cut off".into()),
            LockError::ShuttingDown,
        ] {
            let retry = status(passing).get_details_retry_info().unwrap();
            assert_eq!(retry.retry_delay, Some(RETRY_AFTER));
        }
        for lasting in [LockError::WaitDeadline, LockError::Locked { by: None }] {
            assert!(status(lasting).get_details_retry_info().is_none());
        }
    }
}

//! The result of a call.

use std::fmt;

use tonic::{Code, Status};
use tonic_types::{ErrorInfo, StatusExt as _};

use crate::{
    lacks::Lacks,
    words::{code_name, listed},
};

/// The result of a call.
pub(crate) type Answer<T> = Result<T, Rejection>;

/// A call that was not answered with OK.
#[derive(Clone, Debug)]
pub(crate) struct Rejection {
    pub(crate) status: Status,
    /// What all answers of the store lack.
    pub(crate) lacks: Lacks,
    /// Whether the suite made the status itself, because there was no readable answer.
    made_by_suite: bool,
}

impl Rejection {
    /// A status that the store, or the transport, answered.
    pub(crate) fn answered(status: Status, lacks: Lacks) -> Self {
        Self { status, lacks, made_by_suite: false }
    }

    /// There was no readable answer; `why` is the reason.
    pub(crate) fn unreadable(why: String, lacks: Lacks) -> Self {
        Self { status: Status::unknown(why), lacks, made_by_suite: true }
    }

    pub(crate) fn code(&self) -> Code {
        self.status.code()
    }

    /// Whether the status has no details, as when the transport ended the call.
    pub(crate) fn is_bare(&self) -> bool {
        self.status.details().is_empty()
    }

    /// Whether the store says that the outcome of the call is unknown.
    pub(crate) fn is_outcome_unknown(&self) -> bool {
        self.code() == Code::Unknown && (!self.is_bare() || self.lacks.error_info)
    }

    pub(crate) fn error_info(&self) -> Option<ErrorInfo> {
        self.status.get_details_error_info()
    }

    /// The fields that the BadRequest names; `None` if there is no BadRequest.
    pub(crate) fn bad_fields(&self) -> Option<Vec<String>> {
        let bad = self.status.get_details_bad_request()?;
        Some(bad.field_violations.into_iter().map(|violation| violation.field).collect())
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.made_by_suite {
            return f.write_str(self.status.message());
        }
        write!(f, "code {}", code_name(self.code()))?;
        match self.error_info() {
            None => write!(f, " without an ErrorInfo")?,
            Some(info) => {
                write!(
                    f,
                    ", reason {}, domain {}",
                    or_empty(&info.reason),
                    or_empty(&info.domain)
                )?;
                let mut metadata: Vec<_> = info.metadata.into_iter().collect();
                metadata.sort();
                for (key, value) in metadata {
                    write!(f, ", {key} \"{value}\"")?;
                }
            }
        }
        if let Some(fields) = self.bad_fields() {
            write!(f, ", a BadRequest for {}", listed(&fields))?;
        }
        write!(f, ", message \"{}\"", self.status.message())
    }
}

fn or_empty(text: &str) -> &str {
    if text.is_empty() { "(empty)" } else { text }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use tonic_types::ErrorDetails;

    use super::*;

    #[test]
    fn a_rejection_is_printed_with_the_names_of_the_protocol() {
        let metadata = HashMap::from([("held".to_owned(), "true".to_owned())]);
        let mut details = ErrorDetails::new();
        details.set_error_info("LOCK_NOT_FOUND", "dapr.io", metadata);
        details.add_bad_request_violation("lock_id", "is unknown");
        let status = Status::with_error_details(Code::NotFound, "not yours", details);
        assert_eq!(
            Rejection::answered(status, Lacks::default()).to_string(),
            "code NOT_FOUND, reason LOCK_NOT_FOUND, domain dapr.io, held \"true\", a BadRequest \
             for `lock_id`, message \"not yours\""
        );
    }

    #[test]
    fn an_absent_error_info_is_printed() {
        let rejection = Rejection::answered(Status::aborted("held"), Lacks::default());
        let expected = "code ABORTED without an ErrorInfo, message \"held\"";
        assert_eq!(rejection.to_string(), expected);
    }
}

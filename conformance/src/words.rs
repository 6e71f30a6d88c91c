//! Texts of messages for the author of a store.

use std::{fmt, time::Duration};

use tonic::Code;

/// A list of names for a sentence.
pub(crate) fn listed<T: fmt::Display>(names: &[T]) -> String {
    if names.is_empty() {
        return "nothing".to_owned();
    }
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// The name of a status code in the gRPC specification.
pub(crate) fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

/// An accepted answer, described for a message.
pub(crate) trait Accepted {
    fn describe(&self) -> String;
}

impl Accepted for () {
    fn describe(&self) -> String {
        "OK".to_owned()
    }
}

/// A duration in a message.
pub(crate) struct Readable(pub(crate) Duration);

impl fmt::Display for Readable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 >= Duration::from_secs(1) {
            let text = format!("{:.3}", self.0.as_secs_f64());
            write!(f, "{} s", text.trim_end_matches('0').trim_end_matches('.'))
        } else {
            let text = format!("{:.3}", self.0.as_secs_f64() * 1000.0);
            write!(f, "{} ms", text.trim_end_matches('0').trim_end_matches('.'))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_printed_in_milliseconds_or_seconds() {
        assert_eq!(Readable(Duration::from_micros(1500)).to_string(), "1.5 ms");
        assert_eq!(Readable(Duration::from_secs(90)).to_string(), "90 s");
    }
}

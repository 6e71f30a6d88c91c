//! Why a command failed, and its exit status.

use std::{error::Error as _, io};

use leasehold_lock::LockError;
use leasehold_net::status::ErrorDescription;
use leasehold_util::{error_chain::chain, exit};
use tonic::Status;
use tonic_types::StatusExt as _;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct ToolError {
    /// The exit status.
    pub exit: u8,
    /// What happened, for people.
    pub message: String,
    is_not_held: bool,
}

impl ToolError {
    fn new(exit: u8, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), is_not_held: false }
    }

    /// A wrong command line.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(exit::USAGE, message)
    }

    /// A store that was not reached.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(exit::UNAVAILABLE, message)
    }

    /// Whether a grant that was to be ended is not there.
    pub(crate) fn is_not_held(&self) -> bool {
        self.is_not_held
    }

    /// Refused credentials.
    pub fn refused(message: impl Into<String>) -> Self {
        Self::new(exit::REFUSED, message)
    }
}

/// The output could not be written, or the answer not be read.
impl From<io::Error> for ToolError {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::new(exit::CLOSED_PIPE, "");
        }
        Self::new(exit::DEFECT, error.to_string())
    }
}

/// The answer of a store of this process.
impl From<LockError> for ToolError {
    fn from(error: LockError) -> Self {
        Status::from(ErrorDescription::from(error)).into()
    }
}

/// The answer of a store or a sidecar.
impl From<Status> for ToolError {
    fn from(status: Status) -> Self {
        let reason = status.get_details_error_info().map(|info| info.reason);
        let exit = match reason.as_deref() {
            Some(
                "INVALID_REQUEST"
                | "INVALID_METADATA"
                | "UNSUPPORTED"
                | "STORE_NOT_FOUND"
                | "STORES_NOT_CONFIGURED",
            ) => exit::USAGE,
            Some("INTERNAL") => exit::DEFECT,
            Some(
                "STORE_UNAVAILABLE" | "SHUTTING_DOWN" | "OUTCOME_UNKNOWN" | "OVERLOADED"
                | "NOT_INITIALIZED",
            ) => exit::UNAVAILABLE,
            _ => of_code(status.code()),
        };
        let is_not_held = reason.as_deref() == Some("LOCK_NOT_FOUND");
        let message = match reason {
            None if exit == exit::UNAVAILABLE => format!(
                "no sidecar answers where DAPR_GRPC_ENDPOINT or DAPR_GRPC_PORT points: {}",
                status.source().map_or_else(|| status.message().to_owned(), chain)
            ),
            _ => status.message().to_owned(),
        };
        Self { is_not_held, ..Self::new(exit, message) }
    }
}

/// The exit status of an error without a reason of ours: of another program, or of the
/// connection to a sidecar.
fn of_code(code: tonic::Code) -> u8 {
    use tonic::Code;
    match code {
        Code::Unauthenticated | Code::PermissionDenied => exit::REFUSED,
        Code::Unimplemented | Code::InvalidArgument | Code::NotFound => exit::USAGE,
        _ => exit::UNAVAILABLE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_status_follows_the_reason() {
        let exit = |code, reason| {
            let error = ErrorDescription::new(code, reason, "why".into());
            ToolError::from(Status::from(error)).exit
        };
        assert_eq!(exit(tonic::Code::Unavailable, "STORE_UNAVAILABLE"), exit::UNAVAILABLE);
        assert_eq!(exit(tonic::Code::Unknown, "OUTCOME_UNKNOWN"), exit::UNAVAILABLE);
        assert_eq!(exit(tonic::Code::Unimplemented, "UNSUPPORTED"), exit::USAGE);
        assert_eq!(exit(tonic::Code::Internal, "INTERNAL"), exit::DEFECT);
    }

    #[test]
    fn the_exit_status_follows_the_code_of_an_error_without_a_reason() {
        for (code, exit) in [
            (tonic::Code::Unauthenticated, exit::REFUSED),
            (tonic::Code::Unimplemented, exit::USAGE),
            (tonic::Code::Unavailable, exit::UNAVAILABLE),
        ] {
            assert_eq!(ToolError::from(Status::new(code, "why")).exit, exit);
        }
    }
}

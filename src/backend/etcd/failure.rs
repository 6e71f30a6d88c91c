//! What an error of etcd or of the connection means.

use std::{error::Error as _, sync::Arc};

use etcd_client::Error;
use tonic::{Code, ConnectError, Status};

use crate::lock::BackendError;

/// Why a request has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// It certainly changed nothing, and never will; another endpoint or a
    /// later moment may do better.
    NotSent(Arc<str>),
    /// etcd refused it as it is.
    Refused(Refusal, Arc<str>),
    /// It may have been applied, or may yet be.
    Unknown(Arc<str>),
}

/// Why etcd refused a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// A lease is dead.
    LeaseNotFound,
    /// More operations than the server's `--max-txn-ops`.
    TooManyOps,
    /// More bytes than the server's `--max-request-bytes`.
    TooLarge,
    /// The user may not do that to these keys.
    Permission,
    /// User or password is wrong or missing.
    Credentials,
    /// A user was given to a server that asks for none.
    AuthNotEnabled,
    /// Something else.
    Other,
}

impl Failure {
    /// The reason.
    pub(super) fn why(&self) -> &Arc<str> {
        match self {
            Self::NotSent(why) | Self::Refused(_, why) | Self::Unknown(why) => why,
        }
    }

    /// Of a request that changes nothing: whether it may be sent again.
    pub(super) fn is_passing(&self) -> bool {
        !matches!(self, Self::Refused(..))
    }

    /// What a caller is told about a request that changes nothing, or that is
    /// known to have changed nothing.
    pub(super) fn unavailable(self) -> BackendError {
        BackendError::Unavailable(Arc::clone(self.why()))
    }
}

impl From<Failure> for BackendError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::NotSent(why) | Failure::Refused(_, why) => Self::Unavailable(why),
            Failure::Unknown(why) => Self::Unknown(why),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::GRpcStatus(status) => Self::from(status),
            Error::TransportError(error) => Self::NotSent(chain(&error).into()),
            Error::InvalidArgs(why) | Error::EndpointError(why) => Self::NotSent(why.into()),
            other => Self::Unknown(other.to_string().into()),
        }
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        let message = status.message();
        if was_never_connected(&status) {
            let cause = status.source().map(chain).unwrap_or_default();
            return Self::NotSent(format!("cannot connect: {cause}").into());
        }
        if let Some(refusal) = refusal(status.code(), message) {
            return Self::Refused(refusal, message.into());
        }
        match message {
            "etcdserver: no leader"
            | "etcdserver: too many requests"
            | "etcdserver: rpc not supported for learner" => Self::NotSent(message.into()),
            _ => Self::Unknown(format!("{:?}: {message}", status.code()).into()),
        }
    }
}

/// By message, because etcd uses one code for different things, and because
/// gRPC itself uses the same codes for requests that were sent.
fn refusal(code: Code, message: &str) -> Option<Refusal> {
    let known = match message {
        "etcdserver: requested lease not found" => Refusal::LeaseNotFound,
        "etcdserver: too many operations in txn request" => Refusal::TooManyOps,
        "etcdserver: request is too large" => Refusal::TooLarge,
        "etcdserver: permission denied" => Refusal::Permission,
        "etcdserver: authentication failed, invalid user ID or password"
        | "etcdserver: user name is empty"
        | "etcdserver: user name not found"
        | "etcdserver: invalid auth token"
        | "etcdserver: revision of auth store is old" => Refusal::Credentials,
        "etcdserver: authentication is not enabled" => Refusal::AuthNotEnabled,
        _ => {
            let definite = matches!(
                code,
                Code::InvalidArgument
                    | Code::NotFound
                    | Code::FailedPrecondition
                    | Code::OutOfRange
                    | Code::ResourceExhausted
                    | Code::Unauthenticated
            );
            let by_etcd =
                message.starts_with("etcdserver: mvcc") || message.starts_with("etcdserver: ");
            return (definite && by_etcd && message != "etcdserver: too many requests")
                .then_some(Refusal::Other);
        }
    };
    Some(known)
}

fn was_never_connected(status: &Status) -> bool {
    let mut source = status.source();
    while let Some(error) = source {
        if error.is::<ConnectError>() {
            return true;
        }
        source = error.source();
    }
    false
}

/// The error and what it stems from, as one line.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut line = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let part = error.to_string();
        if !line.ends_with(&part) {
            line = format!("{line}: {part}");
        }
        source = error.source();
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_cannot_have_happened_counts_as_not_sent() {
        let no_leader = Failure::from(Status::unavailable("etcdserver: no leader"));
        assert!(matches!(no_leader, Failure::NotSent(_)));
        for unknown in [
            Status::unavailable("etcdserver: request timed out"),
            Status::unavailable("etcdserver: leader changed"),
            Status::unknown("transport error"),
            Status::cancelled("Timeout expired"),
            Status::out_of_range("decoded message length too large"),
        ] {
            assert!(matches!(Failure::from(unknown), Failure::Unknown(_)));
        }
    }

    #[test]
    fn a_refusal_is_told_by_its_message() {
        let dead = Failure::from(Status::not_found("etcdserver: requested lease not found"));
        assert!(matches!(dead, Failure::Refused(Refusal::LeaseNotFound, _)));
        let full = Failure::from(Status::resource_exhausted(
            "etcdserver: mvcc: database space exceeded",
        ));
        assert!(matches!(full, Failure::Refused(Refusal::Other, _)));
    }
}

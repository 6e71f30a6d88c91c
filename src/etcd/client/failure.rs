//! The meaning of errors of etcd and of the connection.

use std::{error, error::Error as _, sync::Arc};

use etcd_client::Error;
use leasehold_lock::BackendError;
use leasehold_util::error_chain::{causes, chain};
use tonic::{Code, ConnectError, Status};

/// Why a request, or a write in a batch, failed or has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// It changed nothing and never will: it was not sent, or certainly not applied. A retry, or
    /// another endpoint, may succeed.
    NotSent(Arc<str>),
    /// The request itself was refused, not because of its neighbours in a batch, and nothing has
    /// changed.
    Refused(Refusal, Arc<str>),
    /// etcd has no space left. The request may have been applied nevertheless, but is no
    /// longer under way, so a read shows whether it was.
    OutOfSpace(Arc<str>),
    /// It may have been applied, or may be applied later.
    Unknown(Arc<str>),
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The lease does not exist.
    LeaseNotFound,
    /// The lease was too old when the write's turn came, so the write was not sent. etcd does not
    /// say this, `commit` does.
    LeaseStale,
    /// The ID chosen for a lease is taken.
    LeaseExists,
    /// More operations than the server's `--max-txn-ops`.
    TooManyOps,
    /// More bytes than the server's `--max-request-bytes`.
    TooLarge,
    /// The user lacks the permission for these keys.
    Permission,
    /// User or password is wrong or missing.
    Credentials,
    /// The login has expired, is older than a change of users or roles, or is missing.
    Login,
    /// A user was given, but the server has authentication turned off.
    AuthNotEnabled,
    /// Another reason.
    Other,
}

impl Refusal {
    /// Whether the connection's login no longer fits what etcd asks for, so that another one
    /// may be accepted.
    pub(crate) fn is_of_login(self) -> bool {
        matches!(self, Self::Login | Self::AuthNotEnabled)
    }
}

impl Failure {
    /// The reason.
    pub(crate) fn why(&self) -> &Arc<str> {
        match self {
            Self::NotSent(why)
            | Self::Refused(_, why)
            | Self::OutOfSpace(why)
            | Self::Unknown(why) => why,
        }
    }

    /// Whether a request that changes nothing may be sent again.
    pub(crate) fn is_passing(&self) -> bool {
        !matches!(self, Self::Refused(..) | Self::OutOfSpace(_))
    }

    /// The caller's error for a request that has changed nothing.
    pub(crate) fn unavailable(self) -> BackendError {
        BackendError::Unavailable(Arc::clone(self.why()))
    }
}

impl From<Failure> for BackendError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::NotSent(why) | Failure::Refused(_, why) => Self::Unavailable(why),
            Failure::OutOfSpace(why) | Failure::Unknown(why) => Self::Unknown(why),
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
        if causes(&status).any(<dyn error::Error>::is::<ConnectError>) {
            let cause = status.source().map(chain).unwrap_or_default();
            return Self::NotSent(format!("cannot connect: {cause}").into());
        }
        match message {
            NO_SPACE => return Self::OutOfSpace(no_space()),
            TOO_LARGE => return Self::Refused(Refusal::TooLarge, too_large(message)),
            _ if is_too_large_for_grpc(&status) => {
                return Self::Refused(Refusal::TooLarge, too_large(message));
            }
            _ => {}
        }
        if is_not_sent(message) {
            return Self::NotSent(message.into());
        }
        match refusal(message) {
            Some(refusal) => Self::Refused(refusal, message.into()),
            None => Self::Unknown(format!("{:?}: {message}", status.code()).into()),
        }
    }
}

/// etcd's answer to a write that it does not propose, and also to the write that makes the
/// database exceed its quota, after it was applied.
const NO_SPACE: &str = "etcdserver: mvcc: database space exceeded";
/// etcd's answer to a write that it does not propose.
const TOO_LARGE: &str = "etcdserver: request is too large";

/// The message for callers while etcd has no space left.
pub(crate) fn no_space() -> Arc<str> {
    format!(
        "{NO_SPACE}; compact and defragment etcd, then disarm its alarm (etcdctl alarm disarm)"
    )
    .into()
}

fn too_large(message: &str) -> Arc<str> {
    format!("{message}; raise etcd's --max-request-bytes, or use shorter names").into()
}

/// A gRPC server refuses a request above its limit before it reads it. The same message
/// with "trying to send" is about the answer to a request that was carried out.
fn is_too_large_for_grpc(status: &Status) -> bool {
    status.code() == Code::ResourceExhausted
        && status.message().starts_with("grpc: received message larger than max")
}

/// Whether etcd sends this answer before it proposes a write, so that a retry may succeed:
/// it has no leader, it lags too far behind with applying, or the member is a learner.
fn is_not_sent(message: &str) -> bool {
    matches!(
        message,
        "etcdserver: no leader"
            | "etcdserver: too many requests"
            | "etcdserver: rpc not supported for learner"
    )
}

/// Which refusal a message of etcd is; nothing was carried out. The status code is
/// ambiguous: etcd uses one code for several errors, and gRPC uses the same codes for
/// requests that were sent. It has only messages whose origin in etcd 3.4 to 3.6 is
/// known:
///
/// - checked before a write is proposed: its size, the number of its operations,
///   keys that it writes twice, the user and the token;
/// - checked when it is applied, before anything is written: the auth revision,
///   the permissions, and that every lease and key on the branches taken exists;
/// - refused reads (a compacted revision) and lease requests (a TTL that is too
///   large, an ID that is taken), which changed nothing.
///
/// Anything else counts as unknown: etcd may report a timeout, a changed leader, a stopped
/// member or a corruption for a write that is still on its way.
fn refusal(message: &str) -> Option<Refusal> {
    Some(match message {
        "etcdserver: requested lease not found" => Refusal::LeaseNotFound,
        "etcdserver: lease already exists" => Refusal::LeaseExists,
        "etcdserver: too many operations in txn request" => Refusal::TooManyOps,
        "etcdserver: permission denied" => Refusal::Permission,
        "etcdserver: invalid auth token"
        | "etcdserver: revision of auth store is old"
        | "etcdserver: user name is empty" => Refusal::Login,
        "etcdserver: authentication failed, invalid user ID or password"
        | "etcdserver: user name not found" => Refusal::Credentials,
        "etcdserver: authentication is not enabled" => Refusal::AuthNotEnabled,
        "etcdserver: key is not provided"
        | "etcdserver: key not found"
        | "etcdserver: value is provided"
        | "etcdserver: lease is provided"
        | "etcdserver: duplicate key given in txn request"
        | "etcdserver: invalid sort option"
        | "etcdserver: invalid client api version"
        | "etcdserver: mvcc: required revision has been compacted"
        | "etcdserver: mvcc: required revision is a future revision"
        | "etcdserver: too large lease TTL"
        | "etcdserver: cluster ID mismatch" => Refusal::Other,
        _ => return None,
    })
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
            Status::resource_exhausted(
                "grpc: trying to send message larger than max (5 vs. 4)",
            ),
            Status::resource_exhausted("etcdserver: something new"),
            Status::failed_precondition("etcdserver: not leader"),
            Status::unavailable("etcdserver: server stopped"),
            Status::unavailable(
                "etcdserver: request timed out, possibly due to connection lost",
            ),
            Status::data_loss("etcdserver: corrupt cluster"),
        ] {
            assert!(matches!(Failure::from(unknown), Failure::Unknown(_)));
        }
    }

    /// Trap: etcd 36
    #[test]
    fn a_refusal_is_recognised_by_its_message() {
        let refusals = [
            (
                Status::not_found("etcdserver: requested lease not found"),
                Refusal::LeaseNotFound,
            ),
            (
                Status::failed_precondition("etcdserver: lease already exists"),
                Refusal::LeaseExists,
            ),
            (
                Status::invalid_argument("etcdserver: too many operations in txn request"),
                Refusal::TooManyOps,
            ),
            (Status::invalid_argument("etcdserver: request is too large"), Refusal::TooLarge),
            (
                Status::resource_exhausted(
                    "grpc: received message larger than max (600000 vs. 534288)",
                ),
                Refusal::TooLarge,
            ),
            (Status::permission_denied("etcdserver: permission denied"), Refusal::Permission),
            (Status::unauthenticated("etcdserver: invalid auth token"), Refusal::Login),
            (
                Status::invalid_argument("etcdserver: revision of auth store is old"),
                Refusal::Login,
            ),
            (Status::invalid_argument("etcdserver: user name is empty"), Refusal::Login),
            (
                Status::invalid_argument("etcdserver: duplicate key given in txn request"),
                Refusal::Other,
            ),
        ];
        for (status, expected) in refusals {
            let failure = Failure::from(status);
            assert!(
                matches!(failure, Failure::Refused(refusal, _) if refusal == expected),
                "{failure:?}"
            );
        }
    }

    /// Trap: etcd 36
    #[test]
    fn an_exceeded_quota_may_have_been_reached_by_the_write_itself() {
        let full = Failure::from(Status::resource_exhausted(NO_SPACE));
        assert!(matches!(&full, Failure::OutOfSpace(_)), "{full:?}");
        assert!(full.why().contains("alarm disarm"));
        assert!(matches!(BackendError::from(full), BackendError::Unknown(_)));
    }
}

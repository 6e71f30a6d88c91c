//! Reads the errors of the sidecar.

use std::{collections::HashMap, error::Error as _};

use prost::Message;
use tonic::{Code, Status};

use crate::{
    Cause, LockLost,
    error::{Error, Failure, NotAcquired},
};

pub(crate) const LOCK_LOST: &str = "LOCK_LOST";
const LOCK_NOT_FOUND: &str = "LOCK_NOT_FOUND";
const RESOURCE_LOCKED: &str = "RESOURCE_LOCKED";
const SHUTTING_DOWN: &str = "SHUTTING_DOWN";
pub(crate) const UNAVAILABLE: &str = "UNAVAILABLE";
const WAIT_DEADLINE: &str = "WAIT_DEADLINE";

/// `google.rpc.Status`, as far as it is read.
#[derive(Clone, PartialEq, Message)]
struct RpcStatus {
    #[prost(message, repeated, tag = "3")]
    details: Vec<prost_types::Any>,
}

/// `google.rpc.ErrorInfo`.
#[derive(Clone, PartialEq, Message)]
struct ErrorInfo {
    #[prost(string, tag = "1")]
    reason: String,
    #[prost(map = "string, string", tag = "3")]
    metadata: HashMap<String, String>,
}

impl ErrorInfo {
    fn of(status: &Status) -> Self {
        let details = RpcStatus::decode(status.details()).unwrap_or_default().details;
        details
            .iter()
            .find(|detail| detail.type_url.ends_with("/google.rpc.ErrorInfo"))
            .and_then(|detail| Self::decode(&*detail.value).ok())
            .unwrap_or_default()
    }
}

/// Why a lock was not acquired.
pub(crate) fn not_acquired(resource: &str, status: Status) -> Error {
    let mut info = ErrorInfo::of(&status);
    let reason = match &*info.reason {
        RESOURCE_LOCKED => RESOURCE_LOCKED,
        WAIT_DEADLINE => WAIT_DEADLINE,
        // It comes from this process, where tonic has several codes for a broken connection.
        "" if status.source().is_some() => return failed(UNAVAILABLE.to_owned(), status),
        "" => return failed(code_name(status.code()).to_owned(), status),
        _ => return failed(info.reason, status),
    };
    let holder = info.metadata.remove("holder").filter(|holder| !holder.is_empty());
    Error::NotAcquired(NotAcquired { resource: resource.to_owned(), reason, holder })
}

/// Why the stream of a lock broke.
pub(crate) fn cause_of_end(status: &Status) -> Cause {
    let info = ErrorInfo::of(status);
    match &*info.reason {
        LOCK_LOST => Cause::of_sidecar(named_cause(&info)),
        SHUTTING_DOWN => Cause::ShuttingDown,
        _ => Cause::Disconnected,
    }
}

/// The loss that a failed Unlock tells of, if it does.
pub(crate) fn lost_before_unlock(resource: &str, status: &Status) -> Option<LockLost> {
    let info = ErrorInfo::of(status);
    let cause = match &*info.reason {
        LOCK_LOST => Cause::of_sidecar(named_cause(&info)),
        LOCK_NOT_FOUND => Cause::Ended,
        _ => return None,
    };
    Some(LockLost { resource: resource.to_owned(), cause })
}

fn named_cause(info: &ErrorInfo) -> &str {
    info.metadata.get("cause").map_or("", String::as_str)
}

fn failed(reason: String, status: Status) -> Error {
    let message = status.message().to_owned();
    Error::Failed(Failure { reason, message, status: Some(Box::new(status)) })
}

fn code_name(code: Code) -> &'static str {
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
        Code::Unavailable => UNAVAILABLE,
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

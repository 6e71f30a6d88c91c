//! Reads the errors of the sidecar.

use std::{collections::HashMap, error, iter};

use tonic::{Code, ConnectError, Status};
use tonic_types::{ErrorInfo, StatusExt as _};

use crate::{
    Cause, LockLost,
    error::{Error, Failure, NotAcquired},
    options::Options,
    reason::{
        LOCK_LOST, LOCK_NOT_FOUND, RESOURCE_LOCKED, SHUTTING_DOWN, UNAVAILABLE, WAIT_DEADLINE,
    },
};

/// The details of a status; empty if it has none, such as one that this process made.
fn info(status: &Status) -> ErrorInfo {
    status.get_details_error_info().unwrap_or_else(|| ErrorInfo::new("", "", HashMap::new()))
}

/// Why a lock was not acquired; `address` is that of the sidecar.
pub(crate) fn not_acquired(options: &Options, address: Option<&str>, status: Status) -> Error {
    let mut info = info(&status);
    let reason = match &*info.reason {
        RESOURCE_LOCKED => RESOURCE_LOCKED,
        WAIT_DEADLINE => WAIT_DEADLINE,
        // It comes from this process, where tonic has several codes for a broken connection.
        "" if error::Error::source(&status).is_some() => {
            let (reason, message) = (UNAVAILABLE.to_owned(), unreachable(address, &status));
            return Error::Failed(Failure { reason, message, status: Some(Box::new(status)) });
        }
        "" => return failed(code_name(status.code()).to_owned(), status),
        _ => return failed(info.reason, status),
    };
    let holder = info.metadata.remove("holder").filter(|holder| !holder.is_empty());
    let (resource, wait) = (options.resource.clone(), options.wait);
    Error::NotAcquired(NotAcquired { resource, reason, wait, holder })
}

/// The message for a failed connection.
fn unreachable(address: Option<&str>, status: &Status) -> String {
    let sources = || iter::successors(error::Error::source(status), |error| error.source());
    // The others only say that there is a source.
    let cause = sources().last().map_or_else(String::new, ToString::to_string);
    let at = address.map_or_else(String::new, |address| format!(" at {address}"));
    if !sources().any(<dyn error::Error>::is::<ConnectError>) {
        return format!("the connection to the sidecar{at} broke: {cause}");
    }
    let advice =
        if address.is_some() { ", or set DAPR_GRPC_ENDPOINT or DAPR_GRPC_PORT" } else { "" };
    format!("no sidecar{at}: {cause}; start \"leasehold sidecar\"{advice}")
}

/// Why the stream of a lock broke.
pub(crate) fn cause_of_end(status: &Status) -> Cause {
    let info = info(status);
    match &*info.reason {
        LOCK_LOST => Cause::of_sidecar(named_cause(&info)),
        SHUTTING_DOWN => Cause::ShuttingDown,
        _ => Cause::Disconnected,
    }
}

/// The loss, if that is why an Unlock failed.
pub(crate) fn lost_before_unlock(resource: &str, status: &Status) -> Option<LockLost> {
    let info = info(status);
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

//! Translates a store's refusals into errors.

use std::{error::Error, fmt, path::Path};

use leasehold_lock::{BackendError, LockError, Violation, inspect::GrantView};
use leasehold_proto::locks as pb;
use leasehold_util::error_chain::causes;
use tonic::{Code, ConnectError, Status};
use tonic_types::{ErrorInfo, StatusExt as _};

use super::views;

/// Longest text of another process that is passed on, in characters.
const MESSAGE_CHARS_MAX: usize = 300;

/// The operation that was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    TryLock,
    Lock,
    Renew,
    Unlock,
    Ping,
    /// The calls of `Inspection` that change nothing.
    Inspect,
    /// Ending one grant of others.
    End,
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TryLock => "TryLock",
            Self::Lock => "Lock",
            Self::Renew => "RenewLock",
            Self::Unlock => "Unlock",
            Self::Ping => "Ping",
            Self::Inspect => "Inspection",
            Self::End => "EndLocks",
        })
    }
}

/// Why a call failed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The instance is not, or no longer, initialised. The call had no effect.
    NotInitialized(String),
    /// Any other reason.
    Other(BackendError),
}

impl From<Failure> for BackendError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::NotInitialized(why) => Self::Unavailable(why.into()),
            Failure::Other(error) => error,
        }
    }
}

impl From<BackendError> for Failure {
    fn from(error: BackendError) -> Self {
        Self::Other(error)
    }
}

/// Translates a status by its `ErrorInfo`, or else by its code, if that means that the
/// call had no effect.
pub(crate) fn read(verb: Verb, status: &Status) -> Failure {
    let text = text(verb, status);
    if was_never_connected(status) {
        return BackendError::Unavailable(text.into()).into();
    }
    let info = status.get_details_error_info();
    let reason = info.as_ref().map_or("", |info| info.reason.as_str());
    match reason {
        "RESOURCE_LOCKED" => BackendError::Locked { by: grant(info.as_ref()) }.into(),
        "LOCK_NOT_FOUND" => BackendError::NotHeld { held: is_held(info.as_ref()) }.into(),
        "INVALID_REQUEST" | "INVALID_METADATA" => invalid(status).into(),
        "NOT_INITIALIZED" => Failure::NotInitialized(text),
        "UNSUPPORTED" => unsupported(verb, status).into(),
        "TOO_MANY_WAITERS" => {
            BackendError::TooManyWaiters("the store's limit of waiters is reached").into()
        }
        "TOO_MANY_HOLDERS" => BackendError::TooManyHolders.into(),
        "OVERLOADED" | "STORE_UNAVAILABLE" | "SHUTTING_DOWN" | "WAIT_DEADLINE" => {
            BackendError::Unavailable(text.into()).into()
        }
        "OUTCOME_UNKNOWN" => BackendError::Unknown(text.into()).into(),
        _ => by_code(verb, status, text),
    }
}

fn by_code(verb: Verb, status: &Status, text: String) -> Failure {
    match (status.code(), verb) {
        (Code::Aborted, Verb::TryLock) => BackendError::Locked { by: None }.into(),
        (Code::NotFound, Verb::Renew | Verb::Unlock | Verb::End) => {
            BackendError::NotHeld { held: false }.into()
        }
        (Code::InvalidArgument, _) => invalid(status).into(),
        (Code::Unimplemented, _) => unsupported(verb, status).into(),
        (Code::FailedPrecondition, _) => Failure::NotInitialized(text),
        (Code::ResourceExhausted | Code::PermissionDenied | Code::Unauthenticated, _) => {
            BackendError::Unavailable(text.into()).into()
        }
        // UNAVAILABLE is ambiguous: a connection that broke after the call was sent has
        // the same code.
        _ => BackendError::Unknown(text.into()).into(),
    }
}

/// Translates the status of a refused Init.
pub(crate) fn init_error(socket: &Path, status: &Status) -> LockError {
    let info = status.get_details_error_info();
    let is_invalid = match &info {
        Some(info) => info.reason == "INVALID_METADATA",
        None => status.code() == Code::InvalidArgument,
    };
    if is_invalid {
        let bad = status.get_details_bad_request().map(|bad| bad.field_violations);
        let mut violations: Vec<_> = bad
            .unwrap_or_default()
            .into_iter()
            .map(|bad| Violation::new(short(&bad.field), short(&bad.description)))
            .collect();
        if violations.is_empty() {
            violations.push(Violation::new("spec.metadata", short(status.message())));
        }
        return LockError::InvalidMetadata(violations);
    }
    let why = if was_never_connected(status) {
        "nothing listens there; start the pluggable component".to_owned()
    } else if status.code() == Code::Unimplemented {
        "the server there is not a lock store (LockStore.Init is unimplemented)".to_owned()
    } else {
        short(status.message())
    };
    LockError::StoreUnavailable(format!("{}: {why}", socket.display()).into())
}

fn invalid(status: &Status) -> BackendError {
    let bad = status.get_details_bad_request();
    let first = bad.and_then(|bad| bad.field_violations.into_iter().next());
    BackendError::Invalid(match first {
        Some(bad) => Violation::new(short(&bad.field), short(&bad.description)),
        None => Violation::new("request", format!("is refused: {}", short(status.message()))),
    })
}

fn unsupported(verb: Verb, status: &Status) -> BackendError {
    let what = match verb {
        Verb::TryLock => "this store cannot try to lock",
        Verb::Lock => "this store cannot wait for a lock; ask for it at once",
        Verb::Renew => "this store cannot renew",
        Verb::Unlock => "this store cannot unlock in this way",
        Verb::Ping => "this store has no Ping",
        Verb::Inspect => "this store cannot be inspected in this way",
        Verb::End => "this store cannot end a grant of others",
    };
    BackendError::Unsupported(match status.message() {
        "" => what.into(),
        // Only the store knows why.
        message => format!("{what}; it answers: {}", short(message)).into(),
    })
}

/// The grant that a refusal shows, if any.
fn grant(info: Option<&ErrorInfo>) -> Option<GrantView> {
    let metadata = &info?.metadata;
    let text = |key: &str| metadata.get(key).cloned().unwrap_or_default();
    let mode = match text("mode").as_str() {
        "shared" => pb::LockMode::Shared,
        _ => pb::LockMode::Exclusive,
    };
    let grant = views::grant(&pb::GrantInfo {
        grant_id: text("grantID"),
        holder: text("holder"),
        mode: mode.into(),
        since: text("since").parse().ok(),
        ..pb::GrantInfo::default()
    });
    (grant.id.is_some() || grant.holder.is_some()).then_some(grant)
}

fn is_held(info: Option<&ErrorInfo>) -> bool {
    info.and_then(|info| info.metadata.get("held")).is_some_and(|held| held == "true")
}

fn text(verb: Verb, status: &Status) -> String {
    let message = short(status.message());
    match status.get_details_error_info() {
        // The message says what the reason means.
        Some(_) => format!("{verb}: {message}"),
        None => format!("{verb}: {}: {message}", status.code()),
    }
}

fn short(text: &str) -> String {
    text.chars().take(MESSAGE_CHARS_MAX).collect()
}

/// Whether a call was never sent, because no connection could be made.
fn was_never_connected(status: &Status) -> bool {
    causes(status).any(<dyn Error>::is::<ConnectError>)
}

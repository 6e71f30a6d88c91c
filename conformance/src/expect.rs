//! What an answer has to be.

use std::{collections::HashMap, fmt::Debug, time::Duration};

use anyhow::{bail, ensure};
use tokio::time::Instant;
use tonic::{Code, Status};
use tonic_types::{ErrorInfo, StatusExt as _};

use crate::store::Answer;

/// The domain of every ErrorInfo of the protocol.
const DOMAIN: &str = "dapr.io";

/// The reasons of the protocol's error table that a case can provoke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    ResourceLocked,
    LockNotFound,
    InvalidRequest,
    InvalidMetadata,
    NotInitialized,
    Unsupported,
    WaitDeadline,
    OutcomeUnknown,
}

impl Reason {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::ResourceLocked => "RESOURCE_LOCKED",
            Self::LockNotFound => "LOCK_NOT_FOUND",
            Self::InvalidRequest => "INVALID_REQUEST",
            Self::InvalidMetadata => "INVALID_METADATA",
            Self::NotInitialized => "NOT_INITIALIZED",
            Self::Unsupported => "UNSUPPORTED",
            Self::WaitDeadline => "WAIT_DEADLINE",
            Self::OutcomeUnknown => "OUTCOME_UNKNOWN",
        }
    }

    pub(crate) fn code(self) -> Code {
        match self {
            Self::ResourceLocked => Code::Aborted,
            Self::LockNotFound => Code::NotFound,
            Self::InvalidRequest | Self::InvalidMetadata => Code::InvalidArgument,
            Self::NotInitialized => Code::FailedPrecondition,
            Self::Unsupported => Code::Unimplemented,
            Self::WaitDeadline => Code::DeadlineExceeded,
            Self::OutcomeUnknown => Code::Unknown,
        }
    }
}

/// A refusal with the right code, reason and domain.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) message: String,
    /// The ErrorInfo's metadata.
    pub(crate) metadata: HashMap<String, String>,
    /// The fields that the BadRequest names.
    pub(crate) fields: Vec<String>,
}

impl Refusal {
    /// The metadata `held` of a LOCK_NOT_FOUND.
    pub(crate) fn held(&self) -> anyhow::Result<bool> {
        match self.metadata.get("held").map(String::as_str) {
            Some("true") => Ok(true),
            Some("false") => Ok(false),
            other => bail!(
                "the ErrorInfo's metadata `held` must be `true` or `false`, it is {other:?}"
            ),
        }
    }

    /// Fails if the secret shows anywhere in the refusal.
    pub(crate) fn keeps_secret(&self, secret: &str) -> anyhow::Result<()> {
        let told = |text: &str| text.contains(secret);
        ensure!(!told(&self.message), "the message tells {secret:?}: {:?}", self.message);
        for (key, value) in &self.metadata {
            ensure!(!told(value), "the metadata `{key}` tells {secret:?}: {value:?}");
        }
        Ok(())
    }
}

/// Turns answers into facts.
pub(crate) trait Expect<T> {
    /// The answer, which must be OK.
    fn or_fail(self, what: &str) -> anyhow::Result<T>;

    /// The refusal, which must be this one.
    fn refused(self, reason: Reason) -> anyhow::Result<Refusal>;
}

impl<T: Debug> Expect<T> for Answer<T> {
    fn or_fail(self, what: &str) -> anyhow::Result<T> {
        self.map_err(|status| anyhow::anyhow!("{what}: {}", told(&status)))
    }

    fn refused(self, reason: Reason) -> anyhow::Result<Refusal> {
        let status = match self {
            Ok(answer) => bail!("expected {}, it was accepted: {answer:?}", reason.name()),
            Err(status) => status,
        };
        let info = error_info(&status);
        let is_it = status.code() == reason.code() && info.reason == reason.name();
        ensure!(
            is_it && info.domain == DOMAIN,
            "expected the code {:?} with an ErrorInfo of reason {} and domain {DOMAIN}, got {}",
            reason.code(),
            reason.name(),
            told(&status),
        );
        let violations = status
            .get_details_bad_request()
            .map(|bad| bad.field_violations)
            .unwrap_or_default();
        Ok(Refusal {
            message: status.message().to_owned(),
            metadata: info.metadata,
            fields: violations.into_iter().map(|violation| violation.field).collect(),
        })
    }
}

/// The ErrorInfo; an empty one if the status has none.
fn error_info(status: &Status) -> ErrorInfo {
    status.get_details_error_info().unwrap_or_else(|| ErrorInfo::new("", "", HashMap::new()))
}

fn told(status: &Status) -> String {
    let info = error_info(status);
    format!(
        "code {:?}, reason {:?}, domain {:?}, metadata {:?}, message {:?}",
        status.code(),
        info.reason,
        info.domain,
        info.metadata,
        status.message()
    )
}

/// Fails if `moment` is before `bound`.
pub(crate) fn not_before(moment: Instant, bound: Instant, what: &str) -> anyhow::Result<()> {
    let early = bound.saturating_duration_since(moment);
    ensure!(early.is_zero(), "{what}: {early:?} too early");
    Ok(())
}

/// Fails if the TTL granted is shorter than the one asked for.
pub(crate) fn not_shorter(granted: Duration, asked: Duration) -> anyhow::Result<()> {
    ensure!(granted >= asked, "asked for {asked:?}, granted only {granted:?}");
    Ok(())
}

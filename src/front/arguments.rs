//! Reads the arguments of commands and scripts.

use std::time::Duration;

use bytes::Bytes;
use leasehold_lock::{LockId, ResourceId, Violation};

use super::verb::Pair;

/// Why a command is refused. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("wrong number of arguments for '{0}' command")]
    WrongCount(&'static str),
    #[error("value is not an integer or out of range")]
    NoInteger,
    #[error("invalid expire time in '{0}' command")]
    BadExpiry(&'static str),
    #[error("leasehold: INVALID_REQUEST: {0}")]
    Invalid(Violation),
    #[error("leasehold serves locks only: {0}")]
    NotServed(String),
}

impl Refusal {
    pub(super) fn not_served(what: impl Into<String>) -> Self {
        Self::NotServed(what.into())
    }
}

/// The resource that a key names; the violation names `key`.
pub(super) fn key(argument: &Bytes) -> Result<ResourceId, Refusal> {
    let id = text("key", argument)?;
    ResourceId::new(id).map_err(|violation| renamed("key", violation))
}

/// A key, and the value of its holder; the violation names one of them.
pub(super) fn pair(key_argument: &Bytes, value: &Bytes) -> Result<Pair, Refusal> {
    let key = key(key_argument)?;
    if value.is_empty() {
        let problem = "is empty; use a random one, which no other holder has";
        return Err(Refusal::Invalid(Violation::new("value", problem)));
    }
    let value = LockId::new(text("value", value)?);
    Ok(Pair { key, value: value.map_err(|violation| renamed("value", violation))? })
}

/// Like [`pair`], for a value that is only compared; `Err` has the key alone if the value
/// cannot be a lock ID. redsync compares with an empty value if a lock was never taken.
pub(super) fn compared(
    key_argument: &Bytes,
    value: &Bytes,
) -> Result<Result<Pair, ResourceId>, Refusal> {
    let key = key(key_argument)?;
    let value = str::from_utf8(value).ok().and_then(|value| LockId::new(value).ok());
    Ok(match value {
        Some(value) => Ok(Pair { key, value }),
        None => Err(key),
    })
}

/// A positive number of milliseconds, or of seconds.
pub(super) fn expiry(
    command: &'static str,
    argument: &Bytes,
    unit: Unit,
) -> Result<Duration, Refusal> {
    match integer(argument)? {
        ..=0 => Err(Refusal::BadExpiry(command)),
        number => Ok(unit.times(number.unsigned_abs())),
    }
}

/// The unit of an expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Milliseconds,
    Seconds,
}

impl Unit {
    fn times(self, number: u64) -> Duration {
        match self {
            Self::Milliseconds => Duration::from_millis(number),
            Self::Seconds => Duration::from_secs(number),
        }
    }
}

/// An integer as Redis reads it: with a sign, but without spaces.
pub(super) fn integer(argument: &Bytes) -> Result<i64, Refusal> {
    let digits = str::from_utf8(argument).ok().filter(|text| !text.starts_with('+'));
    digits.and_then(|digits| digits.parse().ok()).ok_or(Refusal::NoInteger)
}

fn text<'a>(field: &'static str, argument: &'a Bytes) -> Result<&'a str, Refusal> {
    str::from_utf8(argument).map_err(|_| {
        Refusal::Invalid(Violation::new(field, "is not UTF-8, which leasehold's names are"))
    })
}

fn renamed(field: &'static str, violation: Violation) -> Refusal {
    Refusal::Invalid(Violation { field: field.into(), ..violation })
}

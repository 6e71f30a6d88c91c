//! The results of functions.

use ::redis::{Value, from_redis_value};
use leasehold_lock::{
    BackendError, FencingToken, GrantId, Holder, LockId, Mode, inspect::GrantView,
};

use super::library::{LOOK_NOW, LOOK_SOON};

/// The result of a function.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// The attempt was granted. The resource may have been handed over to others too.
    Made { token: FencingToken, lock_id: Option<LockId>, handed: i64 },
    /// A live grant of the same request was found.
    Found { token: FencingToken, lock_id: LockId, handed: i64, id: GrantId },
    /// Somebody else holds the resource, or it was handed over to somebody. In the second case
    /// the caller must look whether they confirm.
    Held { by: Option<GrantView>, look: Option<Look> },
    /// The request is repeated with another value of this field.
    Differs { field: &'static str },
    /// A live shared grant has the attempt's lock ID.
    Taken,
    /// The resource has as many shared grants as it may have.
    Many,
    /// The attempt waits. Says how long the current grant lasts, if that is known, and whether it
    /// had its place already.
    Queued { left_ms: i64, was_queued: bool },
    /// The resource's queue is full.
    Full,
    /// The hand-over does not exist any more, or the attempt that the server has no memory for
    /// has nothing.
    Gone,
    /// Done. After a release: 0 if nobody was called, 1 if the resource was handed over, 2 if
    /// there are more dead waiters to drop.
    Done { handed: i64 },
    /// A release ended the grant, and a waiter of this process has the next.
    Passed { attempt: String, token: FencingToken },
    /// The TTL has started again. `None` for a lock that was made without leasehold.
    Renewed { id: Option<GrantId> },
    /// A part of the shared grants was ended, and the release must be sent again.
    More { handed: i64 },
    /// Nothing was ended. The lock ID belongs to this target.
    Other { target: String },
    /// The lock ID or attempt does not hold the resource.
    Not { held: bool },
}

/// When a refused try must look at the resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// At once: it has handed the resource over.
    Now,
    /// Soon: a waiter keeps shared grants out, and may be of a process that stands still.
    Soon,
}

impl Reply {
    /// The effect on waiters: see [`Done`](Self::Done).
    pub(super) fn handed(&self) -> i64 {
        match *self {
            Self::Made { handed, .. }
            | Self::Found { handed, .. }
            | Self::Done { handed }
            | Self::More { handed } => handed,
            _ => 0,
        }
    }

    /// Whether this answer asks for the same call with all keys.
    pub(super) fn asks_for_more_keys(value: &Value) -> bool {
        let Value::Array(parts) = value else { return false };
        matches!(parts.first(), Some(Value::BulkString(code)) if code == b"wider")
    }

    /// Reads the value that a function returned.
    pub(crate) fn read(value: Value) -> Result<Self, BackendError> {
        Self::parse(value).ok_or_else(|| {
            BackendError::Unknown("the server's answer was not one of the function's".into())
        })
    }

    fn parse(value: Value) -> Option<Self> {
        let parts = match value {
            Value::BulkString(token) => {
                return Some(Self::Made {
                    token: read_token(&token)?,
                    lock_id: None,
                    handed: 0,
                });
            }
            Value::Int(handed) => return Some(Self::Done { handed }),
            Value::Array(parts) => parts,
            _ => return None,
        };
        let mut parts = parts.into_iter();
        let code: String = from_redis_value(parts.next()?).ok()?;
        let second = parts.next();
        let number = |value: Option<Value>| match value {
            Some(Value::Int(number)) => Some(number),
            _ => None,
        };
        Some(match code.as_str() {
            "made" | "found" => {
                let Some(Value::BulkString(token)) = second else { return None };
                let token = read_token(&token)?;
                let lock_id: String = from_redis_value(parts.next()?).ok()?;
                let lock_id = LockId::new(&lock_id).ok()?;
                let handed = number(parts.next()).unwrap_or(0);
                if code == "made" {
                    Self::Made { token, lock_id: Some(lock_id), handed }
                } else {
                    let id: String = from_redis_value(parts.next()?).ok()?;
                    Self::Found { token, lock_id, handed, id: id.parse().ok()? }
                }
            }
            "held" => Self::Held {
                look: match number(second) {
                    Some(look) if look == i64::from(LOOK_NOW) => Some(Look::Now),
                    Some(look) if look == i64::from(LOOK_SOON) => Some(Look::Soon),
                    _ => None,
                },
                by: read_held(parts),
            },
            "differs" => {
                let field: String = from_redis_value(second?).ok()?;
                let field = ["lock_id", "mode"].into_iter().find(|known| *known == field)?;
                Self::Differs { field }
            }
            "taken" => Self::Taken,
            "many" => Self::Many,
            "queued" => Self::Queued {
                left_ms: number(second)?,
                was_queued: number(parts.next())? == 1,
            },
            "full" => Self::Full,
            "gone" => Self::Gone,
            "passed" => {
                let Some(Value::BulkString(token)) = parts.next() else { return None };
                Self::Passed {
                    attempt: from_redis_value(second?).ok()?,
                    token: read_token(&token)?,
                }
            }
            "renewed" => {
                let id: Option<String> = second.map(from_redis_value).transpose().ok()?;
                Self::Renewed { id: id.map(|id| id.parse()).transpose().ok()? }
            }
            "more" => Self::More { handed: number(second)? },
            "other" => Self::Other { target: from_redis_value(second?).ok()? },
            "not" => Self::Not { held: number(second)? == 1 },
            _ => return None,
        })
    }
}

/// Reads the grant in the way of a refused try. Other clients may have written anything; the
/// resource is held in any case.
fn read_held(mut parts: impl Iterator<Item = Value>) -> Option<GrantView> {
    let mut next = || parts.next().map(|part| from_redis_value(part).unwrap_or_default());
    let holder: String = next()?;
    let [id, mode, token] = [next(), next(), next()].map(Option::unwrap_or_default);
    let view = grant_view(&id, &mode, &holder, &token);
    // A hand-over, which has no token yet, is nobody's grant.
    Some(GrantView { id: view.id.filter(|_| view.since_unix_ms.is_some()), ..view })
}

/// A grant in a reply of a function.
pub(super) fn grant_view(id: &str, mode: &str, holder: &str, token: &str) -> GrantView {
    GrantView {
        id: id.parse().ok(),
        holder: read_holder(holder),
        mode: read_mode(mode),
        remaining: None,
        since_unix_ms: read_since(token),
        foreign: false,
    }
}

/// The label, if it is valid.
pub(super) fn read_holder(label: &str) -> Option<Holder> {
    Holder::new(label).ok().flatten()
}

/// The mode with this letter.
pub(super) fn read_mode(mode: &str) -> Mode {
    if mode == "s" { Mode::Shared } else { Mode::Exclusive }
}

/// The time of a token, which is the server's clock in microseconds.
pub(super) fn read_since(token: &str) -> Option<u64> {
    token.parse::<u64>().ok().map(|us| us / 1000)
}

fn read_token(digits: &[u8]) -> Option<FencingToken> {
    FencingToken::new(std::str::from_utf8(digits).ok()?.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn a_bare_number_is_a_new_grant() {
        let token = FencingToken::new(7).unwrap();
        assert_eq!(Reply::read(text("7")), Ok(Reply::Made { token, lock_id: None, handed: 0 }));
    }

    #[test]
    fn an_unexpected_reply_is_an_unknown_outcome() {
        for odd in [
            Value::Nil,
            text("x"),
            text("9007199254740992"),
            Value::Array(vec![]),
            Value::Array(vec![text("made")]),
            Value::Array(vec![text("found"), text("7"), text("lock ID"), Value::Int(0)]),
            Value::Array(vec![text("differs"), text("colour")]),
            Value::Array(vec![text("queued"), text("soon")]),
            Value::Array(vec![text("queued"), Value::Int(1)]),
            Value::Array(vec![text("?")]),
        ] {
            assert!(matches!(Reply::read(odd), Err(BackendError::Unknown(_))));
        }
    }
}

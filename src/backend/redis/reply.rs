//! The results of scripts.

use ::redis::{Value, from_redis_value};

use crate::lock::{BackendError, FencingToken, Holder, LockId};

/// The result of a script.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// The attempt was granted.
    Made { token: FencingToken, lock_id: Option<LockId> },
    /// A live grant of the same request was found.
    Found { token: FencingToken, lock_id: Option<LockId> },
    /// Somebody else holds the resource, or it was handed over to somebody. In the second case
    /// the caller must look whether they confirm.
    Held { holder: Option<Holder>, must_look: bool },
    /// The live grant of the same request has another lock ID.
    Differs,
    /// The attempt waits. Says how long the current grant lasts, if that is known.
    Queued { left_ms: i64 },
    /// The resource's queue is full.
    Full,
    /// The hand-over does not exist any more.
    Gone,
    /// Done. After a release: 0 if nobody waits, 1 if the resource was handed over, 2 if
    /// there are more dead waiters to drop.
    Done { handed: i64 },
    /// The lock ID or attempt does not hold the resource.
    Not { held: bool },
}

impl Reply {
    /// Reads the value that a script returned.
    pub(crate) fn read(value: Value) -> Result<Self, BackendError> {
        Self::parse(value).ok_or_else(|| {
            BackendError::Unknown("the server's answer was not one of the script's".into())
        })
    }

    fn parse(value: Value) -> Option<Self> {
        let parts = match value {
            Value::BulkString(token) => {
                return Some(Self::Made { token: read_token(&token)?, lock_id: None });
            }
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
                let lock_id = Some(LockId::new(&lock_id).ok()?);
                if code == "made" {
                    Self::Made { token, lock_id }
                } else {
                    Self::Found { token, lock_id }
                }
            }
            "held" => {
                // Other clients may have written anything; the resource is held in any case.
                let holder: Option<String> = from_redis_value(second?).ok();
                Self::Held {
                    holder: holder.and_then(|label| Holder::new(&label).ok()?),
                    must_look: number(parts.next()) == Some(1),
                }
            }
            "differs" => Self::Differs,
            "queued" => Self::Queued { left_ms: number(second)? },
            "full" => Self::Full,
            "gone" => Self::Gone,
            "ok" => Self::Done { handed: number(second).unwrap_or(0) },
            "not" => Self::Not { held: number(second)? == 1 },
            _ => return None,
        })
    }
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
        assert_eq!(Reply::read(text("7")), Ok(Reply::Made { token, lock_id: None }));
    }

    #[test]
    fn an_unexpected_reply_is_an_unknown_outcome() {
        for odd in [
            Value::Nil,
            Value::Int(1),
            text("x"),
            text("9007199254740992"),
            Value::Array(vec![]),
            Value::Array(vec![text("made")]),
            Value::Array(vec![text("queued"), text("soon")]),
            Value::Array(vec![text("?")]),
        ] {
            assert!(matches!(Reply::read(odd), Err(BackendError::Unknown(_))));
        }
    }
}

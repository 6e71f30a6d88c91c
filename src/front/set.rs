//! `SET`, with the options that locks need.

use bytes::Bytes;

use super::{
    arguments::{Refusal, Unit, expiry, pair},
    reply::Reply,
    verb::{Call, Replies, Verb},
};

/// When `SET` sets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    /// The key has no value.
    Free,
    /// The key has a value, which must be the given one.
    Held,
}

/// Reads `SET key value NX|XX|IFEQ value EX seconds|PX milliseconds`, in any order of its
/// options. `IFEQ` is of Redis 8.4; Spring Integration renews with it.
pub(super) fn read(arguments: &[Bytes]) -> Result<Call, Refusal> {
    let [key, value, options @ ..] = arguments else { return Err(Refusal::WrongCount("set")) };
    let (mut when, mut ttl) = (None, None);
    let mut options = options.iter();
    while let Some(option) = options.next() {
        match option.to_ascii_uppercase().as_slice() {
            b"NX" if when.is_none() => when = Some(When::Free),
            b"XX" if when.is_none() => when = Some(When::Held),
            b"IFEQ" if when.is_none() => {
                if options.next().ok_or(Refusal::WrongCount("set"))? != value {
                    return Err(Refusal::not_served(
                        "SET with IFEQ of another value would change the value of a lock",
                    ));
                }
                when = Some(When::Held);
            }
            unit @ (b"EX" | b"PX") if ttl.is_none() => {
                let unit = if unit == b"EX" { Unit::Seconds } else { Unit::Milliseconds };
                let number = options.next().ok_or(Refusal::WrongCount("set"))?;
                ttl = Some(expiry("set", number, unit)?);
            }
            other => {
                let other = String::from_utf8_lossy(other);
                let other: String = other.escape_debug().take(64).collect();
                return Err(Refusal::not_served(format!(
                    "SET with {other} is not one of SET key value NX EX|PX n and SET key value \
                     XX EX|PX n"
                )));
            }
        }
    }
    let Some(when) = when else {
        return Err(Refusal::not_served(
            "SET without NX would take a lock from its holder; add NX to lock, or XX to renew \
             your own lock",
        ));
    };
    let Some(ttl) = ttl else {
        return Err(Refusal::not_served(
            "a lock needs an expiry; add EX seconds or PX milliseconds",
        ));
    };
    let pair = pair(key, value)?;
    let verb = match when {
        When::Free => Verb::Acquire(pair, ttl),
        When::Held => Verb::Renew(pair, ttl),
    };
    Ok(Call { verb, replies: Replies::or_null(Reply::OK) })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn set(words: &str) -> Result<Verb, Refusal> {
        let words: Vec<_> =
            words.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect();
        read(&words).map(|call| call.verb)
    }

    #[test]
    fn nx_takes_a_lock_and_xx_or_its_own_value_renews_it() {
        let second = Duration::from_secs(1);
        for words in ["k v NX EX 1", "k v ex 1 nx", "k v PX 1000 NX"] {
            assert!(
                matches!(set(words), Ok(Verb::Acquire(_, ttl)) if ttl == second),
                "{words}"
            );
        }
        for words in ["k v XX PX 1000", "k v EX 1 IFEQ v"] {
            assert!(matches!(set(words), Ok(Verb::Renew(_, ttl)) if ttl == second), "{words}");
        }
    }

    #[test]
    fn a_lock_without_an_expiry_is_refused() {
        for words in ["k v NX", "k v XX"] {
            assert!(set(words).unwrap_err().to_string().contains("needs an expiry"), "{words}");
        }
    }

    #[test]
    fn an_expiry_is_a_positive_integer() {
        for words in ["k v NX EX 0", "k v NX PX -1"] {
            assert_eq!(set(words), Err(Refusal::BadExpiry("set")), "{words}");
        }
        for words in ["k v NX EX 1.5", "k v NX EX +1", "k v NX EX 99999999999999999999"] {
            assert_eq!(set(words), Err(Refusal::NoInteger), "{words}");
        }
    }

    #[test]
    fn what_is_no_lock_is_refused() {
        for words in [
            "k v",
            "k v EX 1",
            "k v NX XX EX 1",
            "k v NX EX 1 PX 1",
            "k v NX GET EX 1",
            "k v NX KEEPTTL",
            "k v IFEQ w PX 1",
            "k v NX PXAT 1",
        ] {
            let message = set(words).unwrap_err().to_string();
            assert!(message.starts_with("leasehold serves locks only: "), "{words}: {message}");
        }
        assert_eq!(set("k"), Err(Refusal::WrongCount("set")));
        assert_eq!(set("k v NX EX"), Err(Refusal::WrongCount("set")));
    }

    #[test]
    fn the_field_that_is_wrong_is_named() {
        assert!(set(" v NX EX 1").unwrap_err().to_string().contains("key is empty"));
        assert!(set("k  NX EX 1").unwrap_err().to_string().contains("value is empty"));
        let long = format!("k {} NX EX 1", "v".repeat(257));
        assert!(set(&long).unwrap_err().to_string().contains("value has 257 bytes"));
    }
}

//! The format of grants and of places in a queue.
//!
//! A place in a queue is the process and the rest below. The record of a grant is its token,
//! a colon, and the same rest. A hand-over that is not confirmed yet is the value
//! of the resource's key: the byte 0x01, the process, a colon, and the rest. Scripts can
//! copy the rest without parsing it. While the resource is shared, the hand-overs are the
//! members of a sorted set, and the value of the key is the byte 0x01, an `s` and random
//! hexadecimal digits.
//!
//! ```text
//! process = 32 hexadecimal digits
//! rest = ttl_ms ':' attempt, claimed ':' mode ':' given ':' bytes of lock ID ':'
//!        bytes of request ID ':' lock ID, request ID, holder
//! claimed = nothing, or in the record of a grant that a replay has found '!' attempt
//! ```
//!
//! The attempt is the public ID of the grant, too.

use leasehold_lock::{Attempt, BackendError, LockId, Mode, ResourceId, Violation};

/// How many token counters there are. It does not depend on the number of resources.
pub(crate) const COUNTERS: u32 = 1024;

/// The record of a grant of this attempt, without its token.
pub(crate) fn rest(attempt: &Attempt) -> String {
    let lock_id = attempt.lock_id.as_str();
    let request_id = request_id(attempt);
    let holder = attempt.holder.as_ref().map_or("", |holder| holder.as_str());
    format!(
        "{}:{}:{}:{}:{}:{}:{lock_id}{request_id}{holder}",
        attempt.ttl.as_ms(),
        attempt.id,
        mode(attempt),
        u8::from(attempt.lock_id_given),
        lock_id.len(),
        request_id.len(),
    )
}

/// A rest that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rest<'a> {
    /// The attempt, without the mark of a replay.
    pub(super) attempt: &'a str,
    pub(super) mode: &'a str,
    pub(super) lock_id: &'a str,
    /// Empty if absent.
    pub(super) request_id: &'a str,
    /// Empty if absent.
    pub(super) holder: &'a str,
}

impl<'a> Rest<'a> {
    /// As strict as `read_rest` in `scripts/grant.lua`: both agree on what is foreign.
    fn read(rest: &'a str) -> Option<Self> {
        let mut parts = rest.splitn(7, ':');
        let (ttl, attempt, mode) = (parts.next()?, parts.next()?, parts.next()?);
        let (attempt, by) = attempt.split_once('!').unwrap_or((attempt, "0"));
        let (given, locks, requests) = (parts.next()?, parts.next()?, parts.next()?);
        let are_numbers = [ttl, given, locks, requests].into_iter().all(is_number);
        let is_letter =
            |text: &str| text.len() == 1 && text.bytes().all(|c| c.is_ascii_alphabetic());
        if !are_numbers
            || given.len() != 1
            || !is_hex(attempt)
            || !is_hex(by)
            || !is_letter(mode)
        {
            return None;
        }
        let (lock_id, text) = parts.next()?.split_at_checked(locks.parse().ok()?)?;
        let (request_id, holder) = text.split_at_checked(requests.parse().ok()?)?;
        Some(Self { attempt, mode, lock_id, request_id, holder })
    }

    /// Reads the record of a grant, with its token before the rest.
    pub(super) fn of_record(record: &'a str) -> Option<(&'a str, Self)> {
        let (token, rest) = record.split_once(':')?;
        let rest = Self::read(rest)?;
        is_number(token).then_some((token, rest))
    }

    /// Reads the value that a resource's key has while its grant is handed over.
    pub(super) fn of_hand_over(value: &'a str) -> Option<Self> {
        let (process, rest) = value.strip_prefix('\x01')?.split_once(':')?;
        Self::read(rest).filter(|_| is_hex(process))
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit())
}

fn is_hex(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_hexdigit())
}

/// The attempt's place in a queue.
pub(super) fn place(process: &str, attempt: &Attempt) -> String {
    format!("{process}{}", rest(attempt))
}

/// The mode's letter in a record and in the arguments of scripts.
pub(super) fn mode(attempt: &Attempt) -> &'static str {
    match attempt.mode {
        Mode::Exclusive => "x",
        Mode::Shared => "s",
    }
}

/// Refuses a lock ID that could equal another value of a resource's key: a hand-over or
/// the mark of shared grants.
pub(super) fn check_lock_id(lock_id: &LockId) -> Result<(), BackendError> {
    if lock_id.as_str().starts_with('\x01') {
        return Err(BackendError::Invalid(Violation::new(
            "lock_id",
            "begins with the control character 0x01, which this store keeps for itself",
        )));
    }
    Ok(())
}

/// The prefix of the request ID in the record of a grant whose lock ID is published.
pub(super) const PUBLISHED: &str = "redis-front:";

/// The request ID as it is stored, empty if absent.
pub(crate) fn request_id(attempt: &Attempt) -> String {
    let given = attempt.request_id.as_ref().map(|id| id.as_str());
    match (attempt.published, given) {
        (false, given) => given.unwrap_or_default().to_owned(),
        (true, Some(given)) => format!("{PUBLISHED}{given}"),
        (true, None) => format!("{PUBLISHED}{}", attempt.id),
    }
}

/// The key of the counter for the tokens of this resource.
pub(super) fn counter_key(resource: &ResourceId) -> String {
    format!("\x01c{}", counter(resource))
}

/// The number of the counter for the tokens of this resource, by FNV-1a: the same in every
/// process and version.
pub(crate) fn counter(resource: &ResourceId) -> u32 {
    fnv(resource.as_str()) % COUNTERS
}

fn fnv(text: &str) -> u32 {
    text.bytes()
        .fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use leasehold_lock::{AttemptId, Holder, LockId, RequestId, Ttl};
    use proptest::prelude::*;

    use super::*;
    use std::time::Duration;

    fn attempt(lock: &str, request: &str, holder: &str) -> Attempt {
        Attempt {
            id: AttemptId::random(),
            resource: ResourceId::new("r").unwrap(),
            lock_id: LockId::new(lock).unwrap(),
            lock_id_given: true,
            request_id: RequestId::new(request).unwrap(),
            published: false,
            mode: Mode::Exclusive,
            holder: Holder::new(holder).unwrap(),
            ttl: Ttl::new(Duration::from_secs(1), Duration::from_secs(9)).unwrap(),
        }
    }

    /// A request ID in the record finds the grant again.
    #[test]
    fn attempts_that_publish_one_lock_id_have_request_ids_of_their_own() {
        let published = || Attempt { published: true, ..attempt("value", "", "") };
        let (one, other) = (request_id(&published()), request_id(&published()));
        assert!(one.starts_with(PUBLISHED) && one != other, "{one}");
        assert_eq!(request_id(&attempt("value", "q", "")), "q");
    }

    proptest! {
        /// Trap: redis 29
        #[test]
        fn every_record_can_be_read_back(
            lock in "[:a-zé]{1,20}", request in "[:a-zé]{0,20}", holder in "[:a-zé]{0,20}",
        ) {
            let attempt = attempt(&lock, &request, &holder);
            let (written, id) = (rest(&attempt), attempt.id.to_string());
            let expected = Rest {
                attempt: &id,
                mode: "x",
                lock_id: &lock,
                request_id: &request,
                holder: &holder,
            };
            let record = format!("7:{written}");
            prop_assert_eq!(Rest::of_record(&record), Some(("7", expected)));
            let claimed = format!("7:{}", written.replacen(&id, &format!("{id}!c1a"), 1));
            prop_assert_eq!(Rest::of_record(&claimed), Some(("7", expected)));
            let value = format!("\x01{}:{written}", "5e".repeat(16));
            prop_assert_eq!(Rest::of_hand_over(&value), Some(expected));
        }

        /// Trap: redis 28
        #[test]
        fn there_are_1024_counters_at_most(resource in "[a-z|/]{1,64}") {
            prop_assert!(counter(&ResourceId::new(&resource).unwrap()) < COUNTERS);
        }
    }

    #[test]
    fn what_is_no_rest_is_not_read() {
        for odd in [
            "",
            "7",
            "7:1:a:x:1",
            "7:1:a:x:1:9:0:short",
            "7:1:a:x:1:1:0:é",
            "7:1:a:x:1:-1:0:",
            "7:1:a:x:1:+1:0:l",
            "-7:1:a:x:1:1:0:l",
            ":1:a:x:1:1:0:l",
            "7:soon:a:x:1:1:0:l",
            "7:1:nothex:x:1:1:0:l",
            "7:1:a:exclusive:1:1:0:l",
            "7:1:a:x::1:0:l",
        ] {
            assert_eq!(Rest::of_record(odd), None, "{odd}");
        }
        for odd in [
            "5e:1:a:x:1:1:0:l",
            "\x01s:1:a:x:1:1:0:l",
            "\x01:1:a:x:1:1:0:l",
            "\x01s5e",
            "\x015e",
        ] {
            assert_eq!(Rest::of_hand_over(odd), None, "{odd}");
        }
    }

    #[test]
    fn a_resource_has_the_same_counter_in_every_version() {
        assert_eq!(fnv("foobar"), 0xbf9c_f968, "the published vector of FNV-1a");
        let key = counter_key(&ResourceId::new("foobar").unwrap());
        assert_eq!(key, "\x01c360");
    }
}

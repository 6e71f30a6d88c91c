//! The format of grants and of places in a queue: see `library/format.lua`.
//!
//! A hand-over that is not confirmed yet is the value of the resource's key: the byte 0x01
//! and the place. While the resource is shared, the hand-overs are the members of a sorted
//! set, and the value of the key is the byte 0x01, an `s` and random hexadecimal digits.

use leasehold_lock::{Attempt, BackendError, LockId, Mode, Violation};

use super::library::VERSION;

/// The terms of this attempt.
pub(crate) fn terms(attempt: &Attempt) -> String {
    let lock_id = attempt.lock_id.as_str();
    let request_id = request_id(attempt);
    let holder = attempt.holder.as_ref().map_or("", |holder| holder.as_str());
    format!(
        "{}:{VERSION}:{}:{}{}:{}:{}:{lock_id}{request_id}{holder}",
        mode(attempt),
        attempt.ttl.as_ms(),
        u8::from(attempt.lock_id_given),
        u8::from(attempt.published),
        lock_id.len(),
        request_id.len(),
    )
}

/// What the record of a new grant of this attempt has behind its token.
pub(super) fn rest(attempt: &Attempt) -> String {
    let id = attempt.id;
    format!("{id}:{id}:{}", terms(attempt))
}

/// The record of a grant that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub(super) token: &'a str,
    /// The attempt that made the grant.
    pub(super) id: &'a str,
    pub(super) terms: Terms<'a>,
}

/// Terms that were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms<'a> {
    pub(super) mode: &'a str,
    pub(super) is_published: bool,
    pub(super) lock_id: &'a str,
    /// Empty if absent.
    pub(super) request_id: &'a str,
    /// Empty if absent.
    pub(super) holder: &'a str,
}

impl<'a> Terms<'a> {
    /// As strict as `format.terms`: both agree on what is foreign.
    fn read(terms: &'a str) -> Option<Self> {
        let mut parts = terms.splitn(7, ':');
        let (mode, version, ttl) = (parts.next()?, parts.next()?, parts.next()?);
        let (flags, locks, requests) = (parts.next()?, parts.next()?, parts.next()?);
        let is_letter = mode.len() == 1 && mode.bytes().all(|c| c.is_ascii_alphabetic());
        let are_numbers = [ttl, flags, locks, requests].into_iter().all(is_number);
        if !is_letter || !are_numbers || flags.len() != 2 || version != VERSION.to_string() {
            return None;
        }
        let (lock_id, text) = parts.next()?.split_at_checked(locks.parse().ok()?)?;
        let (request_id, holder) = text.split_at_checked(requests.parse().ok()?)?;
        Some(Self { mode, is_published: flags.ends_with('1'), lock_id, request_id, holder })
    }

    /// Reads the value that a resource's key has while its grant is handed over.
    pub(super) fn of_hand_over(value: &'a str) -> Option<Self> {
        let mut parts = value.strip_prefix('\x01')?.splitn(3, ':');
        let (process, attempt) = (parts.next()?, parts.next()?);
        if !is_hex(process) || !is_hex(attempt) {
            return None;
        }
        Self::read(parts.next()?)
    }
}

impl<'a> Record<'a> {
    /// Reads the record of a grant. `None` for that of a newer version, too.
    pub(super) fn read(record: &'a str) -> Option<Self> {
        let mut parts = record.splitn(4, ':');
        let (token, id, last) = (parts.next()?, parts.next()?, parts.next()?);
        if !is_number(token) || !is_hex(id) || !is_hex(last) {
            return None;
        }
        Some(Self { token, id, terms: Terms::read(parts.next()?)? })
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
    format!("{process}:{}:{}", attempt.id, terms(attempt))
}

/// The mode's letter in terms.
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

/// The request ID, empty if absent.
pub(crate) fn request_id(attempt: &Attempt) -> &str {
    attempt.request_id.as_ref().map_or("", |id| id.as_str())
}

#[cfg(test)]
mod tests {
    use leasehold_lock::{Holder, LockId, RequestId, ResourceId, Ttl};
    use proptest::prelude::*;

    use super::*;
    use std::time::Duration;

    fn attempt(lock: &str, request: &str, holder: &str) -> Attempt {
        Attempt {
            lock_id: LockId::new(lock).unwrap(),
            lock_id_given: true,
            request_id: RequestId::new(request).unwrap(),
            holder: Holder::new(holder).unwrap(),
            ..Attempt::new(
                ResourceId::new("r").unwrap(),
                Ttl::new(Duration::from_secs(1), Duration::from_secs(9)).unwrap(),
            )
        }
    }

    proptest! {
        /// Trap: redis 29
        #[test]
        fn every_record_can_be_read_back(
            lock in "[:a-zé]{1,20}", request in "[:a-zé]{0,20}", holder in "[:a-zé]{0,20}",
        ) {
            let attempt = attempt(&lock, &request, &holder);
            let (written, id) = (terms(&attempt), attempt.id.to_string());
            let expected = Terms {
                mode: "x",
                is_published: false,
                lock_id: &lock,
                request_id: &request,
                holder: &holder,
            };
            let record = format!("7:{id}:c1a:{written}");
            let read = Record { token: "7", id: &id, terms: expected };
            prop_assert_eq!(Record::read(&record), Some(read));
            let value = format!("\x01{}", place(&"5e".repeat(16), &attempt));
            prop_assert_eq!(Terms::of_hand_over(&value), Some(expected));
        }
    }

    #[test]
    fn what_is_no_record_is_not_read() {
        for odd in [
            "",
            "7",
            "7:a:b:x:1:1:00:1",
            "7:a:b:x:1:1:00:9:0:short",
            "7:a:b:x:1:1:00:1:0:é",
            "7:a:b:x:1:1:00:-1:0:",
            "7:a:b:x:1:1:00:+1:0:l",
            "-7:a:b:x:1:1:00:1:0:l",
            ":a:b:x:1:1:00:1:0:l",
            "7:nothex:b:x:1:1:00:1:0:l",
            "7:a:nothex:x:1:1:00:1:0:l",
            "7:a:b:exclusive:1:1:00:1:0:l",
            "7:a:b:x:1:soon:00:1:0:l",
            "7:a:b:x:1:1::1:0:l",
        ] {
            assert_eq!(Record::read(odd), None, "{odd}");
        }
        for odd in ["5e:a:x:1:1:00:1:0:l", "\x01s:a:x:1:1:00:1:0:l", "\x01s5e", "\x015e"] {
            assert_eq!(Terms::of_hand_over(odd), None, "{odd}");
        }
    }

    #[test]
    fn the_record_of_a_newer_version_is_not_read() {
        assert!(Record::read("7:a:b:x:1:1:00:1:0:l").is_some());
        assert_eq!(Record::read("7:a:b:x:2:1:00:1:0:l"), None);
    }
}

//! The value of a grant's key.

use serde::{Deserialize, Serialize};

use crate::{
    backend::etcd::keys::GrantName,
    lock::{Attempt, AttemptId, Holder, LockId, Mode, RequestId},
};

/// The value of a grant's key, as JSON, so that an operator can read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    lock_id: String,
    attempt: Option<String>,
    request_id: Option<String>,
    holder: Option<String>,
    shared: bool,
    /// The TTL that was asked for when the key's lease was granted.
    pub(super) lease_ttl_s: u64,
}

#[derive(Serialize, Deserialize)]
struct Wire {
    leasehold: u8,
    id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attempt: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    request: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    holder: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    shared: bool,
    ttl: u64,
}

/// The version of the format. A value with another one is not ours.
const VERSION: u8 = 1;

impl Record {
    /// The record of what `attempt` acquires under a lease of `lease_ttl_s`.
    pub(super) fn of(attempt: &Attempt, lease_ttl_s: u64) -> Self {
        Self {
            lock_id: attempt.lock_id.as_str().to_owned(),
            attempt: Some(attempt.id.to_string()),
            request_id: attempt.request_id.as_ref().map(|id| id.as_str().to_owned()),
            holder: attempt.holder.as_ref().map(|holder| holder.as_str().to_owned()),
            shared: attempt.mode == Mode::Shared,
            lease_ttl_s,
        }
    }

    /// Reads a value; `None` if it is not one of ours. The resource then counts as held by
    /// somebody unknown.
    pub(super) fn decode(value: &[u8]) -> Option<Self> {
        let wire: Wire = serde_json::from_slice(value).ok()?;
        (wire.leasehold == VERSION).then_some(Self {
            lock_id: wire.id,
            attempt: wire.attempt,
            request_id: wire.request,
            holder: wire.holder,
            shared: wire.shared,
            lease_ttl_s: wire.ttl,
        })
    }

    /// The value.
    pub(super) fn encode(&self) -> Vec<u8> {
        let wire = Wire {
            leasehold: VERSION,
            id: self.lock_id.clone(),
            attempt: self.attempt.clone(),
            request: self.request_id.clone(),
            holder: self.holder.clone(),
            shared: self.shared,
            ttl: self.lease_ttl_s,
        };
        // Strings and numbers can always be written as JSON.
        serde_json::to_vec(&wire).unwrap_or_default()
    }

    /// Whether this is the grant's lock ID.
    pub(super) fn is(&self, lock_id: &LockId) -> bool {
        self.lock_id == lock_id.as_str()
    }

    /// Whether `attempt` made the grant and no replay has claimed it since.
    pub(super) fn made_by(&self, attempt: AttemptId) -> bool {
        self.attempt.as_deref() == Some(attempt.to_string().as_str())
    }

    /// Whether `attempt` repeats the request that made the grant.
    pub(super) fn answers(&self, attempt: &Attempt) -> bool {
        matches!((&self.request_id, &attempt.request_id), (Some(a), Some(b)) if a == b.as_str())
    }

    /// The field in which a repeated request differs from the first, if any.
    pub(super) fn mismatch(&self, attempt: &Attempt) -> Option<&'static str> {
        if attempt.lock_id_given && !self.is(&attempt.lock_id) {
            Some("lock_id")
        } else if self.shared != (attempt.mode == Mode::Shared) {
            Some("mode")
        } else {
            None
        }
    }

    /// The same grant, claimed by a replay: no attempt may undo it any more.
    pub(super) fn claimed(&self, lease_ttl_s: u64) -> Self {
        Self { attempt: None, lease_ttl_s, ..self.clone() }
    }

    /// The same grant under a lease of another TTL.
    pub(super) fn with_ttl(&self, lease_ttl_s: u64) -> Self {
        Self { lease_ttl_s, ..self.clone() }
    }

    /// The grant's lock ID, if it is a valid one.
    pub(super) fn lock_id(&self) -> Option<LockId> {
        LockId::new(&self.lock_id).ok()
    }

    /// The name of the grant, if its lock ID is a valid one.
    pub(super) fn name(&self) -> Option<GrantName> {
        let lock_id = self.lock_id()?;
        let mode = if self.shared { Mode::Shared } else { Mode::Exclusive };
        let request = self.request_id.as_deref().filter(|_| self.shared);
        let request = request.and_then(|request| RequestId::new(request).ok().flatten());
        Some(GrantName { mode, lock_id, request })
    }

    /// The holder's name, if one was given.
    pub(super) fn holder(&self) -> Option<Holder> {
        self.holder.as_deref().and_then(|holder| Holder::new(holder).ok().flatten())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use super::*;
    use crate::lock::{RequestId, ResourceId, Ttl};

    pub(in super::super) fn attempt(resource: &str) -> Attempt {
        Attempt {
            id: AttemptId::random(),
            resource: ResourceId::new(resource).unwrap(),
            lock_id: LockId::random(),
            lock_id_given: false,
            request_id: None,
            mode: Mode::Exclusive,
            holder: Holder::new("app \"1\"").unwrap(),
            ttl: Ttl::new(Duration::from_secs(30), Duration::from_secs(60)).unwrap(),
        }
    }

    #[test]
    fn a_record_is_read_back_as_written() {
        let mut made = attempt("r");
        made.request_id = RequestId::new("req\u{7f}é").unwrap();
        let record = Record::of(&made, 31);
        assert_eq!(Record::decode(&record.encode()), Some(record.clone()));
        assert!(record.is(&made.lock_id) && record.made_by(made.id) && record.answers(&made));
        assert_eq!(record.holder().unwrap().as_str(), "app \"1\"");
    }

    #[test]
    fn a_claimed_grant_is_no_attempts_any_more() {
        let made = attempt("r");
        let claimed = Record::of(&made, 31).claimed(11);
        assert!(!claimed.made_by(made.id) && claimed.is(&made.lock_id));
        assert_eq!(claimed.lease_ttl_s, 11);
    }

    #[test]
    fn values_that_are_not_ours_are_no_records() {
        for foreign in [
            &b""[..],
            b"hello",
            b"{}",
            b"\xff\xfe",
            b"{\"leasehold\":2,\"id\":\"a\",\"ttl\":3}",
        ] {
            assert_eq!(Record::decode(foreign), None);
        }
    }

    #[test]
    fn a_grant_without_a_request_answers_nobody() {
        let made = attempt("r");
        assert!(!Record::of(&made, 3).answers(&made));
    }
}

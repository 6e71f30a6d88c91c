//! The values of the keys of grants.

use leasehold_lock::{
    Attempt, AttemptId, GrantId, Holder, LockId, Mode, RequestId, inspect::GrantView,
};
use serde::{Deserialize, Serialize};

use crate::keys::GrantName;

/// The value of a grant's key, as JSON, so that an operator can read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    #[serde(rename = "leasehold")]
    version: u8,
    #[serde(rename = "id")]
    lock_id: String,
    /// The attempt that made the grant, whose ID is the grant's public ID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attempt: Option<String>,
    /// The last replay that claimed the grant, so that no attempt may undo it any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    claimed: Option<String>,
    #[serde(default, rename = "request", skip_serializing_if = "Option::is_none")]
    request_id: Option<String>,
    /// Whether inspection returns the lock ID.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    published: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    holder: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    shared: bool,
    /// When the grant was made, in milliseconds since the Unix epoch.
    #[serde(default, rename = "since", skip_serializing_if = "Option::is_none")]
    since_unix_ms: Option<u64>,
    /// The TTL that was asked for when the key's lease was granted.
    #[serde(rename = "ttl")]
    pub(super) lease_ttl_s: u64,
}

/// The version of the format. A value with another one is not ours.
const VERSION: u8 = 1;

impl Record {
    /// The record of what `attempt` acquires now under a lease of `lease_ttl_s`.
    pub(super) fn of(attempt: &Attempt, lease_ttl_s: u64, now_unix_ms: u64) -> Self {
        Self {
            version: VERSION,
            lock_id: attempt.lock_id.as_str().to_owned(),
            attempt: Some(attempt.id.to_string()),
            claimed: None,
            request_id: attempt.request_id.as_ref().map(|id| id.as_str().to_owned()),
            published: attempt.published,
            holder: attempt.holder.as_ref().map(|holder| holder.as_str().to_owned()),
            shared: attempt.mode == Mode::Shared,
            since_unix_ms: Some(now_unix_ms),
            lease_ttl_s,
        }
    }

    /// Reads a value; `None` if it is not one of ours. The resource then counts as held by
    /// somebody unknown.
    pub(super) fn decode(value: &[u8]) -> Option<Self> {
        let record: Self = serde_json::from_slice(value).ok()?;
        (record.version == VERSION).then_some(record)
    }

    /// The value.
    pub(super) fn encode(&self) -> Vec<u8> {
        // Strings and numbers can always be written as JSON.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Whether this is the grant's lock ID.
    pub(super) fn is(&self, lock_id: &LockId) -> bool {
        self.lock_id == lock_id.as_str()
    }

    /// Whether `attempt` made the grant and no replay has claimed it since.
    pub(super) fn made_by(&self, attempt: AttemptId) -> bool {
        self.claimed.is_none() && self.last_got_by(attempt)
    }

    /// Whether `attempt` was the last that got the grant, by making or claiming it.
    pub(super) fn last_got_by(&self, attempt: AttemptId) -> bool {
        let last = self.claimed.as_ref().or(self.attempt.as_ref());
        last.is_some_and(|last| *last == attempt.to_string())
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
    pub(super) fn claimed(&self, by: AttemptId, lease_ttl_s: u64) -> Self {
        Self { claimed: Some(by.to_string()), lease_ttl_s, ..self.clone() }
    }

    /// The same grant under a lease of another TTL.
    pub(super) fn with_ttl(&self, lease_ttl_s: u64) -> Self {
        Self { lease_ttl_s, ..self.clone() }
    }

    /// The grant's public ID, if it has a valid one.
    pub(super) fn id(&self) -> Option<GrantId> {
        self.attempt.as_deref()?.parse().ok()
    }

    /// The grant's public facts.
    pub(super) fn view(&self) -> GrantView {
        GrantView {
            id: self.id(),
            holder: self.holder(),
            mode: self.mode(),
            remaining: None,
            since_unix_ms: self.since_unix_ms,
            foreign: false,
        }
    }

    /// The grant's lock ID, if it is a valid one.
    pub(super) fn lock_id(&self) -> Option<LockId> {
        LockId::new(&self.lock_id).ok()
    }

    /// The grant's lock ID, if its request published that and it is exclusive.
    pub(super) fn published(&self) -> Option<LockId> {
        (self.published && !self.shared).then(|| self.lock_id()).flatten()
    }

    /// The name of the grant, if its lock ID is a valid one.
    pub(super) fn name(&self) -> Option<GrantName> {
        let lock_id = self.lock_id()?;
        let request = self.request_id.as_deref().filter(|_| self.shared);
        let request = request.and_then(|request| RequestId::new(request).ok().flatten());
        Some(GrantName { mode: self.mode(), lock_id, request })
    }

    fn mode(&self) -> Mode {
        if self.shared { Mode::Shared } else { Mode::Exclusive }
    }

    /// The holder's name, if one was given.
    pub(super) fn holder(&self) -> Option<Holder> {
        read_holder(self.holder.as_deref())
    }
}

/// Reads a holder's name; one that is not valid counts as none.
pub(super) fn read_holder(holder: Option<&str>) -> Option<Holder> {
    holder.and_then(|holder| Holder::new(holder).ok().flatten())
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use leasehold_lock::{RequestId, ResourceId, Ttl};

    use super::*;

    pub(in super::super) fn attempt(resource: &str) -> Attempt {
        Attempt {
            holder: Holder::new("app \"1\"").unwrap(),
            ..Attempt::new(
                ResourceId::new(resource).unwrap(),
                Ttl::new(Duration::from_secs(30), Duration::from_secs(60)).unwrap(),
            )
        }
    }

    #[test]
    fn a_record_is_read_back_as_written() {
        let mut made = attempt("r");
        made.request_id = RequestId::new("req\u{7f}é").unwrap();
        made.published = true;
        let record = Record::of(&made, 31, 1_500);
        assert_eq!(Record::decode(&record.encode()), Some(record.clone()));
        assert!(record.is(&made.lock_id) && record.made_by(made.id) && record.answers(&made));
        assert_eq!(record.holder().unwrap().as_str(), "app \"1\"");
    }

    #[test]
    fn a_claimed_grant_is_no_attempts_any_more() {
        let made = attempt("r");
        let replay = AttemptId::random();
        let claimed = Record::of(&made, 31, 0).claimed(replay, 11);
        let claimed = Record::decode(&claimed.encode()).unwrap();
        assert!(!claimed.made_by(made.id) && claimed.is(&made.lock_id));
        assert!(!claimed.last_got_by(made.id) && claimed.last_got_by(replay));
        assert_eq!(claimed.lease_ttl_s, 11);
    }

    #[test]
    fn a_grant_keeps_its_public_id_when_it_is_claimed_or_moved() {
        let made = attempt("r");
        let record = Record::of(&made, 31, 0);
        for record in
            [record.clone(), record.claimed(AttemptId::random(), 11), record.with_ttl(12)]
        {
            let read = Record::decode(&record.encode()).unwrap();
            assert_eq!(read.id(), Some(GrantId::from(made.id)));
        }
    }

    /// Trap: etcd 25
    #[test]
    fn what_is_shown_of_a_grant_has_neither_lock_id_nor_request_id() {
        let mut made = attempt("r");
        made.request_id = RequestId::new("secret").unwrap();
        let view = Record::of(&made, 31, 1_500).view();
        assert_eq!(view.since_unix_ms, Some(1_500));
        let text = format!("{view:?}");
        assert!(!text.contains("secret") && !text.contains(made.lock_id.as_str()), "{text}");
    }

    #[test]
    fn a_record_of_an_earlier_release_is_read_without_what_it_lacks() {
        let value = br#"{"leasehold":1,"id":"a","attempt":"00","ttl":3}"#;
        let record = Record::decode(value).unwrap();
        assert_eq!((record.id(), record.view().since_unix_ms), (None, None));
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
        assert!(!Record::of(&made, 3, 0).answers(&made));
    }
}

//! The names of keys in etcd, and what a key is by its name.

use crate::lock::ResourceId;

/// The part after the prefix in the keys of resources.
const RESOURCES: &str = "r";

/// Where this store's keys lie below its prefix.
///
/// ```text
/// PREFIX/r/RESOURCE/h              the holder's record, under the grant's lease
/// PREFIX/r/RESOURCE/q/SESSION-SEQ  a waiter, under its process's session lease
/// PREFIX/s/SESSION                 a process's session, under the same lease
/// ```
///
/// In RESOURCE, `%` and `/` are written `%25` and `%2F`, so that two resources never share a
/// key (trap 29), and no resource's range contains that of another. All keys of a resource
/// are one range, so that one watch sees them all.
///
/// PREFIX has no part `r` ([`is_prefix`]), so the first `r` of a key ends its prefix.
/// Otherwise the keys of a store with the prefix `/locks/r/a` would lie in the range of the
/// resource `a` of a store with the prefix `/locks`, and might be taken for its waiters
/// (trap 38).
#[derive(Clone, Debug)]
pub(super) struct Keys {
    root: String,
}

/// A waiter's key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct EntryId {
    /// The session it was put under.
    pub(super) session: String,
    /// Its number in that session. Entries of one batch have the same revision, and are
    /// ordered by this number.
    pub(super) seq: u64,
}

/// What one of a resource's keys is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// The holder's.
    Holder,
    /// A waiter's.
    Entry(EntryId),
    /// Not a key of leasehold.
    Other,
}

impl Keys {
    /// Keys below `prefix`. A slash at its end makes no difference. With an empty prefix, keys
    /// begin without a slash.
    pub(super) fn new(prefix: &str) -> Self {
        let prefix = prefix.trim_end_matches('/');
        let root = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        Self { root }
    }

    /// What all keys begin with; a role needs to be allowed to read and write these keys.
    pub(super) fn root(&self) -> &str {
        &self.root
    }

    /// The key of a resource's holder.
    pub(super) fn holder(&self, resource: &ResourceId) -> String {
        self.resource(resource) + "h"
    }

    /// What all keys of a resource begin with, and no other key.
    pub(super) fn resource(&self, resource: &ResourceId) -> String {
        let mut key = String::with_capacity(self.root.len() + resource.as_str().len() + 16);
        key.push_str(&self.root);
        key.push_str(RESOURCES);
        key.push('/');
        for c in resource.as_str().chars() {
            match c {
                '%' => key.push_str("%25"),
                '/' => key.push_str("%2F"),
                _ => key.push(c),
            }
        }
        key.push('/');
        key
    }

    /// What the keys of a resource's waiters begin with.
    pub(super) fn queue(&self, resource: &ResourceId) -> String {
        self.resource(resource) + "q/"
    }

    /// A waiter's key.
    pub(super) fn entry(&self, resource: &ResourceId, id: &EntryId) -> String {
        format!("{}{}-{:016x}", self.queue(resource), id.session, id.seq)
    }

    /// The key of a session.
    pub(super) fn session(&self, session: &str) -> String {
        format!("{}s/{session}", self.root)
    }

    /// What `key`, which lies in the resource's range, is.
    pub(super) fn part(&self, resource: &ResourceId, key: &[u8]) -> Part {
        let prefix = self.resource(resource);
        let Some(rest) =
            key.strip_prefix(prefix.as_bytes()).and_then(|rest| std::str::from_utf8(rest).ok())
        else {
            return Part::Other;
        };
        if rest == "h" {
            return Part::Holder;
        }
        let entry = rest.strip_prefix("q/").and_then(|entry| entry.rsplit_once('-'));
        match entry.map(|(session, seq)| (session, read_seq(seq))) {
            Some((session, Some(seq))) => Part::Entry(EntryId { session: session.into(), seq }),
            _ => Part::Other,
        }
    }
}

/// Whether the keys below `prefix` lie in no range of a store with another prefix.
pub(super) fn is_prefix(prefix: &str) -> bool {
    prefix.split('/').all(|part| part != RESOURCES)
}

/// Reads the number only in the form in which it is written. A key put by hand must not be
/// taken for a waiter's entry, because deleting it would then end that waiter's place.
fn read_seq(digits: &str) -> Option<u64> {
    let is_written = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    (digits.len() == 16 && digits.bytes().all(is_written))
        .then(|| u64::from_str_radix(digits, 16).ok())?
}

/// The end of the range of keys that begin with `prefix`.
pub(super) fn range_end(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    // All our prefixes end in `/`, so the last byte never overflows.
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NAME: &str = "([%/a-z25Fé]|%2F|%25){1,12}";

    fn resource(id: &str) -> ResourceId {
        ResourceId::new(id).unwrap()
    }

    proptest! {
        #[test]
        fn two_resources_never_share_a_key_or_a_range(a in NAME, other in NAME, how in 0..4) {
            // Chance alone hardly ever finds the name that another is escaped to.
            let b = match how {
                0 => a.replace('/', "%2F"),
                1 => a.replace('%', "%25"),
                2 => a.replace("%2F", "/"),
                _ => other,
            };
            let keys = Keys::new("/locks");
            let (ka, kb) = (keys.resource(&resource(&a)), keys.resource(&resource(&b)));
            prop_assert_eq!(a == b, ka == kb);
            if a != b {
                prop_assert!(!ka.starts_with(&kb) && !kb.starts_with(&ka));
                let entry = keys.entry(&resource(&a), &EntryId { session: "s".into(), seq: 1 });
                prop_assert!(!(kb.as_bytes()..range_end(&kb).as_slice()).contains(&entry.as_bytes()));
            }
        }

        #[test]
        fn two_prefixes_never_share_a_key_or_a_range(
            outer in "(/?[rsq]|/locks){0,3}",
            deeper in "(/[rsqh]){1,3}",
            a in "[rsqh/]{1,3}",
            b in "[rsqh/]{1,3}",
        ) {
            let inner = format!("{outer}{deeper}");
            prop_assume!(is_prefix(&outer) && is_prefix(&inner));
            let (outer, inner) = (Keys::new(&outer), Keys::new(&inner));
            let (a, b) = (resource(&a), resource(&b));
            let entry = EntryId { session: "s.0".into(), seq: 1 };
            let of_inner = [inner.holder(&b), inner.entry(&b, &entry), inner.session("s.0")];
            let range = outer.resource(&a);
            for key in of_inner {
                prop_assert!(!key.starts_with(&range), "{key} lies in {range}");
                prop_assert_ne!(&key, &outer.session("s.0"));
            }
            prop_assert!(!outer.holder(&a).starts_with(&inner.resource(&b)));
        }

        #[test]
        fn a_waiters_key_is_read_back(id in "\\PC{1,20}", session in "[0-9a-f-]{1,20}", seq: u64) {
            let keys = Keys::new("p");
            let Ok(resource) = ResourceId::new(&id) else { return Ok(()) };
            let entry = EntryId { session, seq };
            let key = keys.entry(&resource, &entry);
            prop_assert_eq!(keys.part(&resource, key.as_bytes()), Part::Entry(entry));
        }
    }

    #[test]
    fn the_prefix_may_be_empty_and_its_last_slash_makes_no_difference() {
        assert_eq!(Keys::new("").holder(&resource("a/b")), "r/a%2Fb/h");
        assert_eq!(
            Keys::new("/x/").holder(&resource("a")),
            Keys::new("/x").holder(&resource("a"))
        );
    }

    #[test]
    fn a_foreign_key_is_neither_holder_nor_waiter() {
        let keys = Keys::new("p");
        for foreign in [
            "p/r/a/q/nonsense",
            "p/r/a/q/s-zz",
            "p/r/a/x",
            "p/r/b/h",
            // A waiter's place, but for how its number is written.
            "p/r/a/q/s-1f",
            "p/r/a/q/s-+00000000000001f",
            "p/r/a/q/s-000000000000001F",
        ] {
            let part = keys.part(&resource("a"), foreign.as_bytes());
            assert_eq!(part, Part::Other, "{foreign}");
        }
    }
}

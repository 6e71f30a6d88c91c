//! The names of keys in etcd, and what a key is by its name.

use uuid::Uuid;

use crate::lock::{Attempt, LockId, Mode, RequestId, ResourceId};

/// The part after the prefix in the keys of resources.
const RESOURCES: &str = "r";

/// Where this store's keys lie below its prefix.
///
/// ```text
/// PREFIX/r/RESOURCE/h               the exclusive grant's record, under the grant's lease
/// PREFIX/r/RESOURCE/h/LOCK          a shared grant's record, under the grant's lease
/// PREFIX/r/RESOURCE/i/REQUEST       the LOCK of a shared grant, under the grant's lease
/// PREFIX/r/RESOURCE/q/SESSION-SEQ   an exclusive waiter, under its process's session lease
/// PREFIX/r/RESOURCE/q/SESSION-SEQs  a shared waiter, under the same lease
/// PREFIX/s/SESSION                  a process's session, under the same lease
/// ```
///
/// LOCK and REQUEST are hashes of the lock ID and the request ID, which are secrets: etcd
/// logs the names of keys. The keys of all grants are one range, which one comparison covers.
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

/// Which of a resource's grants, and what its keys are named after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GrantName {
    pub(super) mode: Mode,
    pub(super) lock_id: LockId,
    /// The request that made it. Only a shared grant has a key for it: the request of the
    /// exclusive one is found in its record.
    pub(super) request: Option<RequestId>,
}

impl GrantName {
    /// The name of what `attempt` acquires.
    pub(super) fn of(attempt: &Attempt) -> Self {
        let mode = attempt.mode;
        let request = attempt.request_id.clone().filter(|_| mode == Mode::Shared);
        Self { mode, lock_id: attempt.lock_id.clone(), request }
    }
}

/// The keys of one grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GrantKeys {
    /// The key of the resource's exclusive grant.
    pub(super) holder: String,
    /// The keys of a shared grant; `None` for the exclusive one.
    pub(super) shared: Option<SharedKeys>,
}

/// The keys of a shared grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SharedKeys {
    /// Its record.
    pub(super) record: String,
    /// The key that finds it by its request, and that key's value.
    pub(super) request: Option<(String, String)>,
}

impl GrantKeys {
    /// The key of the grant's record.
    pub(super) fn record(&self) -> &str {
        self.shared.as_ref().map_or(&self.holder, |shared| &shared.record)
    }

    /// The key that finds a shared grant by its request.
    pub(super) fn request(&self) -> Option<&str> {
        let (key, _) = self.shared.as_ref()?.request.as_ref()?;
        Some(key)
    }
}

/// A waiter's key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct EntryId {
    /// The session it was put under.
    pub(super) session: String,
    /// Its number in that session. Entries of one batch have the same revision, and are
    /// ordered by this number.
    pub(super) seq: u64,
    /// Whether it waits for a shared grant.
    pub(super) shared: bool,
}

/// What one of a resource's keys is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// The exclusive grant's.
    Holder,
    /// A shared grant's: how the key goes on after that of the exclusive grant. Every key
    /// in that range counts, because the comparison of the range includes it.
    Reader(Box<[u8]>),
    /// A waiter's.
    Entry(EntryId),
    /// Neither a grant nor a waiter.
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

    /// The key of a resource's exclusive grant. The keys of all its grants begin with it, and
    /// no other key.
    pub(super) fn holder(&self, resource: &ResourceId) -> String {
        self.resource(resource) + "h"
    }

    /// What the keys of a resource's shared grants begin with.
    pub(super) fn readers(&self, resource: &ResourceId) -> String {
        self.resource(resource) + "h/"
    }

    /// The keys of a grant.
    pub(super) fn grant(&self, resource: &ResourceId, grant: &GrantName) -> GrantKeys {
        let holder = self.holder(resource);
        let shared = (grant.mode == Mode::Shared).then(|| {
            let name = hash(grant.lock_id.as_str());
            let record = format!("{holder}/{name}");
            let key = |request| (self.request(resource, request), name);
            SharedKeys { record, request: grant.request.as_ref().map(key) }
        });
        GrantKeys { holder, shared }
    }

    /// The key that finds a shared grant by its request.
    pub(super) fn request(&self, resource: &ResourceId, request: &RequestId) -> String {
        format!("{}i/{}", self.resource(resource), hash(request.as_str()))
    }

    /// The key of the shared grant that the value of a request's key names.
    pub(super) fn requested(&self, resource: &ResourceId, value: &[u8]) -> Option<String> {
        Some(self.readers(resource) + std::str::from_utf8(value).ok()?)
    }

    /// What all keys of a resource begin with, and no other key.
    pub(super) fn resource(&self, resource: &ResourceId) -> String {
        let mut key = self.named(resource.as_str());
        key.push('/');
        key
    }

    /// What the keys of all resources begin with whose name begins with `prefix`, and no
    /// other key. Escaping keeps prefixes, because it writes each character by itself.
    pub(super) fn named(&self, prefix: &str) -> String {
        let mut key = String::with_capacity(self.root.len() + prefix.len() + 16);
        key.push_str(&self.root);
        key.push_str(RESOURCES);
        key.push('/');
        for c in prefix.chars() {
            match c {
                '%' => key.push_str("%25"),
                '/' => key.push_str("%2F"),
                _ => key.push(c),
            }
        }
        key
    }

    /// Whose key it is, and what it is by its name. `None` if it is not named like a
    /// resource's.
    pub(super) fn read(&self, key: &[u8]) -> Option<(ResourceId, Part)> {
        let rest = key.strip_prefix(self.named("").as_bytes())?;
        let name = rest.split(|byte| *byte == b'/').next()?;
        let name = unescape(std::str::from_utf8(name).ok()?)?;
        let resource = ResourceId::new(&name).ok()?;
        let part = self.part(&resource, key);
        Some((resource, part))
    }

    /// A key before which lie all keys of the resource that `key` is one of, and behind which
    /// lie those of the next one. Also if the name of the resource is none.
    pub(super) fn behind(&self, key: &[u8]) -> Vec<u8> {
        let start = self.named("").len();
        let slash = key.iter().skip(start).position(|byte| *byte == b'/');
        let length = slash.map_or(key.len(), |slash| start + slash);
        let mut behind: Vec<u8> = key.iter().copied().take(length).collect();
        behind.push(if slash.is_some() { b'/' + 1 } else { 0 });
        behind
    }

    /// What the keys of a resource's waiters begin with.
    pub(super) fn queue(&self, resource: &ResourceId) -> String {
        self.resource(resource) + "q/"
    }

    /// A waiter's key.
    pub(super) fn entry(&self, resource: &ResourceId, id: &EntryId) -> String {
        let mode = if id.shared { "s" } else { "" };
        format!("{}{}-{:016x}{mode}", self.queue(resource), id.session, id.seq)
    }

    /// The key of a session.
    pub(super) fn session(&self, session: &str) -> String {
        format!("{}s/{session}", self.root)
    }

    /// What `key`, which lies in the resource's range, is.
    pub(super) fn part(&self, resource: &ResourceId, key: &[u8]) -> Part {
        let prefix = self.resource(resource);
        let Some(rest) = key.strip_prefix(prefix.as_bytes()) else { return Part::Other };
        match rest.strip_prefix(b"h") {
            Some([]) => Part::Holder,
            Some(reader) => Part::Reader(reader.into()),
            None => read_entry(rest).map_or(Part::Other, Part::Entry),
        }
    }
}

/// The name of a secret in a key.
fn hash(secret: &str) -> String {
    Uuid::new_v5(&Uuid::NAMESPACE_OID, secret.as_bytes()).simple().to_string()
}

/// Reads the name of a resource as it is written in a key.
fn unescape(name: &str) -> Option<String> {
    let mut parts = name.split('%');
    let mut read = parts.next()?.to_owned();
    for part in parts {
        let (c, rest) = match part.strip_prefix("25") {
            Some(rest) => ('%', rest),
            None => ('/', part.strip_prefix("2F")?),
        };
        read.push(c);
        read.push_str(rest);
    }
    Some(read)
}

/// Reads the end of a waiter's key.
fn read_entry(rest: &[u8]) -> Option<EntryId> {
    let entry = std::str::from_utf8(rest).ok()?.strip_prefix("q/")?;
    let (session, seq) = entry.rsplit_once('-')?;
    let (seq, shared) = match seq.strip_suffix('s') {
        Some(seq) => (seq, true),
        None => (seq, false),
    };
    Some(EntryId { session: session.into(), seq: read_seq(seq)?, shared })
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
    // The last byte never overflows: no text in UTF-8 ends with 0xFF.
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
                let entry = keys.entry(&resource(&a), &EntryId { session: "s".into(), seq: 1, shared: false });
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
            let entry = EntryId { session: "s.0".into(), seq: 1, shared: true };
            let of_inner = [inner.holder(&b), inner.entry(&b, &entry), inner.session("s.0")];
            let range = outer.resource(&a);
            for key in of_inner {
                prop_assert!(!key.starts_with(&range), "{key} lies in {range}");
                prop_assert_ne!(&key, &outer.session("s.0"));
            }
            prop_assert!(!outer.holder(&a).starts_with(&inner.resource(&b)));
        }

        #[test]
        fn the_range_of_a_prefix_has_the_keys_of_names_that_begin_so(
            name in NAME,
            prefix in "([%/a-c25Fé]|%2F|%25){0,3}",
            cut in 0usize..12,
            is_cut: bool,
        ) {
            let keys = Keys::new("/locks");
            let prefix = if is_cut { name.chars().take(cut).collect() } else { prefix };
            let range = keys.named(&prefix);
            let key = keys.holder(&resource(&name));
            let is_in = (range.as_bytes()..range_end(&range).as_slice()).contains(&key.as_bytes());
            prop_assert_eq!(is_in, name.starts_with(&prefix), "{} {}", name, prefix);
        }

        #[test]
        fn the_resource_of_a_key_is_read_back(name in NAME, shared: bool) {
            let (keys, id) = (Keys::new("/locks"), resource(&name));
            let entry = EntryId { session: "s.0".into(), seq: 1, shared };
            let key = keys.entry(&id, &entry).into_bytes();
            prop_assert_eq!(keys.read(&key), Some((id.clone(), Part::Entry(entry))));
            let behind = keys.behind(&key);
            prop_assert_eq!(&behind, &range_end(&keys.resource(&id)));
        }

        #[test]
        fn a_waiters_key_is_read_back(
            id in "\\PC{1,20}",
            session in "[0-9a-f-]{1,20}",
            seq: u64,
            shared: bool,
        ) {
            let keys = Keys::new("p");
            let Ok(resource) = ResourceId::new(&id) else { return Ok(()) };
            let entry = EntryId { session, seq, shared };
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

    fn shared(lock_id: &str, request: &str) -> GrantKeys {
        let grant = GrantName {
            mode: Mode::Shared,
            lock_id: LockId::new(lock_id).unwrap(),
            request: RequestId::new(request).unwrap(),
        };
        Keys::new("p").grant(&resource("a"), &grant)
    }

    #[test]
    fn a_shared_grant_is_found_by_its_lock_id_and_its_request() {
        let (keys, grant) = (Keys::new("p"), shared("mine", "secret"));
        assert_ne!(grant.record(), shared("yours", "").record());
        let (request, value) = grant.shared.clone().unwrap().request.unwrap();
        assert_eq!(keys.requested(&resource("a"), value.as_bytes()).unwrap(), grant.record());
        assert!(request.starts_with("p/r/a/i/") && !request.contains("secret"));
        assert!(!grant.record().contains("mine"));
    }

    #[test]
    fn the_range_of_the_grants_has_no_other_keys() {
        let (keys, id) = (Keys::new("p"), resource("a"));
        let (first, grant) = (keys.holder(&id), shared("mine", "secret"));
        let range = first.as_bytes()..&*range_end(&first);
        assert!(
            range.contains(&first.as_bytes()) && range.contains(&grant.record().as_bytes())
        );
        let entry = EntryId { session: "s".into(), seq: 1, shared: true };
        let others = [grant.request().unwrap().to_owned(), keys.entry(&id, &entry)];
        assert!(others.iter().all(|key| !range.contains(&key.as_bytes())));
    }

    #[test]
    fn any_key_in_the_range_of_the_grants_is_a_readers() {
        let keys = Keys::new("p");
        for key in [&b"p/r/a/h/"[..], b"p/r/a/h/nonsense", b"p/r/a/hx", b"p/r/a/h/\xff"] {
            assert!(matches!(keys.part(&resource("a"), key), Part::Reader(_)), "{key:?}");
        }
        assert_eq!(keys.part(&resource("a"), b"p/r/a/h"), Part::Holder);
    }

    #[test]
    fn a_name_that_is_not_written_so_is_no_resource() {
        let keys = Keys::new("p");
        for key in ["p/r/a%2f/h", "p/r/a%/h", "p/r/%41/h", "p/r//h", "p/s/a", "q/r/a/h", "p/r"]
        {
            assert_eq!(keys.read(key.as_bytes()), None, "{key}");
        }
        assert_eq!(keys.read(b"p/r/\xff/h"), None);
        assert_eq!(keys.read(b"p/r/a"), Some((resource("a"), Part::Other)));
    }

    #[test]
    fn behind_a_foreign_key_lies_the_next_name() {
        let keys = Keys::new("p");
        for (key, behind) in [
            (&b"p/r/x%zz/deep/er"[..], &b"p/r/x%zz0"[..]),
            (b"p/r/\xff/h", b"p/r/\xff0"),
            (b"p/r/plain", b"p/r/plain\0"),
        ] {
            assert_eq!(keys.behind(key), behind);
        }
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
            "p/r/a/q/s-000000000000001fss",
            "p/r/a/q/s-00000000000001fs",
            "p/r/a/i/0",
        ] {
            let part = keys.part(&resource("a"), foreign.as_bytes());
            assert_eq!(part, Part::Other, "{foreign}");
        }
    }
}

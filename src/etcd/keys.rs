//! The names of keys in etcd, and the ranges in which they lie.

mod part;
#[cfg(test)]
mod tests;

use std::fmt;

use uuid::Uuid;

pub(super) use self::part::Part;

use leasehold_lock::{Attempt, LockId, Mode, RequestId, ResourceId};

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

/// The end of its key.
impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = if self.shared { "s" } else { "" };
        write!(f, "{}-{:016x}{mode}", self.session, self.seq)
    }
}

impl Keys {
    /// Keys below `prefix`. A slash at its end makes no difference. With an empty prefix, keys
    /// begin without a slash.
    pub(super) fn new(prefix: &str) -> Self {
        let prefix = prefix.trim_end_matches('/');
        let root = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        Self { root }
    }

    /// The prefix of all keys; a role must be allowed to read and write these keys.
    pub(super) fn root(&self) -> &str {
        &self.root
    }

    /// The key of a resource's exclusive grant. The keys of all its grants begin with it, and
    /// no other key.
    pub(super) fn holder(&self, resource: &ResourceId) -> String {
        self.resource(resource) + "h"
    }

    /// The prefix of the keys of a resource's shared grants.
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

    /// The prefix of all keys of a resource, and of no other key.
    pub(super) fn resource(&self, resource: &ResourceId) -> String {
        let mut key = self.named(resource.as_str());
        key.push('/');
        key
    }

    /// The prefix of the keys of all resources whose name begins with `prefix`, and of
    /// no other key. Escaping keeps prefixes, because it writes each character by
    /// itself.
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

    /// A key between all keys of the resource of `key` and those of the next one. Works for
    /// undecodable names, too.
    pub(super) fn behind(&self, key: &[u8]) -> Vec<u8> {
        let length = self.name_end(key);
        let mut behind: Vec<u8> = key.iter().copied().take(length).collect();
        behind.push(if length < key.len() { b'/' + 1 } else { 0 });
        behind
    }

    /// The end of the resource's name in `key`.
    pub(super) fn name_end(&self, key: &[u8]) -> usize {
        let start = self.named("").len();
        let slash = key.iter().skip(start).position(|byte| *byte == b'/');
        slash.map_or(key.len(), |slash| start + slash)
    }

    /// The prefix of the keys of a resource's waiters.
    pub(super) fn queue(&self, resource: &ResourceId) -> String {
        self.resource(resource) + "q/"
    }

    /// A waiter's key.
    pub(super) fn entry(&self, resource: &ResourceId, id: &EntryId) -> String {
        format!("{}{id}", self.queue(resource))
    }

    /// The key of a session.
    pub(super) fn session(&self, session: &str) -> String {
        format!("{}s/{session}", self.root)
    }
}

/// The name of a secret in a key.
fn hash(secret: &str) -> String {
    Uuid::new_v5(&Uuid::NAMESPACE_OID, secret.as_bytes()).simple().to_string()
}

/// Whether the keys below `prefix` lie in no range of a store with another prefix.
pub(super) fn is_prefix(prefix: &str) -> bool {
    prefix.split('/').all(|part| part != RESOURCES)
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

/// The first key after this one.
pub(super) fn key_after(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

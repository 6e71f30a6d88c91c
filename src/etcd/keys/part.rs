//! The meaning of a key by its name.

use leasehold_lock::ResourceId;

use super::{EntryId, Keys};

/// The meaning of a resource's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
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
    /// The resource of a key, and its meaning. `None` if it is no key of a resource.
    pub(crate) fn read(&self, key: &[u8]) -> Option<(ResourceId, Part)> {
        let rest = key.strip_prefix(self.named("").as_bytes())?;
        let name = rest.split(|byte| *byte == b'/').next()?;
        let name = unescape(std::str::from_utf8(name).ok()?)?;
        let resource = ResourceId::new(&name).ok()?;
        let part = self.part(&resource, key);
        Some((resource, part))
    }

    /// The meaning of `key`, which lies in the resource's range.
    pub(crate) fn part(&self, resource: &ResourceId, key: &[u8]) -> Part {
        let prefix = self.resource(resource);
        let Some(rest) = key.strip_prefix(prefix.as_bytes()) else { return Part::Other };
        match rest.strip_prefix(b"h") {
            Some([]) => Part::Holder,
            Some(reader) => Part::Reader(reader.into()),
            None => {
                let entry = rest.strip_prefix(b"q/").and_then(EntryId::read);
                entry.map_or(Part::Other, Part::Entry)
            }
        }
    }
}

impl EntryId {
    /// Reads the end of a waiter's key.
    pub(crate) fn read(entry: &[u8]) -> Option<Self> {
        let (session, seq) = std::str::from_utf8(entry).ok()?.rsplit_once('-')?;
        let (seq, shared) = match seq.strip_suffix('s') {
            Some(seq) => (seq, true),
            None => (seq, false),
        };
        Some(Self { session: session.into(), seq: read_seq(seq)?, shared })
    }
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

/// Reads the number only in the form in which it is written. A key put by hand must not be
/// taken for a waiter's entry, because deleting it would then end that waiter's place.
fn read_seq(digits: &str) -> Option<u64> {
    let is_written = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    (digits.len() == 16 && digits.bytes().all(is_written))
        .then(|| u64::from_str_radix(digits, 16).ok())?
}

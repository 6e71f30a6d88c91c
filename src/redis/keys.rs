//! The keys of a resource.
//!
//! Each function declares all keys that it touches. All of them hash to the slot of the
//! resource's own key, also on a server that is no Cluster, so that names are the same
//! everywhere: `0x01`, a letter, a tag of that slot in braces, and the resource.
//!
//! The resource's own key is exactly the resource, because the built-in `lock.redis` uses it.

use std::sync::LazyLock;

use leasehold_lock::ResourceId;

/// How many slots there are.
const SLOTS: usize = 1 << 14;
/// The characters of tags, in byte order.
const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// A search for keys of the whole database declares this key, which never exists.
pub(super) const NO_KEY: &str = "\x01-";

/// For each slot the first string of three characters that hashes to it.
static TAGS: LazyLock<Box<[[u8; 3]]>> = LazyLock::new(|| {
    let mut tags = vec![[0; 3]; SLOTS].into_boxed_slice();
    for a in DIGITS.iter().rev() {
        for b in DIGITS.iter().rev() {
            for c in DIGITS.iter().rev() {
                let tag = [*a, *b, *c];
                if let Some(found) = tags.get_mut(slot_of(&tag)) {
                    *found = tag;
                }
            }
        }
    }
    tags
});

/// The keys that a function declares, in the order of the constants in the library.
pub(crate) struct Keys(Vec<String>);

impl Keys {
    /// The keys of a resource: all of them, or those that exclusive grants need.
    pub(crate) fn of(resource: &ResourceId, with_readers: bool) -> Self {
        let mut keys = Vec::with_capacity(8);
        push(&mut keys, resource, with_readers);
        Self(keys)
    }

    /// All keys of several resources.
    pub(super) fn of_all(resources: &[ResourceId]) -> Self {
        let mut keys = Vec::with_capacity(8 * resources.len());
        for resource in resources {
            push(&mut keys, resource, true);
        }
        Self(keys)
    }

    /// The one key of a search.
    pub(super) fn of_no_resource() -> Self {
        Self(vec![NO_KEY.to_owned()])
    }

    pub(crate) fn names(&self) -> &[String] {
        &self.0
    }
}

fn push(keys: &mut Vec<String>, resource: &ResourceId, with_readers: bool) {
    let resource = resource.as_str();
    let tag = tag(resource);
    let name = |kind: char| format!("\x01{kind}{{{tag}}}{resource}");
    keys.extend([
        name('q'),
        resource.to_owned(),
        name('h'),
        // One counter a slot.
        format!("\x01c{{{tag}}}"),
    ]);
    if with_readers {
        keys.extend(['r', 'e', 't', 'p'].map(name));
    }
}

/// The tag of the slot of this key.
fn tag(key: &str) -> &'static str {
    let tag = TAGS.get(slot_of(hashed_part(key.as_bytes())));
    tag.and_then(|tag| std::str::from_utf8(tag).ok()).unwrap_or_default()
}

/// The part of a key that decides its slot: what stands in its first braces, if that is not
/// empty, or else all of it.
fn hashed_part(key: &[u8]) -> &[u8] {
    let braced = || {
        let (_, rest) = key.split_at_checked(key.iter().position(|c| *c == b'{')? + 1)?;
        rest.get(..rest.iter().position(|c| *c == b'}')?).filter(|part| !part.is_empty())
    };
    braced().unwrap_or(key)
}

/// CRC-16/XMODEM, as the specification of Redis Cluster has it.
fn slot_of(text: &[u8]) -> usize {
    let crc = text.iter().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            let shifted = crc << 1;
            if crc & 0x8000 == 0 { shifted } else { shifted ^ 0x1021 }
        })
    });
    usize::from(crc) % SLOTS
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keys(resource: &str) -> Keys {
        Keys::of(&ResourceId::new(resource).unwrap(), true)
    }

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(slot_of(b"123456789"), 0x31c3 % SLOTS, "the published check value");
        assert_eq!(slot_of(b"a}b"), 7866);
    }

    #[test]
    fn a_slot_has_the_same_tag_in_every_version() {
        let text = |slot: usize| std::str::from_utf8(&TAGS[slot]).unwrap();
        assert_eq!((text(0), text(1), text(16383)), ("06S", "2Gx", "6ZJ"));
        assert!(TAGS.iter().enumerate().all(|(slot, tag)| slot_of(tag) == slot));
    }

    #[test]
    fn the_names_of_keys_are_the_same_in_every_version() {
        assert_eq!(
            keys("a}b").names(),
            [
                "\x01q{4w2}a}b",
                "a}b",
                "\x01h{4w2}a}b",
                "\x01c{4w2}",
                "\x01r{4w2}a}b",
                "\x01e{4w2}a}b",
                "\x01t{4w2}a}b",
                "\x01p{4w2}a}b",
            ]
        );
    }

    proptest! {
        #[test]
        fn all_keys_of_a_resource_are_in_its_slot(resource in "[a{}]{1,9}") {
            let slot = |key: &str| slot_of(hashed_part(key.as_bytes()));
            let keys = keys(&resource);
            for key in keys.names() {
                prop_assert_eq!(slot(key), slot(&resource), "{}", key);
            }
        }

        /// Trap: redis 28
        #[test]
        fn there_is_one_counter_for_each_slot_at_most(resource in "[a-z|/{}]{1,64}") {
            prop_assert_eq!(keys(&resource).names()[3].len(), "\x01c{06S}".len());
        }
    }
}

//! The keys of a resource.
//!
//! Each function declares all keys that it touches. All of them hash to the slot of the
//! resource's own key, also on a server that is no Cluster, so that names are the same
//! everywhere: `0x01`, a letter, a tag of that slot in braces, and the resource.
//!
//! The resource's own key is exactly the resource, because the built-in `lock.redis` uses it.

use std::sync::LazyLock;

use ::redis::Cmd;
use leasehold_lock::ResourceId;

/// How many slots there are.
pub(super) const SLOTS: usize = 1 << 14;
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

/// The slot of a resource in a Cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Slot(pub(super) u16);

impl Slot {
    pub(super) fn of(resource: &ResourceId) -> Self {
        let slot = slot_of(hashed_part(resource.as_str().as_bytes()));
        Self(u16::try_from(slot).unwrap_or_default())
    }
}

/// The keys that a function declares, in the order of the constants in the library.
#[derive(Clone, Copy)]
pub(crate) enum Keys<'a> {
    /// Those of a resource that exclusive grants need.
    Exclusive(&'a ResourceId),
    /// The same without the question.
    WithoutQuestion(&'a ResourceId),
    /// All keys of these resources, which are in one slot in a Cluster.
    All(&'a [ResourceId]),
    /// The resource and its record.
    Grant(&'a ResourceId),
    /// One of those keys.
    Part(&'a ResourceId, Part),
    /// The one key of a search.
    None,
    /// No key, for a search of one node of a Cluster.
    Nothing,
}

/// A key that is read by itself.
#[derive(Clone, Copy)]
pub(crate) enum Part {
    Queue,
    Resource,
    Record,
}

impl Keys<'_> {
    /// Their slot; `None` for a search.
    pub(super) fn slot(self) -> Option<Slot> {
        match self {
            Self::Exclusive(resource)
            | Self::WithoutQuestion(resource)
            | Self::Grant(resource)
            | Self::Part(resource, _) => Some(Slot::of(resource)),
            Self::All(resources) => resources.first().map(Slot::of),
            Self::None | Self::Nothing => None,
        }
    }

    /// Adds their number and their names to a call.
    pub(super) fn add_to(self, call: &mut Cmd) {
        match self {
            Self::Exclusive(resource) => add(call.arg(5), resource, &["a"]),
            // The fifth key costs the server more than the others, because Lua's table of keys
            // grows then.
            Self::WithoutQuestion(resource) => add(call.arg(4), resource, &[]),
            Self::All(resources) => {
                call.arg(9 * resources.len());
                for resource in resources {
                    add(call, resource, &["a", "r", "e", "t", "p"]);
                }
            }
            Self::Grant(resource) => {
                call.arg(2).arg(resource.as_str()).arg(companion("h", resource));
            }
            Self::Part(resource, part) => {
                call.arg(1).arg(match part {
                    Part::Queue => companion("q", resource),
                    Part::Resource => resource.as_str().to_owned(),
                    Part::Record => companion("h", resource),
                });
            }
            Self::Nothing => {
                call.arg(0);
            }
            Self::None => {
                call.arg(1).arg(NO_KEY);
            }
        }
    }
}

/// A key beside that of the resource.
fn companion(kind: &str, resource: &ResourceId) -> String {
    let resource = resource.as_str();
    format!("\x01{kind}{{{}}}{resource}", tag(resource))
}

fn add(call: &mut Cmd, resource: &ResourceId, further: &[&str]) {
    let mut name = companion("q", resource);
    let mut of_kind = |call: &mut Cmd, kind: &str| {
        name.replace_range(1..2, kind);
        call.arg(&*name);
    };
    of_kind(call, "q");
    call.arg(resource.as_str());
    of_kind(call, "h");
    // One counter a slot.
    call.arg(format!("\x01c{{{}}}", tag(resource.as_str())));
    for kind in further {
        of_kind(call, kind);
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
        let [first, second] = crc.to_be_bytes();
        CRC_OF_BYTE[usize::from(first ^ byte)] ^ (u16::from(second) << 8)
    });
    usize::from(crc) % SLOTS
}

const CRC_OF_BYTE: [u16; 256] = {
    let (mut table, mut byte) = ([0; 256], 0);
    while byte < 256 {
        let (mut crc, mut bit) = ((byte as u16) << 8, 0);
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use ::redis::{Arg, cmd};
    use proptest::prelude::*;

    use super::*;

    fn keys(resource: &str) -> Vec<String> {
        let mut call = cmd("FCALL");
        Keys::All(&[ResourceId::new(resource).unwrap()]).add_to(&mut call);
        let words = call.args_iter().skip(2).map(|word| match word {
            Arg::Simple(word) => String::from_utf8(word.to_vec()).unwrap(),
            _ => panic!("a key is missing"),
        });
        words.collect()
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
            keys("a}b"),
            [
                "\x01q{4w2}a}b",
                "a}b",
                "\x01h{4w2}a}b",
                "\x01c{4w2}",
                "\x01a{4w2}a}b",
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
            for key in keys(&resource) {
                prop_assert_eq!(slot(&key), slot(&resource), "{}", key);
            }
        }

        /// Trap: redis 28
        #[test]
        fn there_is_one_counter_for_each_slot_at_most(resource in "[a-z|/{}]{1,64}") {
            prop_assert_eq!(keys(&resource)[3].len(), "\x01c{06S}".len());
        }
    }
}

//! The keys and values in etcd, and the local copy of a queue.
//!
//! A module of the backend, so that it can use what is private there.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a broken property panics")]

use std::collections::BTreeMap;

use leasehold_lock::{AttemptId, Mode, ResourceId};
use leasehold_testing::Input;

use crate::{
    keys::{EntryId, Keys, Part},
    queue::mirror::QueueMirror,
    record::Record,
    revision::Revision,
};

/// The first byte selects the type of the rest: a holder's value, a key, or the events
/// of a queue.
pub fn etcd_values(data: &[u8]) {
    let mut input = Input::new(data);
    match input.byte() % 3 {
        0 => record(input.rest()),
        1 => key(input),
        _ => events(input),
    }
}

/// A record that was decoded can be encoded and decoded again without a change.
fn record(value: &[u8]) {
    let read = Record::decode(value);
    assert_eq!(read, Record::decode(value), "the same value was read in two ways");
    let Some(record) = read else { return };
    assert_eq!(Record::decode(&record.encode()), Some(record.clone()));
    assert!(record.lock_id().is_none_or(|id| record.is(&id)));
    assert!(record.holder().is_none_or(|holder| (1..=256).contains(&holder.as_str().len())));
    let claimed = record.claimed(AttemptId::random(), record.lease_ttl_s);
    assert_eq!(Record::decode(&claimed.encode()), Some(claimed));
}

/// The input is a byte of flags, a prefix and a resource, each on a line, and then a key
/// or the end of one.
fn key(mut input: Input<'_>) {
    let flags = input.byte();
    let keys = Keys::new(input.text());
    let Ok(resource) = ResourceId::new(input.text()) else { return };
    let mut key = input.rest().to_vec();
    if flags & 1 != 0 {
        key.splice(0..0, keys.resource(&resource).into_bytes());
    }
    match keys.part(&resource, &key) {
        Part::Holder => assert_eq!(key, keys.holder(&resource).into_bytes()),
        Part::Reader(rest) => {
            assert_eq!(key, [keys.holder(&resource).as_bytes(), &rest].concat());
        }
        // If two keys stood for one entry, deleting one would remove the other.
        Part::Entry(entry) => assert_eq!(key, keys.entry(&resource, &entry).into_bytes()),
        Part::Other => {}
    }
    assert_eq!(keys.part(&resource, keys.holder(&resource).as_bytes()), Part::Holder);
    // A list reads whose key it is from the key alone, and goes on behind it.
    if let Some((named, part)) = keys.read(&key) {
        assert_eq!(part, keys.part(&named, &key));
    }
    assert!(keys.behind(&key) > key);
    let holder = keys.holder(&resource).into_bytes();
    assert_eq!(keys.read(&holder), Some((resource, Part::Holder)));
}

/// After any sequence of events the mirror agrees with a plain map.
fn events(mut input: Input<'_>) {
    const READERS_MAX: usize = 3;
    let mut mirror = QueueMirror::new(READERS_MAX);
    let (mut queue, mut grants) =
        (BTreeMap::<EntryId, Revision>::new(), BTreeMap::<u64, Revision>::new());
    let mut revision = Revision(0);
    while !input.is_empty() {
        let (what, seq) = (input.byte(), u64::from(input.byte() % 8));
        revision.0 += u64::from(what >> 4) + 1;
        let entry = EntryId { session: "s".into(), seq, shared: what & 8 != 0 };
        // The first grant is the exclusive one.
        let grant = match seq {
            0 => Part::Holder,
            _ => Part::Reader([seq as u8].into()),
        };
        match what % 4 {
            0 => {
                queue.entry(entry.clone()).or_insert(revision);
                mirror.put(Part::Entry(entry), revision);
            }
            1 => {
                queue.remove(&entry);
                mirror.delete(&Part::Entry(entry), revision);
            }
            2 => {
                grants.insert(seq, revision);
                mirror.put(grant, revision);
            }
            _ => {
                grants.remove(&seq);
                mirror.delete(&grant, revision);
            }
        }
        mirror.advance(revision);
        assert_eq!(mirror.len(), queue.len());
        assert_eq!(mirror.is_held(Mode::Exclusive), !grants.is_empty());
        assert_eq!(mirror.is_held(Mode::Shared), grants.contains_key(&0));
        let mut order: Vec<_> = queue.iter().map(|(entry, since)| (*since, entry)).collect();
        order.sort_unstable();
        assert_eq!(mirror.head(), order.first().map(|(_, entry)| *entry));
        assert!(queue.iter().all(|(entry, since)| mirror.entered(entry) == Some(*since)));
        let readers = order.iter().take_while(|(_, entry)| entry.shared).count();
        let turns = match readers {
            0 => usize::from(grants.is_empty()).min(order.len()),
            _ if grants.contains_key(&0) => 0,
            _ => readers.min(READERS_MAX.saturating_sub(grants.len())),
        };
        let on_turn = order.iter().take(turns).map(|(_, entry)| *entry);
        assert!(mirror.on_turn().eq(on_turn));
        for (n, (_, entry)) in order.iter().enumerate() {
            assert_eq!(mirror.is_turn(entry), n < turns);
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_seed_breaks_a_property() {
        leasehold_testing::no_seed_breaks("etcd_values", super::etcd_values);
    }
}

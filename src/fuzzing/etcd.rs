//! The keys and values in etcd, and the local copy of a queue.
//!
//! A module of the backend, so that it can use what is private there.

use std::collections::BTreeMap;

use crate::{
    backend::etcd::{
        keys::{EntryId, Keys, Part},
        queue::mirror::Mirror,
        record::Record,
        revision::Revision,
    },
    fuzzing::input::Input,
    lock::ResourceId,
};

/// The first byte selects what the rest is: a holder's value, a key, or the events of a
/// queue.
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
    let claimed = record.claimed(record.lease_ttl_s);
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
        // If two keys stood for one entry, deleting one would remove the other.
        Part::Entry(entry) => assert_eq!(key, keys.entry(&resource, &entry).into_bytes()),
        Part::Other => {}
    }
    assert_eq!(keys.part(&resource, keys.holder(&resource).as_bytes()), Part::Holder);
}

/// After any sequence of events the mirror agrees with a plain map.
fn events(mut input: Input<'_>) {
    let mut mirror = Mirror::default();
    let (mut queue, mut held, mut revision) =
        (BTreeMap::<EntryId, Revision>::new(), false, Revision(0));
    while !input.is_empty() {
        let (what, seq) = (input.byte(), u64::from(input.byte() % 8));
        revision.0 += u64::from(what >> 4) + 1;
        let entry = EntryId { session: "s".into(), seq };
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
                held = true;
                mirror.put(Part::Holder, revision);
            }
            _ => {
                held = false;
                mirror.delete(&Part::Holder, revision);
            }
        }
        mirror.advance(revision);
        assert_eq!(mirror.len(), queue.len());
        assert_eq!(mirror.is_held(), held);
        let head = queue.iter().min_by_key(|(entry, revision)| (**revision, (*entry).clone()));
        assert_eq!(mirror.head(), head.map(|(entry, _)| entry));
        assert!(queue.iter().all(|(entry, since)| mirror.entered(entry) == Some(*since)));
    }
}

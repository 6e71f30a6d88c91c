//! A copy of the grants of a store, changed by the events of a watch.

use std::collections::{BTreeMap, HashMap};

use etcd_client::KeyValue;
use leasehold_lock::{
    ResourceId,
    inspect::{EndCause, EndedGrant, GRANTS_SHOWN_MAX, GrantView, LockView, Mirror},
};

use crate::{
    grants::find::Held,
    keys::{Keys, Part},
};

/// The grants that leasehold made.
#[derive(Debug, Default)]
pub(super) struct StoreCopy {
    locks: HashMap<ResourceId, Grants>,
    /// The resources whose grants have changed since the last report to the mirror, each
    /// with grants that have ended, at most [`GRANTS_SHOWN_MAX`].
    changed: HashMap<ResourceId, Vec<GrantView>>,
}

/// The grants of a resource. A map without readers takes no memory.
#[derive(Debug, Default)]
struct Grants {
    exclusive: Option<GrantView>,
    /// By the ends of their keys.
    readers: BTreeMap<Box<[u8]>, GrantView>,
}

impl StoreCopy {
    /// Notes that a key was written.
    pub(super) fn put(&mut self, keys: &Keys, pair: &KeyValue) {
        let Some((resource, part)) = grant_part(keys, pair.key()) else { return };
        let held = Held::of(keys, &resource, pair).filter(|held| held.record.id().is_some());
        let seen = held.map(|held| held.record.view());
        let id = seen.as_ref().and_then(|grant| grant.id);
        let grants = self.locks.entry(resource.clone()).or_default();
        let before = match (&part, seen) {
            (Part::Reader(reader), Some(seen)) => grants.readers.insert(reader.clone(), seen),
            (_, Some(seen)) => grants.exclusive.replace(seen),
            (_, None) => grants.remove(&part),
        };
        // One that was claimed or moved to another lease is no change for those who watch.
        if before.as_ref().and_then(|before| before.id) != id {
            self.note(&resource, before);
        }
        self.forget_if_free(&resource);
    }

    /// Notes that a key was deleted.
    pub(super) fn delete(&mut self, keys: &Keys, pair: &KeyValue) {
        let Some((resource, part)) = grant_part(keys, pair.key()) else { return };
        let Some(grants) = self.locks.get_mut(&resource) else { return };
        let Some(seen) = grants.remove(&part) else { return };
        self.note(&resource, Some(seen));
        self.forget_if_free(&resource);
    }

    /// Reports the resources that have changed since the last call to the mirror.
    pub(super) fn report_changes(&mut self, mirror: &Mirror) {
        let unknown = |grant| EndedGrant { grant, cause: EndCause::Unknown };
        for (lock, ended) in self.take_changes() {
            mirror.set(lock, ended.into_iter().map(unknown).collect());
        }
    }

    /// The resources that have changed, as they are now, each with grants that have ended.
    fn take_changes(&mut self) -> Vec<(LockView, Vec<GrantView>)> {
        let changed = std::mem::take(&mut self.changed).into_iter();
        changed.map(|(resource, ended)| (self.view(resource), ended)).collect()
    }

    fn view(&self, resource: ResourceId) -> LockView {
        let Some(grants) = self.locks.get(&resource) else { return LockView::free(resource) };
        let all = grants.exclusive.iter().chain(grants.readers.values());
        LockView {
            grants: all.take(GRANTS_SHOWN_MAX).cloned().collect(),
            grants_total: usize::from(grants.exclusive.is_some()) + grants.readers.len(),
            resource,
        }
    }

    fn note(&mut self, resource: &ResourceId, gone: Option<GrantView>) {
        let ended = self.changed.entry(resource.clone()).or_default();
        if ended.len() < GRANTS_SHOWN_MAX {
            ended.extend(gone);
        }
    }

    fn forget_if_free(&mut self, resource: &ResourceId) {
        let is_free = |grants: &Grants| grants.exclusive.is_none() && grants.readers.is_empty();
        if self.locks.get(resource).is_some_and(is_free) {
            self.locks.remove(resource);
        }
    }
}

impl Grants {
    fn remove(&mut self, part: &Part) -> Option<GrantView> {
        match part {
            Part::Reader(reader) => self.readers.remove(reader),
            _ => self.exclusive.take(),
        }
    }
}

/// The resource and the part of a key that can be a grant's.
fn grant_part(keys: &Keys, key: &[u8]) -> Option<(ResourceId, Part)> {
    keys.read(key).filter(|(_, part)| matches!(part, Part::Holder | Part::Reader(_)))
}

#[cfg(test)]
mod tests {
    use etcd_client::proto::PbKeyValue;
    use leasehold_lock::{Attempt, AttemptId, LockId, Mode};

    use super::*;
    use crate::{
        keys::GrantName,
        record::{Record, tests::attempt},
    };

    const LEASE: i64 = 7;
    const LEASE_TTL_S: u64 = 4;

    fn keys() -> Keys {
        Keys::new("p")
    }

    fn reader(resource: &str) -> Attempt {
        Attempt { mode: Mode::Shared, ..attempt(resource) }
    }

    fn pair(key: &str, value: Vec<u8>, at: i64) -> KeyValue {
        KeyValue(PbKeyValue {
            key: key.into(),
            value,
            create_revision: at,
            mod_revision: at,
            version: 1,
            lease: LEASE,
        })
    }

    fn key(attempt: &Attempt) -> String {
        keys().grant(&attempt.resource, &GrantName::of(attempt)).record().to_owned()
    }

    fn written(attempt: &Attempt) -> KeyValue {
        let record = Record::of(attempt, LEASE_TTL_S, 1_500);
        pair(&key(attempt), record.encode(), 5)
    }

    fn deleted(attempt: &Attempt) -> KeyValue {
        pair(&key(attempt), Vec::new(), 9)
    }

    fn put(copy: &mut StoreCopy, attempt: &Attempt) {
        copy.put(&keys(), &written(attempt));
    }

    /// How many grants the only changed resource has, and those that have ended.
    fn change(copy: &mut StoreCopy) -> (usize, Vec<GrantView>) {
        let mut changes = copy.take_changes();
        assert_eq!(changes.len(), 1, "{changes:?}");
        let (lock, gone) = changes.remove(0);
        (lock.grants_total, gone)
    }

    #[test]
    fn a_grant_and_its_end_are_changes() {
        let (mut copy, made) = (StoreCopy::default(), attempt("r"));
        put(&mut copy, &made);
        let (total, gone) = change(&mut copy);
        assert!(total == 1 && gone.is_empty());
        copy.delete(&keys(), &deleted(&made));
        let (total, gone) = change(&mut copy);
        assert_eq!((total, gone.len()), (0, 1));
        assert_eq!(gone[0].id, Some(made.id.into()));
        assert!(copy.locks.is_empty());
    }

    #[test]
    fn a_grant_that_was_moved_or_claimed_is_no_change() {
        let (mut copy, made) = (StoreCopy::default(), attempt("r"));
        put(&mut copy, &made);
        change(&mut copy);
        let record = Record::of(&made, LEASE_TTL_S, 1_500).claimed(AttemptId::random(), 31);
        let mut moved = pair(&key(&made), record.encode(), 5);
        moved.0.lease = LEASE + 1;
        copy.put(&keys(), &moved);
        assert!(copy.take_changes().is_empty());
    }

    #[test]
    fn a_grant_that_replaces_another_ends_it() {
        let (mut copy, made) = (StoreCopy::default(), attempt("r"));
        put(&mut copy, &made);
        change(&mut copy);
        let next = Attempt { id: AttemptId::random(), ..attempt("r") };
        put(&mut copy, &next);
        let (total, gone) = change(&mut copy);
        assert_eq!((total, gone.len()), (1, 1));
    }

    #[test]
    fn a_value_of_others_in_place_of_a_grant_ends_it() {
        let (mut copy, made) = (StoreCopy::default(), attempt("r"));
        put(&mut copy, &made);
        change(&mut copy);
        copy.put(&keys(), &pair(&key(&made), b"hello".into(), 6));
        let (total, gone) = change(&mut copy);
        assert_eq!((total, gone.len()), (0, 1));
    }

    #[test]
    fn all_readers_are_counted_and_the_first_are_shown() {
        let mut copy = StoreCopy::default();
        let mut readers: Vec<_> = (0..GRANTS_SHOWN_MAX + 5).map(|_| reader("r")).collect();
        for reader in &mut readers {
            reader.lock_id = LockId::random();
            put(&mut copy, reader);
        }
        let (lock, _) = copy.take_changes().remove(0);
        assert_eq!(lock.grants_total, readers.len());
        assert_eq!(lock.grants.len(), GRANTS_SHOWN_MAX);
        for reader in &readers[1..] {
            copy.delete(&keys(), &deleted(reader));
        }
        let (lock, gone) = copy.take_changes().remove(0);
        assert_eq!(lock.grants[0].id, Some(readers[0].id.into()));
        assert_eq!((lock.grants_total, gone.len()), (1, GRANTS_SHOWN_MAX));
    }

    #[test]
    fn neither_waiters_nor_keys_of_others_are_changes() {
        let (mut copy, made) = (StoreCopy::default(), attempt("r"));
        let record = written(&made).value().to_vec();
        for key in ["p/r/r/q/s-0000000000000001", "p/r/r/hx", "p/r/%/h", "p/s/x", "q"] {
            copy.put(&keys(), &pair(key, record.clone(), 5));
            copy.delete(&keys(), &pair(key, Vec::new(), 6));
        }
        assert!(copy.take_changes().is_empty() && copy.locks.is_empty());
    }
}

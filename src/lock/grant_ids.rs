//! Which grant a lock ID of a caller's choice named last.
//!
//! A caller may use a lock ID again, so a release must name the grant that is meant. This spares
//! it a read of that grant's ID.

use std::{collections::HashMap, mem};

use parking_lot::Mutex;

use super::{GrantId, registry::Lock};

/// How many lock IDs are noted before the older half is forgotten.
const YOUNG_MAX: usize = 16_384;

/// The grants of lock IDs that callers chose, as this process has made, found or renewed them.
/// They may have ended since.
#[derive(Default)]
pub(super) struct GrantIds(Mutex<Generations>);

/// The lock IDs that were noted last, and those before. So the longest unused are forgotten
/// without an order to keep.
#[derive(Default)]
struct Generations {
    young: HashMap<Lock, GrantId>,
    old: HashMap<Lock, GrantId>,
}

impl GrantIds {
    /// Notes the grant that a lock ID names.
    pub(super) fn note(&self, lock: Lock, id: GrantId) {
        self.0.lock().note(lock, id);
    }

    /// Notes the grant that a lock ID names, if one was noted before.
    pub(super) fn note_again(&self, lock: &Lock, id: GrantId) {
        let mut generations = self.0.lock();
        if generations.take(lock).is_some() {
            generations.note(lock.clone(), id);
        }
    }

    /// The grant that a lock ID named last.
    pub(super) fn get(&self, lock: &Lock) -> Option<GrantId> {
        let generations = self.0.lock();
        generations.young.get(lock).or_else(|| generations.old.get(lock)).copied()
    }

    /// Forgets a grant that has ended.
    pub(super) fn forget(&self, lock: &Lock, id: GrantId) {
        let mut generations = self.0.lock();
        if let Some(newer) = generations.take(lock).filter(|named| *named != id) {
            generations.note(lock.clone(), newer);
        }
    }
}

impl Generations {
    fn note(&mut self, lock: Lock, id: GrantId) {
        if self.young.len() >= YOUNG_MAX {
            self.old = mem::take(&mut self.young);
        }
        self.young.insert(lock, id);
    }

    fn take(&mut self, lock: &Lock) -> Option<GrantId> {
        let (young, old) = (self.young.remove(lock), self.old.remove(lock));
        young.or(old)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LockId;

    fn lock(number: usize) -> Lock {
        ("r".parse().unwrap(), LockId::new(&number.to_string()).unwrap())
    }

    fn id(number: usize) -> GrantId {
        GrantId::from_u128(number as u128)
    }

    #[test]
    fn the_longest_unused_lock_ids_are_forgotten() {
        let known = GrantIds::default();
        for number in 0..3 * YOUNG_MAX {
            known.note(lock(number), id(number));
            known.note_again(&lock(0), id(number));
            let generations = known.0.lock();
            let noted = generations.young.len() + generations.old.len();
            assert!(noted <= 2 * YOUNG_MAX, "{noted}");
        }
        let newest = 3 * YOUNG_MAX - 1;
        assert_eq!(known.get(&lock(newest)), Some(id(newest)));
        assert_eq!(known.get(&lock(0)), Some(id(newest)), "it was renewed");
        assert_eq!(known.get(&lock(1)), None);
    }

    #[test]
    fn a_renewal_notes_no_lock_id() {
        let known = GrantIds::default();
        known.note_again(&lock(0), id(1));
        assert_eq!(known.get(&lock(0)), None);
    }

    #[test]
    fn the_end_of_a_grant_leaves_the_next_one_of_its_lock_id() {
        let known = GrantIds::default();
        known.note(lock(0), id(1));
        known.note(lock(0), id(2));
        known.forget(&lock(0), id(1));
        assert_eq!(known.get(&lock(0)), Some(id(2)));
        known.forget(&lock(0), id(2));
        assert_eq!(known.get(&lock(0)), None);
    }
}

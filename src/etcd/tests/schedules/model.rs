//! A model of etcd's rules for transactions, as measured on 3.4 to 3.6.
//!
//! All comparisons see the state before the batch. The whole batch is refused if it writes
//! a key twice, or if a branch that is taken uses a dead lease. Nobody may ever be granted a
//! resource against a grant that excludes it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use fastrand::Rng;

use super::Refusal;

/// What one nested transaction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Write {
    /// Puts the key of the exclusive grant if there is no grant.
    Acquire { resource: u8, lease: i64 },
    /// Deletes the key of the exclusive grant if it is there.
    Release { resource: u8 },
    /// Puts the key of a shared grant if there is neither this nor the exclusive one.
    Share { resource: u8, reader: u8, lease: i64 },
    /// Deletes the key of a shared grant if it is there.
    Leave { resource: u8, reader: u8 },
    /// Puts a queue entry.
    Enter { entry: u32, lease: i64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Holder(u8),
    Reader(u8, u8),
    Entry(u32),
}

/// A model of an etcd server.
pub(super) struct Etcd {
    keys: BTreeMap<Key, i64>,
    leases: BTreeSet<i64>,
    leases_made: i64,
    ops_max: usize,
    /// How often each operation was applied.
    pub(super) applied: HashMap<u32, u32>,
}

impl Etcd {
    pub(super) fn new(ops_max: usize) -> Self {
        Self {
            keys: BTreeMap::new(),
            leases: BTreeSet::new(),
            leases_made: 0,
            ops_max,
            applied: HashMap::new(),
        }
    }

    /// A new lease, or an older one, which may be dead.
    pub(super) fn some_lease(&mut self, rng: &mut Rng) -> i64 {
        if self.leases_made == 0 || rng.bool() {
            self.leases_made += 1;
            self.leases.insert(self.leases_made);
            return self.leases_made;
        }
        rng.i64(1..=self.leases_made)
    }

    pub(super) fn kill_a_lease(&mut self, rng: &mut Rng) {
        if self.leases_made > 0 {
            let dead = rng.i64(1..=self.leases_made);
            self.leases.remove(&dead);
            self.keys.retain(|_, lease| *lease != dead);
        }
    }

    /// Whether the lease that a write needs is alive.
    pub(super) fn lives(&self, write: Write) -> bool {
        match write {
            Write::Acquire { lease, .. }
            | Write::Share { lease, .. }
            | Write::Enter { lease, .. } => self.leases.contains(&lease),
            Write::Release { .. } | Write::Leave { .. } => true,
        }
    }

    /// Applies a batch of nested transactions, and returns whether each one's comparison held.
    pub(super) fn transact(&mut self, writes: &[(u32, Write)]) -> Result<Vec<bool>, Refusal> {
        if writes.len() > self.ops_max {
            return Err(Refusal::TooManyOps);
        }
        let mut written = BTreeSet::new();
        let mut taken = Vec::new();
        for (_, write) in writes {
            let is_there = |key| self.keys.contains_key(&key);
            let has_readers = |resource| {
                let readers = Key::Reader(resource, 0)..=Key::Reader(resource, u8::MAX);
                self.keys.range(readers).next().is_some()
            };
            let (key, takes) = match *write {
                Write::Acquire { resource, .. } => {
                    let key = Key::Holder(resource);
                    (key, !is_there(key) && !has_readers(resource))
                }
                Write::Release { resource } => {
                    let key = Key::Holder(resource);
                    (key, is_there(key))
                }
                Write::Share { resource, reader, .. } => {
                    let key = Key::Reader(resource, reader);
                    (key, !is_there(key) && !is_there(Key::Holder(resource)))
                }
                Write::Leave { resource, reader } => {
                    let key = Key::Reader(resource, reader);
                    (key, is_there(key))
                }
                Write::Enter { entry, .. } => (Key::Entry(entry), true),
            };
            // etcd checks for duplicate keys in all branches, taken or not.
            if !written.insert(key) {
                return Err(Refusal::Other);
            }
            if takes && !self.lives(*write) {
                return Err(Refusal::LeaseNotFound);
            }
            taken.push(takes);
        }
        for ((number, write), takes) in writes.iter().zip(&taken) {
            *self.applied.entry(*number).or_default() += 1;
            match *write {
                _ if !takes => {}
                Write::Acquire { resource, lease } => {
                    self.keys.insert(Key::Holder(resource), lease);
                }
                Write::Release { resource } => {
                    self.keys.remove(&Key::Holder(resource));
                }
                Write::Share { resource, reader, lease } => {
                    self.keys.insert(Key::Reader(resource, reader), lease);
                }
                Write::Leave { resource, reader } => {
                    self.keys.remove(&Key::Reader(resource, reader));
                }
                Write::Enter { entry, lease } => {
                    self.keys.insert(Key::Entry(entry), lease);
                }
            }
        }
        for key in self.keys.keys() {
            if let Key::Reader(resource, _) = key {
                let is_held = self.keys.contains_key(&Key::Holder(*resource));
                assert!(!is_held, "{resource} has an exclusive grant and a shared one");
            }
        }
        Ok(taken)
    }
}

//! A walk through the keys of many resources, one read after the other.
//!
//! For each read etcd counts all keys of its range, however few of them it returns, and writes
//! wait meanwhile. A hundred thousand keys that are read 400 at a time would be counted 125
//! times. So a read asks only for names that have their beginning in common with the names that
//! were read last, and when there are no more of these, with a shorter beginning.
//!
//! The keys of a resource lie together: those of its grants, then those of requests, then those
//! of waiters. When a read ends among keys that are no grants, the next one begins at the next
//! resource, so a long queue is not read.

use etcd_client::KeyValue;

use crate::keys::{Keys, Part, key_after};

/// How many empty ranges are followed by one whose keys have just one byte less in common.
const STEPS_OF_1: u32 = 8;

/// How far a walk has come, and how far its next read goes.
pub(super) struct Walk<'a> {
    keys: &'a Keys,
    from: Vec<u8>,
    end: Vec<u8>,
    /// The next read asks for keys that have so many bytes in common with `from`. They never
    /// reach behind the name of a resource, so all keys of a resource are in the same range.
    depth: usize,
    /// How many reads in a row have found nothing.
    empty: u32,
}

impl<'a> Walk<'a> {
    /// A walk from one key to before another one. Any `depth` is right; one that an earlier
    /// walk had there saves etcd time.
    pub(super) fn new(keys: &'a Keys, from: Vec<u8>, end: Vec<u8>, depth: usize) -> Self {
        let depth = depth.min(keys.name_end(&from));
        Self { keys, from, end, depth, empty: 0 }
    }

    /// The range of the next read; `None` at the end of the walk.
    pub(super) fn range(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        (self.from < self.end).then(|| (self.from.clone(), self.range_end()))
    }

    /// Notes what the read found, and whether its range has more keys. Returns whether it ended
    /// among the shared grants of a resource.
    pub(super) fn advance(&mut self, found: &[KeyValue], is_more: bool) -> bool {
        match (found.first(), found.last()) {
            (Some(first), Some(last)) if is_more => {
                let (next, among_readers) = self.next_read(last.key());
                let common = common_length(first.key(), last.key());
                self.depth = common.min(self.keys.name_end(&next));
                self.empty = 0;
                self.from = next;
                among_readers
            }
            _ => {
                self.empty = if found.is_empty() { self.empty + 1 } else { 0 };
                self.from = self.range_end();
                // Steps of 1 first, because the range may become far larger with each; then ever
                // larger ones, because names may have long beginnings in common.
                let doublings = self.empty.saturating_sub(STEPS_OF_1);
                let shorter_by = 1_usize.checked_shl(doublings).unwrap_or(usize::MAX);
                self.depth = self.from.len().saturating_sub(shorter_by);
                false
            }
        }
    }

    /// How many bytes the keys of the next read have in common.
    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    fn range_end(&self) -> Vec<u8> {
        let mut end = self.from.clone();
        end.truncate(self.depth);
        // The end of the range of keys that begin so. There is none behind bytes of 0xFF only.
        while end.pop_if(|last| *last == u8::MAX).is_some() {}
        match end.last_mut() {
            Some(last) => *last += 1,
            None => return self.end.clone(),
        }
        end.min(self.end.clone())
    }

    /// Where a read begins after one that ended with this key, and whether that is among the
    /// shared grants of a resource.
    fn next_read(&self, last: &[u8]) -> (Vec<u8>, bool) {
        match self.keys.read(last) {
            Some((_, Part::Reader(_))) => (key_after(last), true),
            // Somebody else's key, before those of the grants.
            Some((resource, _)) if last < self.keys.holder(&resource).as_bytes() => {
                (key_after(last), false)
            }
            _ => (self.keys.behind(last), false),
        }
    }
}

fn common_length(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

#[cfg(test)]
mod tests {
    use etcd_client::proto::PbKeyValue;
    use leasehold_lock::{LockId, Mode, ResourceId};
    use proptest::{
        collection::{btree_map, vec},
        prelude::*,
        test_runner::FileFailurePersistence,
    };

    use super::*;
    use crate::keys::{EntryId, GrantName, range_end};

    /// What a walk has cost etcd.
    #[derive(Debug, Default)]
    struct Cost {
        reads: usize,
        counted: usize,
    }

    fn pair(key: &[u8]) -> KeyValue {
        KeyValue(PbKeyValue { key: key.into(), ..PbKeyValue::default() })
    }

    fn start() -> (Keys, Vec<u8>, Vec<u8>) {
        let keys = Keys::new("p");
        let range = keys.named("");
        let end = range_end(&range);
        (keys, range.into_bytes(), end)
    }

    /// Walks through sorted keys, `limit` at a time. With pages, each begins anew behind the
    /// last but one name that the page before has read, as those of a list do.
    fn walk(all: &[Vec<u8>], limit: usize, in_pages: bool) -> (Vec<Vec<u8>>, Cost) {
        let (keys, from, end) = start();
        let (mut read, mut cost) = (Vec::new(), Cost::default());
        let mut walk = Walk::new(&keys, from, end.clone(), 0);
        while let Some((from, to)) = walk.range() {
            assert!(from < to && to <= end);
            let begin = all.partition_point(|key| *key < from);
            let count = all[begin..].partition_point(|key| *key < to);
            let mut found = &all[begin..begin + count.min(limit)];
            cost.reads += 1;
            cost.counted += count;
            let pairs: Vec<_> = found.iter().map(|key| pair(key)).collect();
            let among_readers = walk.advance(&pairs, count > limit);
            if in_pages && !among_readers && count > limit {
                let last = found.last().map(|key| key[..keys.name_end(key)].to_vec()).unwrap();
                let done = found.partition_point(|key| key[..keys.name_end(key)] < *last);
                if done > 0 {
                    found = &found[..done];
                    let from = keys.behind(&found[done - 1]);
                    walk = Walk::new(&keys, from, end.clone(), walk.depth());
                }
            }
            read.extend_from_slice(found);
        }
        (read, cost)
    }

    fn is_grant(key: &[u8]) -> bool {
        let (keys, ..) = start();
        matches!(keys.read(key), Some((_, Part::Holder | Part::Reader(_))))
    }

    fn keys_of(name: &str, readers: u8, waiters: u8) -> Vec<Vec<u8>> {
        let (keys, ..) = start();
        let Ok(resource) = ResourceId::new(name) else { return Vec::new() };
        let mut all = Vec::new();
        if readers == 0 {
            all.push(keys.holder(&resource));
        }
        for _ in 0..readers {
            let lock_id = LockId::random();
            let name = GrantName { mode: Mode::Shared, lock_id, request: None };
            all.push(keys.grant(&resource, &name).record().to_owned());
        }
        for seq in 0..waiters.into() {
            let entry = EntryId { session: "s".into(), seq, shared: false };
            all.push(keys.entry(&resource, &entry));
        }
        all.into_iter().map(String::into_bytes).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: Some(Box::new(FileFailurePersistence::WithSource(
                "proptest-regressions",
            ))),
            ..ProptestConfig::default()
        })]

        #[test]
        fn a_walk_reads_each_grant_once_and_in_order(
            resources in btree_map("[ab./0%é]{1,6}", (0..9_u8, 0..9_u8), 0..40),
            foreign in vec("p/r/[ab./0é]{0,6}", 0..10),
            limit in 1..12_usize,
            in_pages: bool,
        ) {
            let resources = resources.iter().flat_map(|(name, (r, w))| keys_of(name, *r, *w));
            let mut all: Vec<_> =
                resources.chain(foreign.into_iter().map(String::into_bytes)).collect();
            all.push(b"p/r/\xff\xff/h".to_vec());
            all.sort();
            all.dedup();
            let (read, cost) = walk(&all, limit, in_pages);
            prop_assert!(cost.reads <= 20 * (all.len() + 1), "{cost:?}");
            prop_assert!(read.is_sorted());
            let grants = |keys: Vec<Vec<u8>>| -> Vec<_> {
                keys.into_iter().filter(|key| is_grant(key)).collect()
            };
            prop_assert_eq!(grants(read), grants(all));
        }
    }

    /// With ranges that went to the end, etcd counted each key more than a hundred times.
    #[test]
    fn a_key_is_counted_fewer_than_twenty_times_however_many_keys_there_are() {
        const KEYS: usize = 100_000;
        let hash = |n: usize| uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, &n.to_be_bytes());
        let names: [&dyn Fn(usize) -> String; 4] = [
            &|n| format!("held-{n}"),
            &|n| format!("lock||app||order-{n:012}"),
            &|n| format!("lock||app-{}||{}", n % 7, hash(n)),
            &|n| format!("tenant-{}/{}", n / 1000, hash(n)),
        ];
        for name in names {
            let mut all: Vec<_> = (0..KEYS).flat_map(|n| keys_of(&name(n), 0, 0)).collect();
            all.sort();
            for (limit, in_pages) in [(400, false), (400, true), (101, true)] {
                let (read, cost) = walk(&all, limit, in_pages);
                assert_eq!(read.len(), KEYS);
                assert!(cost.counted < 20 * KEYS, "{}, {limit}: {cost:?}", name(7));
                assert!(cost.reads < 6 * KEYS / limit, "{}, {limit}: {cost:?}", name(7));
            }
        }
    }
}

//! How fast each leasehold process answered.
//!
//! A process needs several steps to enter a wait into its queue, each as slow as a short
//! call. On an overloaded machine this can take seconds without any fault.

use std::collections::HashMap;

use crate::history::{Call, Operation};

const BUCKET_NS: u64 = 100_000_000;

/// For each process and time, the slowest short call that was under way. Every call except
/// a wait is short.
#[derive(Debug, Default)]
pub(crate) struct Pace(HashMap<Option<u32>, HashMap<u64, u64>>);

impl Pace {
    /// The pace of a history. Calls without an answer do not count.
    pub(super) fn of(operations: &[&Operation]) -> Self {
        let mut pace = Self::default();
        for operation in operations {
            let is_wait = matches!(operation.invocation.call, Call::Lock { .. });
            if is_wait || operation.known().is_none() {
                continue;
            }
            let (from_ns, until_ns) = (operation.invoked_ns(), operation.completed_ns());
            let of_process = pace.0.entry(operation.invocation.via).or_default();
            for bucket in from_ns / BUCKET_NS..=until_ns / BUCKET_NS {
                let slowest_ns = of_process.entry(bucket).or_default();
                *slowest_ns = (*slowest_ns).max(until_ns - from_ns);
            }
        }
        pace
    }

    /// The slowest short call of a process that was under way between two moments.
    pub(super) fn slowest_ns(&self, via: Option<u32>, from_ns: u64, until_ns: u64) -> u64 {
        self.0.get(&via).map_or(0, |of_process| slowest_ns(of_process, from_ns, until_ns))
    }

    /// The slowest short call of any process that was under way between two moments.
    pub(super) fn slowest_of_all_ns(&self, from_ns: u64, until_ns: u64) -> u64 {
        let slowest = self.0.values().map(|it| slowest_ns(it, from_ns, until_ns));
        slowest.max().unwrap_or(0)
    }
}

fn slowest_ns(of_process: &HashMap<u64, u64>, from_ns: u64, until_ns: u64) -> u64 {
    let buckets = from_ns / BUCKET_NS..=until_ns / BUCKET_NS;
    buckets.filter_map(|bucket| of_process.get(&bucket)).copied().max().unwrap_or(0)
}

//! The faults and the backend, which the rules need besides the calls.

use super::{losses::Write, pace::Pace};
use crate::{
    faults::{Injected, LEFT_WITHIN_NS, Voids},
    history::Operation,
    world::Backend,
};

/// How long after its return a suspended leader may revoke leases; 3 s were observed.
const REVOKES_ON_NS: u64 = 5_000_000_000;

/// How many steps, each as slow as a short call, a slow process needs to leave the former master.
const STEPS_TO_LEAVE: u64 = 4;

/// The faults and the backend, which the rules need besides the calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Environment<'a> {
    pub(crate) backend: Backend,
    pub(crate) faults: &'a [Injected],
    pub(crate) pace: &'a Pace,
    /// The writes that promotions may have lost.
    pub(crate) losses: &'a [Write],
}

impl Environment<'_> {
    /// Whether no fault was under way from `from_ns` to `until_ns`.
    pub(crate) fn calm(&self, from_ns: u64, until_ns: u64) -> bool {
        !self.faults.iter().any(|fault| fault.from_ns <= until_ns && fault.until_ns >= from_ns)
    }

    /// Whether an unlock may succeed though another call ended the grant. On etcd it does if
    /// its first reply was lost (docs/guarantees.md). On Redis its outcome is then unknown,
    /// and the memory backend loses no reply.
    pub(crate) fn may_succeed_by_another(&self, unlock: &Operation) -> bool {
        self.backend == Backend::Etcd && self.loses_replies(unlock)
    }

    /// From when on what an answered call wrote may be gone, because a promoted replica had
    /// perhaps not received it; `None` if it must be there.
    pub(crate) fn lost_from_ns(&self, call: &Operation) -> Option<u64> {
        if !self.losses.contains(&Write::of(call)?) {
            return None;
        }
        // A wait is granted long after its call.
        let waited_ns = call.granted().map_or(0, |granted| granted.waited_ns);
        let sent_ns = call.invoked_ns().saturating_add(waited_ns);
        let promotions = self.faults.iter().filter(|fault| match fault.voids {
            Voids::AnsweredSince(since_ns) => {
                fault.concerns(&call.invocation.resource)
                    && call.completed_ns() >= since_ns
                    && sent_ns <= self.left_by_ns(fault)
            }
            _ => false,
        });
        promotions.map(|fault| fault.from_ns).min()
    }

    /// Whether what an answered call wrote may be gone by this moment.
    pub(crate) fn is_lost_by(&self, call: &Operation, at_ns: u64) -> bool {
        self.lost_from_ns(call).is_some_and(|lost_ns| lost_ns <= at_ns)
    }

    /// By when every process has left the former master after a promotion: later on a slow
    /// machine, or if one stands still or does not reach the Sentinels.
    fn left_by_ns(&self, promotion: &Injected) -> u64 {
        let over_ns = promotion.over_ns;
        let slowest_ns = self.pace.slowest_of_all_ns(over_ns, over_ns + LEFT_WITHIN_NS);
        let later_ns = (STEPS_TO_LEAVE * slowest_ns).min(LEFT_WITHIN_NS);
        let mut left_by_ns = over_ns.saturating_add(later_ns);
        for fault in self.faults.iter().filter(|fault| fault.delays_notices()) {
            if fault.from_ns <= left_by_ns && fault.over_ns >= promotion.from_ns {
                left_by_ns = left_by_ns.max(fault.over_ns.saturating_add(LEFT_WITHIN_NS));
            }
        }
        left_by_ns
    }

    /// Whether a waiter that was queued by `queued_by_ns` certainly keeps its place. A
    /// suspended leader of etcd revokes sessions for a while after its return, and their
    /// waiters queue again (docs/guarantees.md). The loss of a follower costs no place.
    pub(crate) fn keeps_places(&self, from_ns: u64, queued_by_ns: u64, until_ns: u64) -> bool {
        !self.faults.iter().any(|fault| {
            let stood_still =
                ["etcd-leader-suspended", "etcd-member-suspended", "etcd-all-suspended"];
            let felt_until_ns = if stood_still.contains(&&*fault.name) {
                fault.until_ns.saturating_add(REVOKES_ON_NS)
            } else {
                fault.until_ns
            };
            let takes_places = !fault.is_follower_loss() || fault.from_ns <= queued_by_ns;
            takes_places && fault.from_ns <= until_ns && felt_until_ns >= from_ns
        })
    }

    /// For how long there were faults between two moments.
    pub(crate) fn faulty_for_ns(&self, from_ns: u64, until_ns: u64) -> u64 {
        let outages = self.outages(from_ns, until_ns, 0, |_| true);
        outages.iter().map(|(begin, end)| end.min(&until_ns) - begin.max(&from_ns)).sum()
    }

    /// How long the longest outage took of those that affected waits between two moments.
    /// Two that are at most `apart_ns` apart count as one.
    pub(crate) fn longest_outage_ns(&self, from_ns: u64, until_ns: u64, apart_ns: u64) -> u64 {
        // Waiting needs no memory in Redis.
        let outages = self
            .outages(from_ns, until_ns, apart_ns, |fault| fault.name != "redis-out-of-memory");
        outages.iter().map(|(begin, end)| end - begin).max().unwrap_or(0)
    }

    /// The times of these faults that touch a time. Two that are at most `apart_ns` apart
    /// are one.
    pub(crate) fn outages(
        &self,
        from_ns: u64,
        until_ns: u64,
        apart_ns: u64,
        counts: impl Fn(&Injected) -> bool,
    ) -> Vec<(u64, u64)> {
        let faults = self.faults.iter().filter(|fault| counts(fault));
        let mut faults: Vec<_> = faults.map(|fault| (fault.from_ns, fault.until_ns)).collect();
        faults.sort_unstable();
        let mut outages: Vec<(u64, u64)> = Vec::new();
        for (begin, end) in faults {
            match outages.last_mut() {
                Some(last) if begin <= last.1.saturating_add(apart_ns) => {
                    last.1 = last.1.max(end);
                }
                _ => outages.push((begin, end)),
            }
        }
        outages.retain(|(begin, end)| *begin <= until_ns && *end >= from_ns);
        outages
    }

    /// Whether a leasehold process, and with it its calls, ended in this time.
    pub(crate) fn ends_processes(&self, from_ns: u64, until_ns: u64) -> bool {
        self.faults.iter().any(|fault| {
            fault.ends_processes() && fault.from_ns <= until_ns && fault.until_ns >= from_ns
        })
    }

    /// By when the process of a call without an answer had died. It may be any client
    /// process that was killed after the call.
    pub(crate) fn died_by_ns(&self, call: &Operation) -> u64 {
        let killed = self.faults.iter().filter(|fault| {
            ["client-killed", "crowd-killed", "crowd-killed-with-leasehold"]
                .contains(&&*fault.name)
                && fault.over_ns >= call.invoked_ns()
        });
        killed.map(|fault| fault.over_ns).max().unwrap_or(u64::MAX)
    }

    /// Whether a reply that concerns a call may have been lost. A client of a front repeats
    /// its call if it gets no reply, for any reason.
    pub(crate) fn loses_replies(&self, call: &Operation) -> bool {
        let (from_ns, until_ns) = (call.invoked_ns(), call.completed_ns());
        self.faults.iter().any(|fault| {
            (fault.loses_replies() || call.is_through_front())
                && fault.from_ns <= until_ns
                && fault.until_ns >= from_ns
        })
    }
}

//! Waiters are served in order, and nobody starves.
//!
//! The order that is promised is the one in which the backend applied the
//! waiters' entries, which no client sees. Two waits are taken for ordered only
//! if the second was invoked well after the first had arrived, with no fault under way from
//! before the first until the second was served. A try that was invoked so late
//! must not be granted before the wait either.

use super::{Rule, Surroundings, Violation, at, resource::ResourceHistory};
use crate::{
    history::{Call, LAST_WAITS, Operation, Outcome},
    world::Backend,
};

/// How long after its arrival a wait is certainly in the queue.
const QUEUED_AFTER_NS: u64 = 400_000_000;
/// The same on etcd, with a disk and a cluster in the way.
const QUEUED_AFTER_ETCD_NS: u64 = 1_000_000_000;
/// How long before its end a wait may already be leaving the queue.
pub(super) const LEAVING_NS: u64 = 300_000_000;
/// For how long a resource may be free although somebody waits: a waiter whose
/// process died is passed over within 4 s.
const FREE_NS_MAX: u64 = 5_500_000_000;

/// Checks the order of the waits, and that each that could be served was.
pub(crate) fn check(
    history: &ResourceHistory<'_>,
    surroundings: Surroundings<'_>,
    found: &mut Vec<Violation>,
) {
    for (first, second) in ordered(history, surroundings) {
        if overtaken(first, second) {
            found.push(Violation {
                rule: Rule::InOrder,
                resource: history.name.into(),
                what: format!(
                    "a wait since {} was overtaken by a {} of {}, granted at {}",
                    at(history, first.invoked_ns()),
                    second.invocation.call.name(),
                    at(history, second.invoked_ns()),
                    at(history, second.completed_ns()),
                ),
                calls: vec![first.invocation.id, second.invocation.id],
            });
        }
    }
    for wait in history.waits().filter(|wait| wait.invocation.process == LAST_WAITS) {
        // What it may still have to wait for is looked at below.
        let came_to_an_end = wait.granted().is_some()
            || wait.known() == Some(&Outcome::WaitDeadline)
            || !surroundings.calm(wait.invoked_ns(), ended_ns(wait));
        if !came_to_an_end {
            found.push(Violation {
                rule: Rule::Served,
                resource: history.name.into(),
                what: format!("once all was well again a wait came to {:?}", wait.completion),
                calls: vec![wait.invocation.id],
            });
        }
    }
    for wait in history.waits() {
        if let Some((from_ns, until_ns)) = passed_over(history, wait, surroundings) {
            found.push(Violation {
                rule: Rule::Served,
                resource: history.name.into(),
                what: format!(
                    "a wait from {} to {} was not served, and nobody held from {} to {}",
                    at(history, wait.invoked_ns()),
                    at(history, ended_ns(wait)),
                    at(history, from_ns),
                    at(history, until_ns),
                ),
                calls: vec![wait.invocation.id],
            });
        }
    }
}

/// How many pairs have a certain order.
pub(crate) fn ordered_pairs(
    history: &ResourceHistory<'_>,
    surroundings: Surroundings<'_>,
) -> usize {
    ordered(history, surroundings).count()
}

/// Every wait with every grant that was asked for certainly later, both while
/// nothing was wrong. A request ID may find an older place or an older grant,
/// so those that have one are left out.
fn ordered<'h>(
    history: &'h ResourceHistory<'_>,
    surroundings: Surroundings<'h>,
) -> impl Iterator<Item = (&'h Operation, &'h Operation)> {
    let queued_after_ns = match surroundings.backend {
        Backend::Etcd => QUEUED_AFTER_ETCD_NS,
        Backend::Memory | Backend::Redis => QUEUED_AFTER_NS,
    };
    let granted = move |since_ns| {
        history.operations.iter().copied().filter(move |operation| {
            operation.granted().is_some()
                && !is_repeatable(operation)
                && operation.invoked_ns() > since_ns
        })
    };
    history.waits().filter(|wait| !is_repeatable(wait)).flat_map(move |wait| {
        granted(arrived_ns(wait) + queued_after_ns)
            .filter(move |later| {
                let from_ns = wait.invoked_ns().saturating_sub(LEAVING_NS);
                later.invoked_ns() < ended_ns(wait)
                    && surroundings.calm(from_ns, later.completed_ns())
                    && !surroundings.loses_places(from_ns, later.completed_ns())
            })
            .map(move |later| (wait, later))
    })
}

/// By when a wait had arrived. What it was told to have waited says so, however
/// long its process or leasehold's stood still; of one that was not granted only
/// its invocation is known.
fn arrived_ns(wait: &Operation) -> u64 {
    wait.granted().map_or(wait.invoked_ns(), |granted| {
        wait.completed_ns().saturating_sub(granted.waited_ns).max(wait.invoked_ns())
    })
}

fn overtaken(first: &Operation, second: &Operation) -> bool {
    match (first.granted(), second.granted()) {
        (Some(first), Some(second)) => second.token < first.token,
        // One whose outcome is not known may never have stood in the queue.
        (None, Some(_)) if first.known().is_none() => false,
        (None, Some(_)) => ended_ns(first).saturating_sub(LEAVING_NS) > second.completed_ns(),
        _ => false,
    }
}

/// Until when a wait can have been in the queue: until its answer, its
/// cancellation or its deadline; not at all if its process died.
fn ended_ns(wait: &Operation) -> u64 {
    let deadline_ns = match &wait.invocation.call {
        Call::Lock { wait_ms, .. } => {
            wait.invoked_ns() + wait_ms.saturating_sub((wait_ms / 10).min(50)) * 1_000_000
        }
        _ => u64::MAX,
    };
    match &wait.completion {
        Some((at_ns, _)) => deadline_ns.min(*at_ns),
        None => wait.invoked_ns(),
    }
}

fn is_repeatable(operation: &Operation) -> bool {
    operation.invocation.call.acquisition().is_some_and(|asked| asked.request_id.is_some())
}

/// A time in which nobody can have held, nothing was wrong, and a wait was not
/// served.
fn passed_over(
    history: &ResourceHistory<'_>,
    wait: &Operation,
    surroundings: Surroundings<'_>,
) -> Option<(u64, u64)> {
    if wait.known() != Some(&Outcome::WaitDeadline) {
        return None;
    }
    let until_ns = ended_ns(wait);
    let mut free_from_ns = wait.invoked_ns();
    let mut busy: Vec<_> = perhaps_held(history, surroundings.backend);
    for fault in surroundings.faults {
        busy.push((fault.from_ns, fault.until_ns));
    }
    busy.sort_unstable();
    busy.push((until_ns, until_ns));
    for (from_ns, to_ns) in busy {
        let free_until_ns = from_ns.min(until_ns);
        if free_until_ns > free_from_ns.saturating_add(FREE_NS_MAX) {
            return Some((free_from_ns, free_until_ns));
        }
        free_from_ns = free_from_ns.max(to_ns);
    }
    None
}

/// Every time in which somebody may have held.
fn perhaps_held(history: &ResourceHistory<'_>, backend: Backend) -> Vec<(u64, u64)> {
    let late_ns = match backend {
        // A lease is granted a second more, and lives on over an election.
        Backend::Etcd => 4_000_000_000,
        Backend::Memory | Backend::Redis => 500_000_000,
    };
    let known = history.grants.iter().map(|grant| {
        let expired_ns = grant
            .terms
            .iter()
            .map(|term| {
                let asked_ns =
                    term.operation.completion.as_ref().map_or(u64::MAX, |(at, _)| *at);
                asked_ns.saturating_add(term.ttl_ns).saturating_add(late_ns)
            })
            .max()
            .unwrap_or(u64::MAX);
        let unlocked_ns = grant
            .unlocks
            .iter()
            .filter(|unlock| unlock.known() == Some(&Outcome::Unlocked))
            .map(|unlock| unlock.completed_ns())
            .min()
            .unwrap_or(u64::MAX);
        (grant.invoked_ns(), expired_ns.min(unlocked_ns))
    });
    let unknown = history.unknown_acquisitions().map(|operation| {
        let asked = operation.invocation.call.acquisition();
        let ttl_ns = asked.map_or(0, |asked| asked.ttl_ms * 1_000_000).max(2_000_000_000);
        let given_up_ns = operation
            .completion
            .as_ref()
            .map_or(operation.invoked_ns().saturating_add(8_000_000_000), |(at, _)| *at);
        (operation.invoked_ns(), given_up_ns.saturating_add(ttl_ns).saturating_add(late_ns))
    });
    known.chain(unknown).collect()
}

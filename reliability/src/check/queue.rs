//! Waiters are served in order.
//!
//! The order that is promised is the one in which the backend applied the
//! waiters' entries, which no client sees. Two waits are taken for ordered only
//! if the second was invoked well after the first had arrived, measured by how long the
//! process of the first took for its other calls at that time, and no fault was under way
//! meanwhile. A fault may cost a wait its place. It must have one again some seconds later,
//! so a fault that was over so long before the second wait excuses nothing. A try that was
//! invoked so late must not be granted before the wait either.

use super::{Rule, Surroundings, Violation, at, resource::ResourceHistory};
use crate::{
    history::{Call, LAST_WAITS, Operation, Outcome},
    world::Backend,
};

/// How long after its arrival a wait is certainly in the queue.
const QUEUED_AFTER_NS: u64 = 400_000_000;
/// The same on etcd, with a disk and a cluster in the way.
const QUEUED_AFTER_ETCD_NS: u64 = 1_000_000_000;
/// How many steps, each as slow as a short call, a wait takes more than that when its
/// process is slow.
const STEPS_TO_ENTER: u64 = 4;
/// How long before its end a wait may already be leaving the queue.
pub(super) const LEAVING_NS: u64 = 300_000_000;
/// How long after a fault a wait that it cost its place certainly has one again.
const QUEUED_AGAIN_NS: u64 = 4_000_000_000;

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
                && !matches!(operation.invocation.call, Call::ForeignTry(_))
                && !is_repeatable(operation)
                && operation.invoked_ns() > since_ns
        })
    };
    history.waits().filter(|wait| !is_repeatable(wait)).flat_map(move |wait| {
        granted(arrived_ns(wait) + queued_after_ns)
            .filter(move |later| {
                let via = wait.invocation.via;
                let slowest_ns =
                    surroundings.pace.slowest_ns(via, wait.invoked_ns(), later.invoked_ns());
                let queued_by_ns =
                    arrived_ns(wait) + queued_after_ns + STEPS_TO_ENTER * slowest_ns;
                let again_by_ns = later.invoked_ns().saturating_sub(queued_after_ns);
                let from_ns = wait
                    .invoked_ns()
                    .saturating_sub(LEAVING_NS)
                    .max(again_by_ns.saturating_sub(QUEUED_AGAIN_NS));
                (queued_by_ns..ended_ns(wait)).contains(&later.invoked_ns())
                    && surroundings.keeps_places(from_ns, queued_by_ns, later.completed_ns())
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

/// How long before its deadline a wait of so many milliseconds is answered: 50 ms and
/// a hundredth of its time, at most a tenth of it and at most 250 ms.
pub(super) fn answer_margin_ms(wait_ms: u64) -> u64 {
    (wait_ms / 10).min(50 + wait_ms / 100).min(250)
}

/// Until when a wait can have been in the queue: until its answer, its
/// cancellation or its deadline; not at all if its process died.
pub(super) fn ended_ns(wait: &Operation) -> u64 {
    let deadline_ns = match &wait.invocation.call {
        Call::Lock { wait_ms, .. } => {
            wait.invoked_ns() + wait_ms.saturating_sub(answer_margin_ms(*wait_ms)) * 1_000_000
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

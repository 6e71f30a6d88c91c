//! Waiters are served in order.
//!
//! The promised order is the one in which the backend applied the waiters' entries, which no
//! client sees. So two waits are compared only if the second was invoked well after the
//! first had arrived, and no fault was under way in between. How long "well after" is
//! depends on how slow other calls of the first wait's process were at that time. After a
//! fault a wait may have lost its place, but must have a new one some seconds later, so
//! earlier faults are no excuse. A try that is invoked so late must not be granted before
//! the wait either. Two shared requests are not compared, because they may be granted
//! together.

use super::{
    environment::Environment,
    resource::ResourceHistory,
    rule::{Rule, Violation},
};
use crate::{
    history::{Call, LAST_WAITS, Operation, Outcome},
    world::Backend,
};

/// How long after its arrival a wait is certainly queued.
const QUEUED_AFTER_NS: u64 = 400_000_000;
/// The same on etcd, which is slower.
const QUEUED_AFTER_ETCD_NS: u64 = 1_000_000_000;
/// How many more steps, each as slow as a short call, a wait takes in a slow process.
const STEPS_TO_ENTER: u64 = 4;
/// How long before its end a wait may already be leaving the queue.
pub(super) const LEAVING_NS: u64 = 300_000_000;
/// How long after a fault a wait that lost its place certainly has a new one.
const QUEUED_AGAIN_NS: u64 = 4_000_000_000;

/// Checks the order of the waits, and that each wait that could be served was served.
pub(crate) fn check(
    history: &ResourceHistory<'_>,
    environment: Environment<'_>,
    found: &mut Vec<Violation>,
) {
    for (first, second) in ordered(history, environment) {
        if overtaken(first, second) {
            found.push(Violation {
                rule: Rule::InOrder,
                resource: history.name.into(),
                what: format!(
                    "a wait since {} was overtaken by a {} that was invoked at {} and granted at {}",
                    history.at(first.invoked_ns()),
                    second.invocation.call.name(),
                    history.at(second.invoked_ns()),
                    history.at(second.completed_ns()),
                ),
                calls: vec![first.invocation.id, second.invocation.id],
            });
        }
    }
    for wait in history.waits().filter(|wait| wait.invocation.process == LAST_WAITS) {
        // Whether it had to wait until its deadline is checked elsewhere.
        let ended_as_expected = wait.granted().is_some()
            || wait.known() == Some(&Outcome::WaitDeadline)
            || !environment.calm(wait.invoked_ns(), ended_ns(wait));
        if !ended_as_expected {
            found.push(Violation {
                rule: Rule::Served,
                resource: history.name.into(),
                what: format!(
                    "after the last fault was over, a wait ended with {:?}",
                    wait.completion
                ),
                calls: vec![wait.invocation.id],
            });
        }
    }
}

/// How many pairs of calls have a certain order.
pub(crate) fn ordered_pairs(
    history: &ResourceHistory<'_>,
    environment: Environment<'_>,
) -> usize {
    ordered(history, environment).count()
}

/// Every wait, with each granted call that excludes it and certainly came after it while
/// there was no fault. Calls with a request ID are left out, because they may find an older
/// place or an older grant.
fn ordered<'h>(
    history: &'h ResourceHistory<'_>,
    environment: Environment<'h>,
) -> impl Iterator<Item = (&'h Operation, &'h Operation)> {
    let queued_after_ns = queued_after_ns(environment);
    // Bounds are checked first: few of millions of pairs remain.
    let granted = move |since_ns, until_ns| {
        history.operations.iter().copied().filter(move |operation| {
            operation.invoked_ns() > since_ns
                && operation.invoked_ns() < until_ns
                && operation.granted().is_some()
                && !matches!(operation.invocation.call, Call::ForeignTry(_))
                && !is_repeatable(operation)
        })
    };
    history.waits().filter(|wait| !is_repeatable(wait)).flat_map(move |wait| {
        granted(arrived_ns(wait) + queued_after_ns, ended_ns(wait))
            .filter(move |later| wait.mode().excludes(later.mode()))
            .filter(move |later| is_before(wait, later, environment))
            .map(move |later| (wait, later))
    })
}

/// Whether a wait was certainly queued when a later call was invoked, and kept its place
/// until that call was answered.
pub(super) fn is_before(
    wait: &Operation,
    later: &Operation,
    environment: Environment<'_>,
) -> bool {
    let queued_after_ns = queued_after_ns(environment);
    let via = wait.invocation.via;
    let slowest_ns = environment.pace.slowest_ns(via, wait.invoked_ns(), later.invoked_ns());
    let queued_by_ns = arrived_ns(wait) + queued_after_ns + STEPS_TO_ENTER * slowest_ns;
    let again_by_ns = later.invoked_ns().saturating_sub(queued_after_ns);
    let from_ns = wait
        .invoked_ns()
        .saturating_sub(LEAVING_NS)
        .max(again_by_ns.saturating_sub(QUEUED_AGAIN_NS));
    let answered_ns = later.completion.as_ref().map_or(u64::MAX, |(at_ns, _)| *at_ns);
    queued_by_ns <= later.invoked_ns()
        && environment.keeps_places(from_ns, queued_by_ns, answered_ns)
}

fn queued_after_ns(environment: Environment<'_>) -> u64 {
    match environment.backend {
        Backend::Etcd => QUEUED_AFTER_ETCD_NS,
        _ => QUEUED_AFTER_NS,
    }
}

/// By when a wait had arrived. If it was granted, its answer has the time that it
/// waited, even if a process was suspended in between. Otherwise only its invocation is
/// known.
fn arrived_ns(wait: &Operation) -> u64 {
    wait.granted().map_or(wait.invoked_ns(), |granted| {
        wait.completed_ns().saturating_sub(granted.waited_ns).max(wait.invoked_ns())
    })
}

fn overtaken(first: &Operation, second: &Operation) -> bool {
    match (first.granted(), second.granted()) {
        // The order of two grants is unknown unless both tokens are known.
        (Some(_), Some(second)) if second.token == 0 => false,
        (Some(first), Some(second)) => second.token < first.token,
        // A wait of unknown outcome may never have been queued.
        (None, Some(_)) if first.known().is_none() => false,
        (None, Some(_)) => ended_ns(first).saturating_sub(LEAVING_NS) > second.completed_ns(),
        _ => false,
    }
}

/// How long before its deadline a wait of `wait_ms` is answered: 50 ms and a hundredth of
/// its time, but at most a tenth of it and at most 250 ms.
pub(super) fn answer_margin_ms(wait_ms: u64) -> u64 {
    (wait_ms / 10).min(50 + wait_ms / 100).min(250)
}

/// Until when a wait was certainly queued: until its answer, its cancellation or its
/// deadline. A wait whose process died may not have been queued at all.
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

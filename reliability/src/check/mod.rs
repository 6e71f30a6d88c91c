//! Checks a history against leasehold's promises.
//!
//! Pure functions: from a history and its faults to violations. Each rule reports only what
//! no correct lock store could have done. It allows for what the faults may have broken,
//! and for a call of unknown outcome to take effect at any time after its invocation, or
//! never.

mod effects;
mod environment;
mod exclusion;
mod faults;
mod free;
mod grants;
mod holding;
mod leases;
mod lifetimes;
mod losses;
mod outages;
mod pace;
mod queue;
mod renewals;
mod resource;
mod rule;
mod tokens;

#[cfg(test)]
mod story;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::{faults::Injected, history::Operation, world::Backend};
use environment::Environment;
use pace::Pace;
use resource::ResourceHistory;

pub(crate) use holding::safe_ns;
pub use leases::leases_left_max;
pub use losses::{Excused, Write};
pub(crate) use renewals::RENEWED_WITHIN;
pub use rule::{Rule, Violation};

/// The result of a check.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// How many calls were checked: all that were sent.
    pub operations: usize,
    /// How many of those have an unknown outcome.
    pub unknown: usize,
    /// How many grants they made.
    pub grants: usize,
    /// How many pairs of calls were compared because their order in the queue is certain.
    pub ordered_pairs: usize,
    /// How many resources there are; each has a history of its own.
    pub histories: usize,
    /// How many operations had been invoked by the first violation.
    pub found_at: Option<usize>,
    /// The violations, in order of their last call.
    pub violations: Vec<Violation>,
    /// How many more there would be if no failover had lost a write.
    pub excused: Excused,
}

/// Checks the history of one run.
#[must_use]
pub fn check(backend: Backend, operations: &[Operation], faults: &[Injected]) -> Verdict {
    let mut of_resource: BTreeMap<&str, Vec<&Operation>> = BTreeMap::new();
    let operations: Vec<_> =
        operations.iter().filter(|operation| operation.was_sent()).collect();
    let pace = Pace::of(&operations);
    let environment = Environment { backend, faults, pace: &pace, losses: &[] };
    for &operation in &operations {
        of_resource.entry(&operation.invocation.resource).or_default().push(operation);
    }
    let mut verdict = Verdict {
        operations: operations.len(),
        unknown: operations.iter().filter(|operation| operation.known().is_none()).count(),
        histories: of_resource.len(),
        ..Verdict::default()
    };
    for (name, operations) in of_resource {
        let history = ResourceHistory::new(name, operations);
        verdict.grants += history.grants.len();
        verdict.ordered_pairs += queue::ordered_pairs(&history, environment);
        let with = |losses: &[_]| of_rules(&history, Environment { losses, ..environment });
        verdict.violations.extend(losses::check(with, &mut verdict.excused));
    }
    let mut shown: Vec<_> = verdict
        .violations
        .drain(..)
        .map(|violation| (shown_at(&violation, &operations), violation))
        .collect();
    shown.sort_by_key(|(at, _)| *at);
    verdict.found_at = shown.first().map(|(at, _)| *at);
    verdict.violations = shown.into_iter().map(|(_, violation)| violation).collect();
    verdict
}

/// The violations of all rules.
fn of_rules(history: &ResourceHistory<'_>, environment: Environment<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    exclusion::check(history, environment, &mut found);
    tokens::check(history, environment, &mut found);
    lifetimes::check(history, environment, &mut found);
    queue::check(history, environment, &mut found);
    free::check(history, environment, &mut found);
    renewals::check(history, environment, &mut found);
    outages::check(history, environment, &mut found);
    effects::check(history, environment, &mut found);
    found
}

/// How many operations had been invoked when the last call of a violation was over.
fn shown_at(violation: &Violation, operations: &[&Operation]) -> usize {
    let shows = |operation: &&&Operation| violation.calls.contains(&operation.invocation.id);
    let over_ns = operations
        .iter()
        .filter(shows)
        .map(|operation| operation.completion.as_ref().map_or(u64::MAX, |(at_ns, _)| *at_ns))
        .max()
        .unwrap_or(u64::MAX);
    operations.partition_point(|operation| operation.invoked_ns() <= over_ns)
}

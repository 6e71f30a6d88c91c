//! Holds a history to what leasehold promises.
//!
//! Pure: a history and the faults in it go in, violations come out. Each rule
//! reports only what no right lock store could have done, given what the faults
//! void: an unknown outcome may have happened at any time after its invocation,
//! or never.

mod effects;
mod exclusion;
mod free;
mod grants;
mod lifetimes;
mod linear;
mod outages;
mod pace;
mod queue;
mod renewals;
mod resource;
mod tokens;

#[cfg(test)]
mod story;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, fmt};

use serde::Serialize;

use crate::{faults::Injected, history::Operation, world::Backend};
use pace::Pace;
use resource::ResourceHistory;

pub(crate) use grants::safe_ns;
pub(crate) use renewals::RENEWED_WITHIN;

/// For how long after its return a leader that stood still may revoke leases: it
/// was seen to 3 s later.
const REVOKES_ON_NS: u64 = 5_000_000_000;

/// A promise that a history does not keep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// The promise.
    pub rule: Rule,
    /// Of which resource; empty for what is left behind at the end.
    pub resource: String,
    /// What shows it.
    pub what: String,
    /// The calls that show it.
    pub calls: Vec<u64>,
}

/// The promises that are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// At most one holder at any instant.
    OneHolder,
    /// Tokens strictly rise in real-time order, and stay below 2^53.
    TokensRise,
    /// No grant ends before its TTL, and none is shorter than asked for.
    WholeTtl,
    /// A renewal never revives.
    NoRevival,
    /// Nobody unlocks what is not theirs, or twice.
    OwnUnlock,
    /// Waiters are served in order.
    InOrder,
    /// Whoever waits for what is free is served.
    Served,
    /// A try on what is free is granted, once dead waiters are passed over.
    TriesGranted,
    /// A lock that is renewed in time survives an outage of half its TTL.
    RenewedSurvives,
    /// A wait survives an outage that is shorter than `operationTimeout`.
    WaitsSurvive,
    /// What failed had no effect.
    NoEffect,
    /// What does not wait is answered in time.
    Prompt,
    /// Nothing else than what is in the contract is answered.
    Answers,
    /// Every call takes effect at one instant between call and answer.
    Linearizable,
    /// Nothing is left behind at the end.
    NothingLeft,
}

impl Rule {
    /// Whether leasehold promises it on this backend. Linearizability is not
    /// declared on Redis (docs/guarantees.md): there it is looked at and told.
    fn is_promised(self, backend: Backend) -> bool {
        !(backend == Backend::Redis && self == Self::Linearizable)
    }
}

impl Verdict {
    /// All that did not hold, promised or not.
    pub fn findings(&self) -> impl Iterator<Item = &Violation> {
        self.violations.iter().chain(&self.unpromised)
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}: {}", self.rule, self.resource, self.what)?;
        if self.calls.is_empty() { Ok(()) } else { write!(f, " (calls {:?})", self.calls) }
    }
}

/// What a check found.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Calls that were checked: all that left their process.
    pub operations: usize,
    /// Of those, calls whose outcome is not known.
    pub unknown: usize,
    /// Grants among them.
    pub grants: usize,
    /// Pairs of calls whose order in the queue is certain and was compared.
    pub ordered_pairs: usize,
    /// Histories: one a resource.
    pub histories: usize,
    /// Histories that were too tangled to be checked for linearizability
    /// within the limit; all other rules were.
    pub undecided: usize,
    /// By how many operations, in the order of their invocation, the first
    /// violation had shown.
    pub found_at: Option<usize>,
    /// What was violated, as it showed.
    pub violations: Vec<Violation>,
    /// What did not hold, and is not promised on this backend.
    pub unpromised: Vec<Violation>,
}

/// What the rules need to know besides the calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Surroundings<'a> {
    pub(crate) backend: Backend,
    pub(crate) faults: &'a [Injected],
    pub(crate) pace: &'a Pace,
}

/// Checks a history of one run.
#[must_use]
pub fn check(backend: Backend, operations: &[Operation], faults: &[Injected]) -> Verdict {
    let mut of_resource: BTreeMap<&str, Vec<&Operation>> = BTreeMap::new();
    let operations: Vec<_> =
        operations.iter().filter(|operation| operation.was_sent()).collect();
    let pace = Pace::of(&operations);
    let surroundings = Surroundings { backend, faults, pace: &pace };
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
        verdict.ordered_pairs += queue::ordered_pairs(&history, surroundings);
        let found = &mut verdict.violations;
        exclusion::check(&history, surroundings, found);
        tokens::check(&history, surroundings, found);
        lifetimes::check(&history, surroundings, found);
        queue::check(&history, surroundings, found);
        free::check(&history, surroundings, found);
        renewals::check(&history, surroundings, found);
        outages::check(&history, surroundings, found);
        effects::check(&history, surroundings, found);
        match linear::check(&history, surroundings) {
            linear::Finding::Linearizable => {}
            linear::Finding::Undecided => verdict.undecided += 1,
            linear::Finding::Violated(violation) => found.push(violation),
        }
    }
    let mut shown: Vec<_> = verdict
        .violations
        .drain(..)
        .map(|violation| (shown_at(&violation, &operations), violation))
        .collect();
    shown.sort_by_key(|(at, _)| *at);
    let (promised, unpromised): (Vec<_>, Vec<_>) =
        shown.into_iter().partition(|(_, violation)| violation.rule.is_promised(backend));
    verdict.found_at = promised.first().map(|(at, _)| *at);
    verdict.violations = promised.into_iter().map(|(_, violation)| violation).collect();
    verdict.unpromised = unpromised.into_iter().map(|(_, violation)| violation).collect();
    verdict
}

/// How many operations had been invoked when the last call that shows a
/// violation was over.
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

impl Surroundings<'_> {
    /// Whether no fault was under way from `from_ns` to `until_ns`.
    pub(crate) fn calm(&self, from_ns: u64, until_ns: u64) -> bool {
        !self.faults.iter().any(|fault| fault.from_ns <= until_ns && fault.until_ns >= from_ns)
    }

    /// Whether the first reply to an unlock may have been lost: on etcd it is then
    /// answered with success once the grant is over, whoever ended it meanwhile
    /// (docs/guarantees.md). On Redis that outcome is unknown, and in memory there
    /// is no reply to lose.
    pub(crate) fn may_be_told_of_others(&self, unlock: &Operation) -> bool {
        self.backend == Backend::Etcd
            && self.loses_replies(unlock.invoked_ns(), unlock.completed_ns())
    }

    /// Whether a waiter that stood in the queue by `queued_by_ns` certainly keeps
    /// its place from then on. A leader of etcd that stood still revokes sessions
    /// for a while after its return, and their waiters queue again
    /// (docs/guarantees.md); the loss of a follower costs nobody a place.
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

    /// For how long something was wrong between two moments.
    pub(crate) fn wrong_for_ns(&self, from_ns: u64, until_ns: u64) -> u64 {
        let outages = self.outages(from_ns, until_ns, 0, |_| true);
        outages.iter().map(|(begin, end)| end.min(&until_ns) - begin.max(&from_ns)).sum()
    }

    /// How long the longest outage for waits took that was felt between two moments. Two that
    /// are less than `apart_ns` apart count as one.
    pub(crate) fn longest_outage_ns(&self, from_ns: u64, until_ns: u64, apart_ns: u64) -> u64 {
        // In Redis without memory those who wait lack nothing.
        let outages = self
            .outages(from_ns, until_ns, apart_ns, |fault| fault.name != "redis-out-of-memory");
        outages.iter().map(|(begin, end)| end - begin).max().unwrap_or(0)
    }

    fn outages(
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

    /// Whether a leasehold process ended in this time, and its calls with it.
    pub(crate) fn ends_processes(&self, from_ns: u64, until_ns: u64) -> bool {
        self.faults.iter().any(|fault| {
            ["leasehold-killed", "leasehold-restarted", "crowd-killed-with-leasehold"]
                .contains(&&*fault.name)
                && fault.from_ns <= until_ns
                && fault.until_ns >= from_ns
        })
    }

    /// By when the process of a call without an answer had died: any client process
    /// that was killed later may have been its own.
    pub(crate) fn died_by_ns(&self, call: &Operation) -> u64 {
        let killed = self.faults.iter().filter(|fault| {
            ["client-killed", "crowd-killed", "crowd-killed-with-leasehold"]
                .contains(&&*fault.name)
                && fault.over_ns >= call.invoked_ns()
        });
        killed.map(|fault| fault.over_ns).max().unwrap_or(u64::MAX)
    }

    /// Whether a reply to what was asked in this time may have been lost.
    pub(crate) fn loses_replies(&self, from_ns: u64, until_ns: u64) -> bool {
        self.faults.iter().any(|fault| {
            fault.loses_replies() && fault.from_ns <= until_ns && fault.until_ns >= from_ns
        })
    }
}

/// A moment for people: milliseconds since the resource's history began.
pub(crate) fn at(history: &ResourceHistory<'_>, at_ns: u64) -> String {
    #[allow(clippy::cast_precision_loss, reason = "for people")]
    let ms = at_ns.saturating_sub(history.began_ns()) as f64 / 1e6;
    if at_ns == u64::MAX { "never".into() } else { format!("{ms:.3} ms") }
}

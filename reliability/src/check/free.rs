//! A free resource is granted to any request, and a resource without an exclusive holder to
//! a shared request that is behind no exclusive waiter.
//!
//! Only a resource that was certainly free for a while is checked, because expiry, the death
//! of a process, and a hand-over to a waiter that is gone take time.

use super::{
    environment::Environment,
    queue::{ended_ns, is_before},
    resource::ResourceHistory,
    rule::{Rule, Violation},
};
use crate::{
    history::{Call, Mode, Operation, Outcome},
    world::Backend,
};

/// How long a resource may stay free while there is a waiter: a waiter with a dead process
/// is skipped within 4 s.
const FREE_NS_MAX: u64 = 5_500_000_000;
/// How much longer after each fault, besides its duration: it may have killed a process
/// or lost a queue. Faults that overlap are one.
const AFTER_FAULT_NS: u64 = 4_000_000_000;
/// How long Redis asks for a dead process that a try finds in a queue, if the connection of that
/// try's process is younger than 5 s.
const ASKED_NS: u64 = 2_000_000_000;
/// How long a resource is reserved for a waiter that does not confirm.
pub(super) const HANDED_OVER_NS: u64 = 2_000_000_000;
/// How long a grant that an older data set brought back, or whose unlock was lost, may last: the
/// longest TTL of the grants that are not unlocked at once.
const BROUGHT_BACK_NS: u64 = 16_000_000_000;

/// Intervals from one moment to another.
type Times = Vec<(u64, u64)>;

/// Checks that waits were served, and tries granted, on a free resource.
pub(crate) fn check(
    history: &ResourceHistory<'_>,
    environment: Environment<'_>,
    found: &mut Vec<Violation>,
) {
    for mode in [Mode::Exclusive, Mode::Shared] {
        let held = perhaps_held(history, environment, mode);
        waits_served(history, mode, &held, environment, found);
        tries_granted(history, mode, held, environment, found);
    }
}

/// Finds a wait in this mode that was not served though nothing blocked it.
fn waits_served(
    history: &ResourceHistory<'_>,
    mode: Mode,
    held: &Times,
    environment: Environment<'_>,
    found: &mut Vec<Violation>,
) {
    for wait in history.waits().filter(|wait| wait.mode() == mode) {
        let lasted_ns = ended_ns(wait).saturating_sub(wait.invoked_ns());
        if lasted_ns <= FREE_NS_MAX {
            continue;
        }
        let mut in_its_way = held.clone();
        if mode == Mode::Shared {
            in_its_way.extend(perhaps_before(history, wait, environment));
            in_its_way.sort_unstable();
        }
        if let Some((from_ns, until_ns)) = passed_over(wait, &in_its_way, environment) {
            let nobody = match mode {
                Mode::Exclusive => "nobody held the resource",
                Mode::Shared => "nobody held the resource exclusively or waited for that",
            };
            found.push(Violation {
                rule: Rule::Served,
                resource: history.name.into(),
                what: format!(
                    "a wait from {} to {} was not served, though {nobody} from {} to {}",
                    history.at(wait.invoked_ns()),
                    history.at(ended_ns(wait)),
                    history.at(from_ns),
                    history.at(until_ns),
                ),
                calls: vec![wait.invocation.id],
            });
            break;
        }
    }
}

/// When exclusive waiters may have been before a shared one.
fn perhaps_before(
    history: &ResourceHistory<'_>,
    wait: &Operation,
    environment: Environment<'_>,
) -> Times {
    history
        .waits()
        .filter(|other| other.mode() == Mode::Exclusive)
        .map(|other| (other, (other.invoked_ns(), gone_ns(other, environment))))
        .filter(|(_, (from_ns, until_ns))| {
            *from_ns <= ended_ns(wait) && *until_ns >= wait.invoked_ns()
        })
        .filter(|(other, _)| !is_before(wait, other, environment))
        .map(|(_, time)| time)
        .collect()
}

/// Until when a wait may have been queued. If the promoted replica missed the wait's end, its
/// place is still there, perhaps behind readers whose unlocks it missed too.
fn gone_ns(wait: &Operation, environment: Environment<'_>) -> u64 {
    let ended_ns = match &wait.completion {
        Some((at_ns, _)) => *at_ns,
        None => environment.died_by_ns(wait),
    };
    let lost_ns = environment.lost_from_ns(wait);
    lost_ns.map_or(ended_ns, |lost_ns| ended_ns.max(lost_ns.saturating_add(BROUGHT_BACK_NS)))
}

/// An interval in which nothing can have blocked a wait, and which is longer than the
/// faults explain.
fn passed_over(
    wait: &Operation,
    in_its_way: &Times,
    environment: Environment<'_>,
) -> Option<(u64, u64)> {
    let until_ns = match wait.known()? {
        Outcome::WaitDeadline => ended_ns(wait),
        Outcome::Granted(_) => wait.completed_ns(),
        _ => return None,
    };
    let too_long = |from_ns: u64, until_ns: u64| {
        let outages = environment.outages(from_ns, until_ns, 0, |_| true);
        let excused_ns: u64 = outages
            .iter()
            .map(|(begin, end)| end.min(&until_ns) - begin.max(&from_ns) + AFTER_FAULT_NS)
            .sum();
        until_ns.saturating_sub(from_ns) > FREE_NS_MAX + excused_ns
    };
    let mut free_from_ns = wait.invoked_ns();
    for (from_ns, to_ns) in in_its_way.iter().copied().chain([(until_ns, until_ns)]) {
        let free_until_ns = from_ns.min(until_ns);
        if free_until_ns > free_from_ns && too_long(free_from_ns, free_until_ns) {
            return Some((free_from_ns, free_until_ns));
        }
        free_from_ns = free_from_ns.max(to_ns);
    }
    None
}

/// Finds a try in this mode that was refused long after the last holder that excludes it
/// and the last waiter.
fn tries_granted(
    history: &ResourceHistory<'_>,
    mode: Mode,
    mut taken: Times,
    environment: Environment<'_>,
    found: &mut Vec<Violation>,
) {
    let refused: Vec<_> = history
        .operations
        .iter()
        .filter(|it| match &it.invocation.call {
            // The lock ID of a live shared grant is refused.
            Call::Try(asked) => mode == Mode::Exclusive || asked.lock_id.is_none(),
            Call::FrontTry(_) => true,
            _ => false,
        })
        .filter(|it| it.mode() == mode && it.known() == Some(&Outcome::Locked))
        .collect();
    if refused.is_empty() || environment.faults.iter().any(|it| it.prolongs(history.name)) {
        return;
    }
    taken.extend(history.waits().map(|wait| (wait.invoked_ns(), gone_ns(wait, environment))));
    taken.extend(environment.faults.iter().map(|fault| (fault.from_ns, fault.until_ns)));
    // Replace each end by the latest end up to there.
    taken.sort_unstable();
    let mut latest_ns = 0;
    for (_, until_ns) in &mut taken {
        latest_ns = latest_ns.max(*until_ns);
        *until_ns = latest_ns;
    }
    let died = history.waits().any(|wait| wait.completion.is_none());
    let asks_ns = if died && environment.backend == Backend::Redis { ASKED_NS } else { 0 };
    for call in &refused {
        let begun = taken.partition_point(|(from_ns, _)| *from_ns <= call.completed_ns());
        let free_since_ns = begun.checked_sub(1).map_or(0, |last| taken[last].1);
        let asked_ns = if environment.backend.fails_over() {
            // The place of a dead process is kept until somebody has asked for that process.
            let asked = refused.iter().map(|asking| asking.completed_ns());
            asked.filter(|asked_ns| *asked_ns >= free_since_ns).min().unwrap_or(u64::MAX)
        } else {
            free_since_ns.saturating_add(asks_ns)
        };
        if free_since_ns > 0 && call.invoked_ns() > asked_ns.saturating_add(FREE_NS_MAX) {
            found.push(Violation {
                rule: Rule::TriesGranted,
                resource: history.name.into(),
                what: format!(
                    "a try at {} was refused, though nobody held or waited since {}",
                    history.at(call.invoked_ns()),
                    history.at(free_since_ns),
                ),
                calls: vec![call.invocation.id],
            });
            // Further violations would have the same cause.
            return;
        }
    }
}

/// The intervals in which a grant that excludes those of a mode may have been held, sorted
/// by their start.
fn perhaps_held(
    history: &ResourceHistory<'_>,
    environment: Environment<'_>,
    mode: Mode,
) -> Times {
    let late_ns = match environment.backend {
        // A lease is granted for a second more, and checked twice a second.
        Backend::Etcd => 4_000_000_000,
        _ => 500_000_000,
    };
    let expires = |asked_ns: u64, ttl_ns: u64| {
        let mut expired_ns = asked_ns.saturating_add(ttl_ns).saturating_add(late_ns);
        if environment.backend == Backend::Etcd {
            // A new leader starts the TTL again.
            for fault in environment.faults {
                if fault.from_ns <= expired_ns && fault.until_ns >= asked_ns {
                    let again_ns = fault.until_ns.saturating_add(ttl_ns);
                    expired_ns = expired_ns.max(again_ns.saturating_add(late_ns));
                }
            }
        }
        expired_ns
    };
    let mut held: Times = Vec::new();
    for grant in history.grants.iter().filter(|grant| grant.mode().excludes(mode)) {
        for term in &grant.terms {
            let waited_ns = term.counted_from_ns - term.operation.invoked_ns();
            let from_ns =
                term.operation.invoked_ns() + waited_ns.saturating_sub(HANDED_OVER_NS);
            let asked_ns = term.operation.completion.as_ref().map_or(u64::MAX, |(at, _)| *at);
            let expired_ns = expires(asked_ns, term.ttl_ns);
            let unlocks: Vec<_> = grant
                .unlocks
                .iter()
                .filter(|unlock| unlock.known() == Some(&Outcome::Unlocked))
                .filter(|unlock| unlock.completed_ns() >= term.counted_from_ns)
                .map(|unlock| (unlock.completed_ns(), environment.lost_from_ns(unlock)))
                .collect();
            let unlocked_ns = unlocks.iter().map(|(unlocked_ns, _)| *unlocked_ns).min();
            held.push((from_ns, expired_ns.min(unlocked_ns.unwrap_or(u64::MAX))));
            // Held again from the loss of an unlock to the first one that is kept.
            let lost_ns = unlocks.iter().filter_map(|(_, lost_ns)| *lost_ns).min();
            let kept = unlocks.iter().filter(|(_, lost_ns)| lost_ns.is_none());
            let kept_ns = kept.map(|(unlocked_ns, _)| *unlocked_ns).min();
            let until_ns = expired_ns.min(kept_ns.unwrap_or(u64::MAX));
            held.extend(
                lost_ns.filter(|lost_ns| *lost_ns < until_ns).map(|lost| (lost, until_ns)),
            );
        }
    }
    for call in history.unknown_acquisitions().filter(|call| call.mode().excludes(mode)) {
        let asked = call.invocation.call.acquisition();
        let ttl_ns = asked.map_or(0, |asked| asked.ttl_ms * 1_000_000).max(2_000_000_000);
        let given_up_ns = match &call.completion {
            Some((at_ns, _)) => *at_ns,
            None => environment.died_by_ns(call),
        };
        held.push((call.invoked_ns(), expires(given_up_ns, ttl_ns)));
    }
    for fault in environment.faults.iter().filter(|fault| fault.brings_back()) {
        held.push((fault.from_ns, fault.over_ns.saturating_add(BROUGHT_BACK_NS)));
    }
    held.sort_unstable();
    held
}

//! What failed had no effect, and every answer is one of the contract's.

use super::{
    Rule, Surroundings, Violation, at, grants::Grant, queue::answer_margin_ms,
    resource::ResourceHistory,
};
use crate::history::{Call, Operation, Outcome};

/// What a call that does not wait may take: the operation timeout, and what a
/// loaded machine adds.
const ANSWER_NS_MAX: u64 = 8_000_000_000;

/// What leaves an outcome unknown: leasehold's own word, the client's giving up,
/// and the codes that a transport makes up when a connection ends. Any other
/// code without a reason is no answer of the contract's.
const UNKNOWN: &[&str] = &[
    "OUTCOME_UNKNOWN",
    "cancelled",
    "no answer",
    "Cancelled",
    "Unknown",
    "Unavailable",
    "Internal",
    "DeadlineExceeded",
    "ResourceExhausted",
];

/// Checks every call by itself, and every lock ID that was used without having
/// been granted.
pub(crate) fn check(
    history: &ResourceHistory<'_>,
    surroundings: Surroundings<'_>,
    found: &mut Vec<Violation>,
) {
    for operation in &history.operations {
        let mut violated = |rule, what| {
            let calls = vec![operation.invocation.id];
            found.push(Violation { rule, resource: history.name.into(), what, calls });
        };
        if let Some(what) = unlocked_by_stranger(operation) {
            violated(Rule::OwnUnlock, what);
        }
        if let Some(what) = never_granted(history, operation) {
            violated(Rule::NoEffect, what);
        }
        if let Some(what) = named_otherwise(history, operation) {
            violated(Rule::Answers, what);
        }
        if let Some(what) = not_in_the_contract(history, operation, surroundings) {
            violated(Rule::Answers, what);
        }
        if let Some(what) = gave_up_early(history, operation) {
            violated(Rule::Served, what);
        }
        if let Some(what) = late(operation, surroundings) {
            violated(Rule::Prompt, what);
        }
    }
}

fn unlocked_by_stranger(operation: &Operation) -> Option<String> {
    (matches!(operation.invocation.call, Call::UnlockWrong { .. })
        && operation.known() == Some(&Outcome::Unlocked))
    .then(|| "a lock ID that was never granted unlocked it".into())
}

/// A lock ID works although every acquisition that brought it failed.
fn never_granted(history: &ResourceHistory<'_>, operation: &Operation) -> Option<String> {
    let (Call::Renew { lock_id: used, .. } | Call::Unlock { lock_id: used }) =
        &operation.invocation.call
    else {
        return None;
    };
    let succeeded =
        matches!(operation.known(), Some(Outcome::Renewed { .. } | Outcome::Unlocked));
    let may_have_been_granted = history.operations.iter().any(|other| {
        let asked = other.invocation.call.acquisition();
        let brought = asked.and_then(|asked| asked.lock_id.as_ref());
        other.granted().is_some_and(|granted| granted.lock_id == *used)
            || (brought == Some(used) && other.known().is_none())
    });
    (succeeded && !may_have_been_granted).then(|| {
        format!(
            "every acquisition with this lock ID failed, and its {} succeeded",
            operation.invocation.call.name()
        )
    })
}

/// A grant has the lock ID that was brought, or else one that no other has.
fn named_otherwise(history: &ResourceHistory<'_>, operation: &Operation) -> Option<String> {
    let granted = operation.granted()?;
    let brought = operation.invocation.call.acquisition()?.lock_id.as_ref();
    if let Some(brought) = brought {
        return (*brought != granted.lock_id)
            .then(|| "the lock ID is another than the one that was brought".into());
    }
    let others =
        |other: &&Grant<'_>| other.lock_id == granted.lock_id && other.token != granted.token;
    history.grants.iter().find(others).map(|other| {
        format!("a lock ID that leasehold made is also that of token {}", other.token)
    })
}

fn not_in_the_contract(
    history: &ResourceHistory<'_>,
    operation: &Operation,
    surroundings: Surroundings<'_>,
) -> Option<String> {
    let (at_ns, outcome) = operation.completion.as_ref()?;
    let call = &operation.invocation.call;
    let acquires = call.acquisition().is_some();
    let fits = match outcome {
        Outcome::Granted(_) => acquires,
        Outcome::Renewed { .. } => matches!(call, Call::Renew { .. }),
        Outcome::Unlocked | Outcome::NotHeld { .. } => {
            !acquires
                && (matches!(outcome, Outcome::NotHeld { .. })
                    || !matches!(call, Call::Renew { .. }))
        }
        Outcome::Locked => matches!(call, Call::Try(_) | Call::ForeignTry(_)),
        Outcome::WaitDeadline => matches!(call, Call::Lock { .. }),
        Outcome::Unavailable => true,
        // What somebody put there is no lock, which the caller is told.
        Outcome::Refused(reason) if reason == "INVALID_REQUEST" => {
            surroundings.faults.iter().any(|fault| {
                fault.name == "redis-holder-of-wrong-type"
                    && fault.voids_grant_of(history.name)
                    && fault.from_ns <= *at_ns
                    && fault.until_ns >= operation.invoked_ns()
            })
        }
        Outcome::Refused(reason) => {
            ["TOO_MANY_WAITERS", "OVERLOADED", "NOT_INITIALIZED"].contains(&reason.as_str())
        }
        Outcome::Unknown(why) => {
            UNKNOWN.iter().any(|known| why.split(':').next() == Some(known))
        }
    };
    (!fits).then(|| format!("a {} was answered {outcome:?}", call.name()))
}

fn gave_up_early(history: &ResourceHistory<'_>, operation: &Operation) -> Option<String> {
    let Call::Lock { wait_ms, .. } = &operation.invocation.call else { return None };
    let earliest_ms = wait_ms.saturating_sub(answer_margin_ms(*wait_ms) + 2);
    let earliest_ns = operation.invoked_ns() + earliest_ms * 1_000_000;
    (operation.known() == Some(&Outcome::WaitDeadline)
        && operation.completed_ns() < earliest_ns)
        .then(|| {
            format!(
                "a wait of {wait_ms} ms that began at {} ended at {}",
                at(history, operation.invoked_ns()),
                at(history, operation.completed_ns())
            )
        })
}

fn late(operation: &Operation, surroundings: Surroundings<'_>) -> Option<String> {
    let (at_ns, outcome) = operation.completion.as_ref()?;
    let waits_ns = match &operation.invocation.call {
        Call::Lock { wait_ms, .. } => wait_ms * 1_000_000,
        _ => 0,
    };
    let took_ns = at_ns - operation.invoked_ns();
    // A process that stands still answers nobody, and one may be stopped.
    let was_stopped = surroundings.faults.iter().any(|fault| {
        (fault.name.starts_with("leasehold-") || fault.name.starts_with("client-"))
            && fault.from_ns <= *at_ns
            && fault.until_ns >= operation.invoked_ns()
    });
    (took_ns > ANSWER_NS_MAX + waits_ns && !was_stopped).then(|| {
        format!(
            "a {} was answered {outcome:?} after {} ms",
            operation.invocation.call.name(),
            took_ns / 1_000_000
        )
    })
}

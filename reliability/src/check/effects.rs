//! A call that failed had no effect, and every answer is one that the contract allows.

use super::{
    environment::Environment,
    grants::Grant,
    queue::answer_margin_ms,
    resource::ResourceHistory,
    rule::{Rule, Violation},
};
use crate::history::{Acquisition, Call, Mode, Operation, Outcome};

/// How long a call that does not wait may take: the operation timeout, and more for a
/// loaded machine.
const ANSWER_NS_MAX: u64 = 8_000_000_000;
/// How long after its end a fault may affect calls.
const FELT_NS: u64 = 4_000_000_000;
/// How much longer the end of grants by their IDs may take: it reads first, and then ends.
const END_MS: u64 = 5_000;

/// Reasons and codes that mean an unknown outcome: leasehold's own reason, a client that
/// gave up, and the transport's codes for a broken connection. The contract allows no other
/// code without a reason.
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

/// Checks each call by itself, and finds lock IDs that worked without having been granted.
pub(crate) fn check(
    history: &ResourceHistory<'_>,
    environment: Environment<'_>,
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
        if let Some(what) = wrong_lock_id(history, operation) {
            violated(Rule::Answers, what);
        }
        if let Some(what) = replay_did_not_find(history, operation, environment) {
            violated(Rule::Answers, what);
        }
        if let Some(what) = wrong_grant_id(history, operation) {
            violated(Rule::Answers, what);
        }
        if let Some(what) = not_in_the_contract(history, operation, environment) {
            violated(Rule::Answers, what);
        }
        if let Some(what) = gave_up_early(history, operation) {
            violated(Rule::Served, what);
        }
        if let Some(what) =
            late(operation, environment).or_else(|| without_cause(operation, environment))
        {
            violated(Rule::Prompt, what);
        }
    }
}

fn unlocked_by_stranger(operation: &Operation) -> Option<String> {
    (matches!(operation.invocation.call, Call::UnlockWrong { .. })
        && operation.known() == Some(&Outcome::Unlocked))
    .then(|| "a lock ID that was never granted unlocked it".into())
}

/// Finds a lock ID that works although every acquisition with it failed.
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
        let requested = asked.and_then(|asked| asked.lock_id.as_ref());
        other.granted().is_some_and(|granted| granted.lock_id == *used)
            || (requested == Some(used) && other.known().is_none())
    });
    (succeeded && !may_have_been_granted).then(|| {
        format!(
            "every acquisition with this lock ID failed, and its {} succeeded",
            operation.invocation.call.name()
        )
    })
}

/// A grant has the lock ID of its request, otherwise a unique one.
fn wrong_lock_id(history: &ResourceHistory<'_>, operation: &Operation) -> Option<String> {
    let granted = operation.granted()?;
    let requested = operation.invocation.call.acquisition()?.lock_id.as_ref();
    if let Some(requested) = requested {
        return (*requested != granted.lock_id)
            .then(|| "the lock ID is not the one of the request".into());
    }
    // A client may choose the lock ID of an earlier grant.
    let chosen = |other: &Grant<'_>| {
        other.acquisitions.iter().all(|made| {
            made.invocation.call.acquisition().is_some_and(|asked| asked.lock_id.is_none())
        })
    };
    let others = |other: &&Grant<'_>| {
        other.lock_id == granted.lock_id && other.token != granted.token && chosen(other)
    };
    history.grants.iter().find(others).map(|other| {
        format!("a lock ID that leasehold chose is also that of token {}", other.token)
    })
}

/// A repeated request ID finds its live grant: the same request is answered with this
/// grant, and a request in another mode is refused as invalid.
fn replay_did_not_find(
    history: &ResourceHistory<'_>,
    operation: &Operation,
    environment: Environment<'_>,
) -> Option<String> {
    let request_id = operation.invocation.call.acquisition()?.request_id.as_deref()?;
    let outcome = operation.known()?;
    let found = match outcome {
        Outcome::Granted(granted) => Some((granted.token, granted.lock_id.as_str())),
        Outcome::Locked | Outcome::WaitDeadline => None,
        _ => return None,
    };
    let is_held = |grant: &Grant<'_>| {
        grant.held(history, environment).iter().any(|held| {
            held.from_ns <= operation.invoked_ns() && operation.completed_ns() <= held.until_ns
        })
    };
    history
        .grants
        .iter()
        .filter(|grant| found != Some((grant.token, grant.lock_id)))
        .filter(|grant| {
            grant.acquisitions.iter().any(|made| {
                let asked = made.invocation.call.acquisition();
                asked.and_then(|asked| asked.request_id.as_deref()) == Some(request_id)
            })
        })
        .find(|grant| is_held(grant))
        .map(|grant| {
            format!(
                "its request ID was that of the live token {}, and it was answered {outcome:?}",
                grant.token
            )
        })
}

/// A public ID belongs to one grant and does not change. Foreign grants have none.
fn wrong_grant_id(history: &ResourceHistory<'_>, operation: &Operation) -> Option<String> {
    let granted = operation.granted().filter(|granted| !granted.grant_id.is_empty())?;
    history.grants.iter().flat_map(|grant| grant.acquisitions.iter()).find_map(|other| {
        let found = other.granted()?;
        let is_same = (found.token, &found.lock_id) == (granted.token, &granted.lock_id);
        (is_same != (found.grant_id == granted.grant_id)).then(|| {
            format!(
                "token {} has the public ID {}, and token {} has {}",
                granted.token, granted.grant_id, found.token, found.grant_id
            )
        })
    })
}

/// Whether the contract lets a request be refused as invalid: its request ID may belong
/// to a grant or a wait of another kind, or its lock ID to a live shared grant.
fn may_be_invalid(history: &ResourceHistory<'_>, operation: &Operation, at_ns: u64) -> bool {
    let Some(asked) = operation.invocation.call.acquisition() else { return false };
    let is_shared_wait =
        matches!(operation.invocation.call, Call::Lock { .. }) && asked.mode == Mode::Shared;
    let refuses = |other: &Acquisition| {
        let differs = other.mode != asked.mode || other.lock_id != asked.lock_id;
        (asked.request_id.is_some() && other.request_id == asked.request_id && differs)
            || (is_shared_wait && asked.lock_id.is_some() && other.lock_id == asked.lock_id)
    };
    let brings_lock_id_of = |other: &Operation| {
        other.granted().is_some_and(|granted| asked.lock_id.as_ref() == Some(&granted.lock_id))
            && is_shared_wait
    };
    history.operations.iter().any(|other| {
        other.invocation.id != operation.invocation.id
            && other.invoked_ns() <= at_ns
            && (other.invocation.call.acquisition().is_some_and(refuses)
                || brings_lock_id_of(other))
    })
}

fn not_in_the_contract(
    history: &ResourceHistory<'_>,
    operation: &Operation,
    environment: Environment<'_>,
) -> Option<String> {
    let (at_ns, outcome) = operation.completion.as_ref()?;
    let call = &operation.invocation.call;
    let acquires = call.acquisition().is_some();
    let fits = match outcome {
        Outcome::Granted(_) => acquires,
        Outcome::Renewed { .. } => matches!(call, Call::Renew { .. }),
        Outcome::NotHeld { .. } => !acquires,
        Outcome::Unlocked => {
            matches!(call, Call::Unlock { .. } | Call::UnlockWrong { .. } | Call::Force)
        }
        Outcome::Ended { grant_ids, .. } => match call {
            Call::End { grant_id } => grant_ids == std::slice::from_ref(grant_id),
            Call::EndAll => true,
            _ => false,
        },
        Outcome::Locked => {
            matches!(call, Call::Try(_) | Call::ForeignTry(_) | Call::FrontTry(_))
        }
        Outcome::WaitDeadline => matches!(call, Call::Lock { .. }),
        Outcome::Unavailable => true,
        Outcome::Refused(reason) if reason == "INVALID_REQUEST" => {
            may_be_invalid(history, operation, *at_ns)
                // The key holds something that is not a lock, so the request is refused.
                || environment.faults.iter().any(|fault| {
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
                history.at(operation.invoked_ns()),
                history.at(operation.completed_ns())
            )
        })
}

/// Finds a renewal that was given up although no fault affected it.
fn without_cause(operation: &Operation, environment: Environment<'_>) -> Option<String> {
    let (from_ns, until_ns) = (operation.invoked_ns(), operation.completed_ns());
    let renews = matches!(operation.invocation.call, Call::Renew { .. });
    let is_given_up = operation.known() == Some(&Outcome::Unavailable);
    let is_calm = environment.calm(from_ns.saturating_sub(FELT_NS), until_ns);
    (renews && is_given_up && is_calm && !operation.is_through_front()).then(|| {
        format!(
            "a renewal was answered STORE_UNAVAILABLE after {} ms, and there was no fault",
            (until_ns - from_ns) / 1_000_000
        )
    })
}

fn late(operation: &Operation, environment: Environment<'_>) -> Option<String> {
    if operation.is_through_front() {
        // Its client gives up each try by itself, and tries again.
        return None;
    }
    let (at_ns, outcome) = operation.completion.as_ref()?;
    let waits_ns = match &operation.invocation.call {
        Call::Lock { wait_ms, .. } => wait_ms * 1_000_000,
        Call::End { .. } | Call::EndAll => END_MS * 1_000_000,
        _ => 0,
    };
    let took_ns = at_ns - operation.invoked_ns();
    // A fault may have suspended or stopped the process that had to answer.
    let was_stopped = environment.faults.iter().any(|fault| {
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

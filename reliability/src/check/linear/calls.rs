//! What one call may have done, as steps on the lock object.

use super::{
    super::{
        environment::Environment,
        free::HANDED_OVER_NS,
        holding::{safe_ns, shortened_by},
        queue::LEAVING_NS,
        resource::ResourceHistory,
    },
    lock::{Kind, Named},
    numbers::Numbers,
    search::Step,
};
use crate::{
    history::{Call, Granted, Mode, Operation, Outcome},
    world::Backend,
};

/// How many forced unlocks during one wait are considered. More are rare, and each doubles
/// the search.
const FORCED_MAX: usize = 3;

/// Adds what a call may have done. `place` is its place among the calls of the resource.
pub(super) fn of_call<'a>(
    history: &ResourceHistory<'a>,
    environment: Environment<'_>,
    operation: &'a Operation,
    place: usize,
    numbers: &mut Numbers<'a>,
    steps: &mut Vec<Step<Kind>>,
) {
    let (from_ns, until_ns) = (operation.invoked_ns(), operation.completed_ns());
    let (is_optional, mode) = (operation.known().is_none(), operation.mode());
    let mut push = |kind| {
        let call = Some(operation.invocation.id);
        steps.push(Step { kind, from_ns, until_ns, is_optional, call });
    };
    // A client of a front sends a try again. Each time it may be granted, and the grant may be
    // undone or expire before the next time.
    let mut is_retried = given_back(environment, operation)
        || (matches!(operation.invocation.call, Call::FrontTry(_))
            && environment.loses_replies(operation));
    let is_repeated = environment.may_succeed_by_another(operation);
    let mut also = None;
    let started_ttl_ns = match (&operation.invocation.call, operation.known()) {
        // Any holder refuses it.
        (Call::ForeignTry(_), Some(Outcome::Locked)) => None,
        (Call::ForeignTry(_) | Call::FrontTry(_), Some(Outcome::Granted(granted))) => {
            let lock_id = Some(numbers.of(&granted.lock_id));
            let grant = numbers.grants[&operation.invocation.id];
            let named = Named { grant, mode, lock_id, request_id: None };
            push(Kind::AcquireUnseen { named, term: place });
            perhaps_ended_by_all(grant, operation, history, steps);
            Some(safe_ns(granted.ttl_ns))
        }
        (
            Call::Try(asked)
            | Call::Lock { acquisition: asked, .. }
            | Call::ForeignTry(asked)
            | Call::FrontTry(asked),
            outcome,
        ) => {
            let request_id = asked.request_id.as_deref().map(|id| numbers.of(id));
            match outcome {
                Some(Outcome::Granted(granted)) => {
                    let lock_id = Some(numbers.of(&granted.lock_id));
                    let grant = numbers.grants[&operation.invocation.id];
                    let named = Named { grant, mode, lock_id, request_id };
                    steps.push(Step {
                        kind: Kind::Acquire { named, token: granted.token, term: place },
                        from_ns: from_ns.max(granted_from_ns(environment, operation, granted)),
                        until_ns,
                        is_optional,
                        call: Some(operation.invocation.id),
                    });
                    is_retried |= environment.loses_replies(operation);
                    Some(granted.waited_ns + safe_ns(granted.ttl_ns))
                }
                Some(Outcome::Locked) => {
                    if !perhaps_waited_for(history, operation) {
                        let lock_id = asked.lock_id.as_deref().map(|id| numbers.of(id));
                        push(Kind::Locked { mode, lock_id });
                    }
                    is_retried |= environment.backend != Backend::Memory
                        && environment.loses_replies(operation);
                    None
                }
                Some(_) => None,
                None => {
                    let lock_id = asked.lock_id.as_deref().map(|id| numbers.of(id));
                    // Grants without a lock ID and a request ID are interchangeable.
                    let number = if lock_id.or(request_id).is_some() { place + 1 } else { 0 };
                    let grant = usize::MAX - number;
                    let named = Named { grant, mode, lock_id, request_id };
                    let term = if number > 0 { place } else { grant };
                    push(Kind::AcquireUnseen { named, term });
                    push(Kind::Undo { grant });
                    request_id.map(|_| safe_ns(asked.ttl_ms.max(100) * 1_000_000))
                }
            }
        }
        (Call::Renew { lock_id, ttl_ms }, outcome) => {
            let lock_id = numbers.of(lock_id);
            match outcome {
                Some(Outcome::Renewed { ttl_ns }) => {
                    push(Kind::Renew { lock_id, term: place });
                    Some(safe_ns(*ttl_ns))
                }
                Some(Outcome::NotHeld { held }) => {
                    push(Kind::NotHeld { lock_id, other_holds: *held });
                    None
                }
                Some(_) => None,
                None => {
                    push(Kind::Renew { lock_id, term: place });
                    Some(safe_ns(ttl_ms.max(&100) * 1_000_000))
                }
            }
        }
        (Call::Unlock { lock_id } | Call::UnlockWrong { lock_id }, outcome) => {
            let lock_id = numbers.of(lock_id);
            match outcome {
                Some(Outcome::NotHeld { held }) => {
                    push(Kind::NotHeld { lock_id, other_holds: *held });
                }
                Some(Outcome::Unlocked) if is_repeated => {
                    push(Kind::Over { lock_id });
                    also = Some(Kind::Unlock { lock_id });
                }
                Some(Outcome::Unlocked) | None => push(Kind::Unlock { lock_id }),
                Some(_) => {}
            }
            None
        }
        (Call::Force, outcome) => {
            match outcome {
                Some(Outcome::NotHeld { .. }) => push(Kind::ForceNotHeld),
                Some(Outcome::Unlocked) if is_repeated => {
                    push(Kind::Aimed);
                    also = Some(Kind::Force);
                }
                Some(Outcome::Unlocked) | None => push(Kind::Force),
                Some(_) => {}
            }
            None
        }
        (Call::End { .. } | Call::EndAll, Some(Outcome::Ended { grant_ids, .. })) => {
            // Nobody was told of the others.
            for &grant in grant_ids.iter().filter_map(|id| numbers.public.get(id.as_str())) {
                let (kind, call) = (Kind::Undo { grant }, Some(operation.invocation.id));
                steps.push(Step { kind, from_ns, until_ns, is_optional: is_repeated, call });
            }
            None
        }
        (Call::End { grant_id }, Some(Outcome::NotHeld { .. })) => {
            if let Some(&grant) = numbers.public.get(grant_id.as_str()) {
                push(Kind::Gone { grant });
                // Its first try may have ended the grant, and only the second was answered.
                let is_sent_again = environment.loses_replies(operation);
                also = is_sent_again.then_some(Kind::Undo { grant });
            }
            None
        }
        (Call::End { grant_id }, None) => {
            if let Some(&grant) = numbers.public.get(grant_id.as_str()) {
                push(Kind::Undo { grant });
            }
            None
        }
        (Call::EndAll, None) => {
            push(Kind::Force);
            None
        }
        (Call::End { .. } | Call::EndAll, Some(_)) => None,
    };
    if let Some(kind) = also {
        let call = Some(operation.invocation.id);
        steps.push(Step { kind, from_ns, until_ns, is_optional: true, call });
    }
    for _ in 0..perhaps_forced_from(history, environment, operation) {
        // Only a forced unlock ends this grant.
        let grant = usize::MAX;
        let named = Named { grant, mode, lock_id: None, request_id: None };
        let kind = Kind::AcquireUnseen { named, term: grant };
        steps.push(Step { kind, from_ns, until_ns, is_optional: true, call: None });
    }
    if is_retried {
        // The first try may have made a grant whose reply was lost, and the grant had ended
        // before the second try; or the call gave its grant back before it was answered.
        add_unseen_grant(from_ns, until_ns, mode, place, steps);
    } else if matches!(operation.invocation.call, Call::Lock { .. })
        && operation.known() == Some(&Outcome::WaitDeadline)
    {
        // It may have been granted just at its deadline, and have given the grant back.
        add_unseen_grant(
            from_ns.max(until_ns.saturating_sub(LEAVING_NS)),
            until_ns,
            mode,
            place,
            steps,
        );
    }
    let mut perhaps = |kind, from_ns| {
        let (until_ns, is_optional, call) = (u64::MAX, true, None);
        steps.push(Step { kind, from_ns, until_ns, is_optional, call });
    };
    if let (Call::Renew { lock_id, .. }, Some(ended_ns)) =
        (&operation.invocation.call, shortened_by(operation, environment))
    {
        perhaps(Kind::Renew { lock_id: numbers.of(lock_id), term: place }, from_ns);
        perhaps(Kind::Expire { term: place }, ended_ns);
    }
    if let Some(ttl_ns) = started_ttl_ns {
        perhaps(Kind::Expire { term: place }, from_ns.saturating_add(ttl_ns));
    }
}

/// A grant of a client of Redis may be one of those that an end of all ended: the answer tells
/// public IDs, which its client is not told.
fn perhaps_ended_by_all(
    grant: usize,
    made: &Operation,
    history: &ResourceHistory<'_>,
    steps: &mut Vec<Step<Kind>>,
) {
    let ends = history.forces().filter(|end| {
        matches!(end.known(), Some(Outcome::Ended { .. }))
            && end.completed_ns() >= made.invoked_ns()
    });
    for end in ends {
        steps.push(Step {
            kind: Kind::Undo { grant },
            from_ns: end.invoked_ns(),
            until_ns: end.completed_ns(),
            is_optional: true,
            call: None,
        });
    }
}

/// The earliest moment at which a grant can have been made or found: the answer tells for
/// how long its call had waited until then. Redis hands a lock over before the waiter
/// confirms it, and a call whose first reply was lost may have been granted earlier.
fn granted_from_ns(
    environment: Environment<'_>,
    operation: &Operation,
    granted: &Granted,
) -> u64 {
    let from_ns = operation.invoked_ns();
    if environment.loses_replies(operation) {
        return from_ns;
    }
    let early_ns = match environment.backend {
        Backend::Redis => HANDED_OVER_NS,
        Backend::Memory | Backend::Etcd => 0,
    };
    from_ns.saturating_add(granted.waited_ns.saturating_sub(early_ns))
}

/// How often a wait may have been handed the lock without being granted it. Redis hands
/// the lock over before the waiter confirms. If it is unlocked by force in between, the
/// waiter waits on.
fn perhaps_forced_from(
    history: &ResourceHistory<'_>,
    environment: Environment<'_>,
    operation: &Operation,
) -> usize {
    let is_handed_over = environment.backend == Backend::Redis
        && matches!(operation.invocation.call, Call::Lock { .. });
    let forces = history.forces().filter(|force| {
        force.invoked_ns() <= operation.completed_ns()
            && force.completed_ns() >= operation.invoked_ns()
    });
    if is_handed_over { forces.take(FORCED_MAX).count() } else { 0 }
}

/// Whether a wait during a fault may have been granted the lock and given it back before
/// it was answered, or lost it before it knew.
fn given_back(environment: Environment<'_>, operation: &Operation) -> bool {
    let may_have = match operation.known() {
        Some(Outcome::WaitDeadline | Outcome::Unavailable) => true,
        Some(Outcome::Granted(_)) => environment.backend == Backend::Redis,
        _ => false,
    };
    may_have
        && matches!(operation.invocation.call, Call::Lock { .. })
        && !environment.calm(operation.invoked_ns(), operation.completed_ns())
}

/// Whether somebody may have been waiting while the try was under way.
fn perhaps_waited_for(history: &ResourceHistory<'_>, operation: &Operation) -> bool {
    history.waits().any(|wait| {
        wait.invoked_ns() <= operation.completed_ns()
            && wait.completed_ns() >= operation.invoked_ns()
    })
}

/// Adds a grant that was made and ended between two moments, unknown to any client.
fn add_unseen_grant(
    from_ns: u64,
    until_ns: u64,
    mode: Mode,
    place: usize,
    steps: &mut Vec<Step<Kind>>,
) {
    let grant = usize::MAX - 1 - place;
    let named = Named { grant, mode, lock_id: None, request_id: None };
    for kind in [Kind::AcquireUnseen { named, term: grant }, Kind::Undo { grant }] {
        steps.push(Step { kind, from_ns, until_ns, is_optional: true, call: None });
    }
}

//! The history of a resource as steps on the lock object, including steps that may have
//! happened without any client being told.

use super::{
    super::{environment::Environment, resource::ResourceHistory},
    calls::of_call,
    lock::Kind,
    numbers::Numbers,
    search::Step,
};
use crate::{
    faults::Voids,
    history::{Call, Mode},
    world::Backend,
};

/// The history of a resource as steps, sorted by their earliest time.
pub(super) fn steps(
    history: &ResourceHistory<'_>,
    environment: Environment<'_>,
) -> Vec<Step<Kind>> {
    let mut numbers = Numbers::new(history);
    // One call may end several of them, one after the other.
    let shared: Vec<_> = (0..history.grants.len())
        .filter(|number| history.grants[*number].mode() == Mode::Shared)
        .collect();
    let mut steps = Vec::new();
    for (place, operation) in history.operations.iter().enumerate() {
        of_call(history, environment, operation, place, &mut numbers, &mut steps);
        if operation.known().is_none()
            && matches!(operation.invocation.call, Call::Force | Call::EndAll)
        {
            let from_ns = operation.invoked_ns();
            perhaps_ended(&shared, from_ns, u64::MAX, history, &mut steps);
        }
    }
    for fault in environment.faults {
        let (from_ns, until_ns) = (fault.from_ns, fault.over_ns);
        let mut push = |kind, until_ns| {
            steps.push(Step { kind, from_ns, until_ns, is_optional: true, call: None });
        };
        let tokens = fault.voids == Voids::GrantsAndTokens;
        match &fault.voids {
            Voids::Nothing => {}
            Voids::GrantOf(resource) if resource == history.name => {
                push(Kind::Lose { tokens }, until_ns);
                if fault.puts_its_own() {
                    push(Kind::Replace, until_ns);
                    // By the fault, by force, or by expiry.
                    push(Kind::TakeBack, u64::MAX);
                }
                if environment.backend == Backend::Etcd {
                    // Each grant has a key of its own.
                    perhaps_ended(&shared, from_ns, until_ns, history, &mut steps);
                }
            }
            Voids::GrantOf(_) => {}
            _ if fault.brings_back() => push(Kind::Void { tokens }, until_ns),
            Voids::Grants | Voids::GrantsAndTokens => push(Kind::Lose { tokens }, until_ns),
        }
    }
    steps.sort_by_key(|step| step.from_ns);
    steps
}

/// Each of these grants may have been ended between two moments, if it was made by then.
fn perhaps_ended(
    grants: &[usize],
    from_ns: u64,
    until_ns: u64,
    history: &ResourceHistory<'_>,
    steps: &mut Vec<Step<Kind>>,
) {
    for &grant in
        grants.iter().filter(|number| history.grants[**number].invoked_ns() <= until_ns)
    {
        let kind = Kind::Undo { grant };
        steps.push(Step { kind, from_ns, until_ns, is_optional: true, call: None });
    }
}

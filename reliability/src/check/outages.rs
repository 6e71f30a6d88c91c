//! A wait survives an outage that is shorter than `operationTimeout`.

use super::{
    environment::Environment,
    resource::ResourceHistory,
    rule::{Rule, Violation},
};
use crate::history::{Call, LAST_WAITS, Outcome};

/// Shorter than `operationTimeout`, to allow for a busy machine.
const SURVIVED_NS: u64 = 4_000_000_000;
/// How long after its invocation a wait is certainly queued.
const QUEUED_AFTER_NS: u64 = 1_000_000_000;
/// Two faults that are at most this far apart count as one outage.
const APART_NS: u64 = 1_000_000_000;

/// Finds waits that ended with `STORE_UNAVAILABLE` although no outage was long.
pub(crate) fn check(
    history: &ResourceHistory<'_>,
    environment: Environment<'_>,
    found: &mut Vec<Violation>,
) {
    for wait in history.waits().filter(|wait| wait.known() == Some(&Outcome::Unavailable)) {
        let (from_ns, until_ns) = (wait.invoked_ns(), wait.completed_ns());
        // Another rule reports the last waits.
        if wait.invocation.process == LAST_WAITS
            || environment.ends_processes(from_ns, until_ns)
        {
            continue;
        }
        // A backend that refuses writes refuses new waits, which is no outage. A wait that
        // is already queued needs no more space.
        let refusing: Vec<_> = environment
            .faults
            .iter()
            .filter(|fault| fault.from_ns <= until_ns && fault.until_ns >= from_ns)
            .filter(|fault| fault.refuses_writes())
            .collect();
        if refusing.iter().any(|fault| fault.from_ns <= from_ns + QUEUED_AFTER_NS) {
            continue;
        }
        let longest_ns = environment.longest_outage_ns(from_ns, until_ns, APART_NS);
        let Call::Lock { wait_ms, .. } = &wait.invocation.call else { continue };
        if longest_ns < SURVIVED_NS {
            found.push(Violation {
                rule: Rule::WaitsSurvive,
                resource: history.name.into(),
                what: format!(
                    "a wait of {wait_ms} ms since {} ended with STORE_UNAVAILABLE at {}; the \
                     longest outage in that time took {} ms",
                    history.at(from_ns),
                    history.at(until_ns),
                    longest_ns / 1_000_000,
                ),
                calls: vec![wait.invocation.id],
            });
        }
    }
}

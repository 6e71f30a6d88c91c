//! A wait survives an outage that is shorter than `operationTimeout`.

use super::{Rule, Surroundings, Violation, at, resource::ResourceHistory};
use crate::history::{Call, LAST_WAITS, Outcome};

/// Somewhat shorter than `operationTimeout`, for what a busy machine adds.
const SURVIVED_NS: u64 = 4_000_000_000;
/// How long after its invocation a wait certainly stands in the queue.
const QUEUED_AFTER_NS: u64 = 1_000_000_000;
/// Two faults that lie closer together count as one outage.
const APART_NS: u64 = 1_000_000_000;

/// Looks for waits that ended with `STORE_UNAVAILABLE` although nothing was wrong
/// for long.
pub(crate) fn check(
    history: &ResourceHistory<'_>,
    surroundings: Surroundings<'_>,
    found: &mut Vec<Violation>,
) {
    for wait in history.waits().filter(|wait| wait.known() == Some(&Outcome::Unavailable)) {
        let (from_ns, until_ns) = (wait.invoked_ns(), wait.completed_ns());
        // Of the last waits another rule tells more.
        if wait.invocation.process == LAST_WAITS
            || surroundings.ends_processes(from_ns, until_ns)
        {
            continue;
        }
        // A backend that takes no writes refuses new waits, which is no outage.
        // Whoever stands in the queue needs no more room.
        let refusing: Vec<_> = surroundings
            .faults
            .iter()
            .filter(|fault| fault.from_ns <= until_ns && fault.until_ns >= from_ns)
            .filter(|fault| fault.refuses_writes())
            .collect();
        if refusing.iter().any(|fault| fault.from_ns <= from_ns + QUEUED_AFTER_NS) {
            continue;
        }
        let longest_ns = surroundings.longest_outage_ns(from_ns, until_ns, APART_NS);
        let Call::Lock { wait_ms, .. } = &wait.invocation.call else { continue };
        if longest_ns < SURVIVED_NS {
            found.push(Violation {
                rule: Rule::WaitsSurvive,
                resource: history.name.into(),
                what: format!(
                    "a wait of {wait_ms} ms since {} was STORE_UNAVAILABLE at {}; the longest \
                     outage meanwhile took {} ms",
                    at(history, from_ns),
                    at(history, until_ns),
                    longest_ns / 1_000_000,
                ),
                calls: vec![wait.invocation.id],
            });
        }
    }
}

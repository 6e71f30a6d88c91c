//! What a failover of Redis may lose, and the violations that only such a loss explains.
//!
//! Every history is checked as if nothing could be lost. If that finds violations, it is checked
//! again with everything that the promoted replica had perhaps not received: what is still found
//! is a violation, and the rest is excused.

use std::collections::BTreeMap;

use super::rule::Violation;
use crate::history::{Call, Operation};

/// An answered write that can be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Write {
    /// A grant.
    Grant,
    /// A renewal.
    Renewal,
    /// An unlock, or any other end of a grant.
    Unlock,
}

impl Write {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Grant, Self::Renewal, Self::Unlock];

    /// What a call has written; `None` if it certainly wrote nothing.
    pub(super) fn of(call: &Operation) -> Option<Self> {
        if call.did_nothing() {
            return None;
        }
        Some(match &call.invocation.call {
            Call::Try(_) | Call::Lock { .. } | Call::ForeignTry(_) | Call::FrontTry(_) => {
                Self::Grant
            }
            Call::Renew { .. } => Self::Renewal,
            Call::Unlock { .. }
            | Call::UnlockWrong { .. }
            | Call::Force
            | Call::End { .. }
            | Call::EndAll => Self::Unlock,
        })
    }
}

/// How many violations are excused by lost writes, by the kind that alone explains them; the
/// kind is `None` if several together do.
pub type Excused = BTreeMap<Option<Write>, usize>;

/// Checks the history of a resource with the writes that may be lost. Counts what only their
/// loss explains in `excused`, and returns what it does not.
pub(super) fn check(
    rules: impl Fn(&[Write]) -> Vec<Violation>,
    excused: &mut Excused,
) -> Vec<Violation> {
    let strictly = rules(&[]);
    if strictly.is_empty() {
        return strictly;
    }
    let found = rules(&Write::ALL);
    let is_in = |violations: &[Violation], violation: &Violation| {
        violations.iter().any(|it| (it.rule, &it.calls) == (violation.rule, &violation.calls))
    };
    let explained: Vec<_> =
        strictly.iter().filter(|violation| !is_in(&found, violation)).collect();
    if explained.is_empty() {
        return strictly;
    }
    let by_kind = Write::ALL.map(|write| (write, rules(&[write])));
    for violation in explained {
        let alone = by_kind.iter().find(|(_, found)| !is_in(found, violation));
        *excused.entry(alone.map(|(write, _)| *write)).or_default() += 1;
    }
    found
}

//! When a grant was certainly held.

use super::{
    environment::Environment,
    grants::{Grant, Term},
    resource::ResourceHistory,
};
use crate::{
    faults::Injected,
    history::{Call, Operation, Outcome},
    world::Backend,
};

/// How much of a TTL is safe to use. A twentieth is left out for clocks that drift apart,
/// and 20 ms for notifying the holder.
pub(crate) fn safe_ns(ttl_ns: u64) -> u64 {
    ttl_ns.saturating_sub(ttl_ns / 20 + 20_000_000)
}

/// How far the member whose data set is saved can be behind the others.
pub(super) const SAVED_LATE_NS: u64 = 500_000_000;

/// When a renewal that found no grant may have ended it itself: its first try shortened the
/// TTL, the reply was lost, and the second try came after the end of the TTL.
pub(crate) fn shortened_by(operation: &Operation, environment: Environment<'_>) -> Option<u64> {
    let Call::Renew { ttl_ms, .. } = &operation.invocation.call else { return None };
    let (from_ns, until_ns) = (operation.invoked_ns(), operation.completed_ns());
    let ended_ns = from_ns + safe_ns(ttl_ms.max(&100) * 1_000_000);
    let not_found = matches!(operation.known(), Some(Outcome::NotHeld { .. }));
    let may_be_repeated =
        environment.backend != Backend::Memory && environment.loses_replies(operation);
    (not_found && ended_ns <= until_ns && may_be_repeated).then_some(ended_ns)
}

/// A time in which a grant was certainly held: from the completion of a call that proves it
/// to its safe deadline, or to the first call that may have ended it. For a grant by a server that
/// a failover had already replaced, it is one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) from_ns: u64,
    pub(crate) until_ns: u64,
    /// The call that proves that it was held.
    pub(crate) call: u64,
}

impl Grant<'_> {
    /// The times in which it was certainly held, sorted by their start.
    pub(crate) fn held(
        &self,
        history: &ResourceHistory<'_>,
        environment: Environment<'_>,
    ) -> Vec<Held> {
        let mut held: Vec<_> = self
            .terms
            .iter()
            .filter(|term| term.operation.known().is_some())
            .filter(|term| self.is_named_alone || term.operation.granted().is_some())
            .filter_map(|term| self.held_by_term(term, history, environment))
            .collect();
        held.sort_by_key(|held| held.from_ns);
        held
    }

    fn held_by_term(
        &self,
        term: &Term<'_>,
        history: &ResourceHistory<'_>,
        environment: Environment<'_>,
    ) -> Option<Held> {
        if self.came_back_released(term, environment) {
            return None;
        }
        let from_ns = term.operation.completed_ns();
        let mut until_ns = term.counted_from_ns + safe_ns(term.ttl_ns);
        // A renewal may have shortened the TTL even if it was not answered.
        for other in &self.terms {
            if other.operation.completed_ns() > term.counted_from_ns
                && other.operation.invocation.id != term.operation.invocation.id
            {
                let from_ns = other.counted_from_ns.max(term.counted_from_ns);
                until_ns = until_ns.min(from_ns + safe_ns(other.ttl_ns));
            }
        }
        for renewal in &self.renewals {
            if let Some(ended_ns) = shortened_by(renewal, environment)
                && renewal.completed_ns() > term.counted_from_ns
            {
                let later_ns = term.counted_from_ns.saturating_sub(renewal.invoked_ns());
                until_ns = until_ns.min(ended_ns + later_ns);
            }
        }
        for unlock in self.unlocks.iter().filter(|unlock| !unlock.did_nothing()) {
            // An unlock that was answered before this term began ended another grant, or
            // the grant was revived, which another rule reports.
            if unlock.completed_ns() > term.operation.invoked_ns() {
                until_ns = until_ns.min(unlock.invoked_ns());
            }
        }
        for end in history.ends(self) {
            if end.completed_ns() > term.operation.invoked_ns() {
                until_ns = until_ns.min(end.invoked_ns());
            }
        }
        for fault in
            environment.faults.iter().filter(|fault| fault.voids_grant_of(history.name))
        {
            if term.operation.invoked_ns() < fault.over_ns {
                until_ns = until_ns.min(fault.from_ns);
            }
        }
        let call = term.operation.invocation.id;
        if from_ns >= until_ns {
            return None;
        }
        if let Some(lost_ns) = environment.lost_from_ns(term.operation) {
            until_ns = until_ns.min(lost_ns).max(from_ns);
        }
        Some(Held { from_ns, until_ns, call })
    }

    /// Whether a restored data set may have brought the grant back, for this term, after it
    /// was released. It is then not certainly held, because the process that released it
    /// revokes its lease, so that it does not keep others out for long. A grant that was
    /// released before the data set was saved cannot come back.
    fn came_back_released(&self, term: &Term<'_>, environment: Environment<'_>) -> bool {
        let asked_by_ns = term.operation.completed_ns();
        let brings_back = |fault: &Injected| {
            fault.brings_back()
                && fault.over_ns >= self.invoked_ns()
                && fault.from_ns <= asked_by_ns
        };
        environment.faults.iter().filter(|fault| brings_back(fault)).any(|fault| {
            self.unlocks.iter().any(|unlock| {
                !unlock.did_nothing()
                    && unlock.invoked_ns() < term.operation.invoked_ns().min(fault.over_ns)
                    && unlock.completed_ns().saturating_add(SAVED_LATE_NS) >= fault.from_ns
            })
        })
    }
}

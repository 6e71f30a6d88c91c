//! When a grant was certainly held.

use super::{Surroundings, resource::ResourceHistory};
use crate::{
    faults::{Injected, Voids},
    history::{Call, Operation, Outcome},
    world::Backend,
};

/// What a holder holds back from a TTL: a twentieth for clocks that drift
/// apart, and 20 ms for the telling (the contract's drift allowance).
pub(crate) fn safe_ns(ttl_ns: u64) -> u64 {
    ttl_ns.saturating_sub(ttl_ns / 20 + 20_000_000)
}

/// How far behind the others a member can be whose data set is saved.
pub(super) const SAVED_LATE_NS: u64 = 500_000_000;

/// When a grant ended that was not found by a renewal, if the renewal itself may
/// have set that: its first try shortened the TTL, the reply was lost, and the
/// second came after the end.
pub(crate) fn shortened_by(
    operation: &Operation,
    surroundings: Surroundings<'_>,
) -> Option<u64> {
    let Call::Renew { ttl_ms, .. } = &operation.invocation.call else { return None };
    let (from_ns, until_ns) = (operation.invoked_ns(), operation.completed_ns());
    let ended_ns = from_ns + safe_ns(ttl_ms.max(&100) * 1_000_000);
    let not_found = matches!(operation.known(), Some(Outcome::NotHeld { .. }));
    let may_be_repeated = surroundings.backend != Backend::Memory
        && surroundings.loses_replies(from_ns, until_ns);
    (not_found && ended_ns <= until_ns && may_be_repeated).then_some(ended_ns)
}

/// One grant, with every call that concerns it.
#[derive(Debug)]
pub(crate) struct Grant<'a> {
    pub(crate) lock_id: &'a str,
    pub(crate) token: i64,
    /// The calls that were answered with it, by their completion; more than one
    /// if it was found again by its request ID.
    pub(crate) acquisitions: Vec<&'a Operation>,
    /// The calls that renewed it, or tried to, or may have.
    pub(crate) renewals: Vec<&'a Operation>,
    pub(crate) unlocks: Vec<&'a Operation>,
    /// Whether no other grant has its lock ID. Somebody who brings a lock ID may
    /// have several with it, and what is done with it can be meant for any.
    pub(crate) is_named_alone: bool,
    /// What started its TTL, certainly or perhaps, by the time from which the
    /// TTL counts at the earliest.
    pub(crate) terms: Vec<Term<'a>>,
}

/// One start of a grant's TTL.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Term<'a> {
    pub(crate) operation: &'a Operation,
    /// The earliest moment from which the TTL can have counted.
    pub(crate) counted_from_ns: u64,
    pub(crate) ttl_ns: u64,
}

/// From when until when a grant was certainly held: from the completion of a
/// call that proves it until its safe deadline, or until something was asked
/// that may have ended it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) from_ns: u64,
    pub(crate) until_ns: u64,
    /// The call that proves it.
    pub(crate) call: u64,
}

impl<'a> Grant<'a> {
    pub(crate) fn new(lock_id: &'a str, token: i64) -> Self {
        Self {
            lock_id,
            token,
            acquisitions: Vec::new(),
            renewals: Vec::new(),
            unlocks: Vec::new(),
            is_named_alone: true,
            terms: Vec::new(),
        }
    }

    /// Whether a client of Redis took it past leasehold: it has no token.
    pub(crate) fn is_foreign(&self) -> bool {
        self.token == 0
            && self
                .acquisitions
                .iter()
                .any(|it| matches!(it.invocation.call, Call::ForeignTry(_)))
    }

    /// The first invocation of the calls that were answered with it.
    pub(crate) fn invoked_ns(&self) -> u64 {
        self.acquisitions.iter().map(|op| op.invoked_ns()).min().unwrap_or(0)
    }

    /// By when it had been made.
    pub(crate) fn completed_ns(&self) -> u64 {
        self.acquisitions.first().map_or(u64::MAX, |op| op.completed_ns())
    }

    /// The call that was first answered with it.
    pub(crate) fn call(&self) -> u64 {
        self.acquisitions.first().map_or(0, |op| op.invocation.id)
    }

    /// The times in which it was certainly held, by their begin.
    pub(crate) fn held(
        &self,
        history: &ResourceHistory<'_>,
        surroundings: Surroundings<'_>,
    ) -> Vec<Held> {
        let mut held: Vec<_> = self
            .terms
            .iter()
            .filter(|term| term.operation.known().is_some())
            .filter(|term| self.is_named_alone || term.operation.granted().is_some())
            .filter_map(|term| self.held_by_term(term, history, surroundings))
            .collect();
        held.sort_by_key(|held| held.from_ns);
        held
    }

    fn held_by_term(
        &self,
        term: &Term<'_>,
        history: &ResourceHistory<'_>,
        surroundings: Surroundings<'_>,
    ) -> Option<Held> {
        if self.came_back_released(term, surroundings) {
            return None;
        }
        let from_ns = term.operation.completed_ns();
        let mut until_ns = term.counted_from_ns + safe_ns(term.ttl_ns);
        // A renewal may shorten the TTL, whether or not it was answered.
        for other in &self.terms {
            if other.operation.completed_ns() > term.counted_from_ns
                && other.operation.invocation.id != term.operation.invocation.id
            {
                let from_ns = other.counted_from_ns.max(term.counted_from_ns);
                until_ns = until_ns.min(from_ns + safe_ns(other.ttl_ns));
            }
        }
        for renewal in &self.renewals {
            if let Some(ended_ns) = shortened_by(renewal, surroundings)
                && renewal.completed_ns() > term.counted_from_ns
            {
                let later_ns = term.counted_from_ns.saturating_sub(renewal.invoked_ns());
                until_ns = until_ns.min(ended_ns + later_ns);
            }
        }
        for unlock in self.unlocks.iter().filter(|unlock| !unlock.did_nothing()) {
            // One that was answered before this term began ended something
            // else, or the term is a revival, which is another rule's.
            if unlock.completed_ns() > term.operation.invoked_ns() {
                until_ns = until_ns.min(unlock.invoked_ns());
            }
        }
        for force in history.forces() {
            if force.completed_ns() > term.operation.invoked_ns() {
                until_ns = until_ns.min(force.invoked_ns());
            }
        }
        for fault in
            surroundings.faults.iter().filter(|fault| fault.voids_grant_of(history.name))
        {
            if term.operation.invoked_ns() < fault.over_ns {
                until_ns = until_ns.min(fault.from_ns);
            }
        }
        let call = term.operation.invocation.id;
        (from_ns < until_ns).then_some(Held { from_ns, until_ns, call })
    }

    /// Whether an older data set may have brought the grant back for this term
    /// after it was released: whoever renews it then has no claim to it, because
    /// the process that released it revokes its lease, as it must so that nobody
    /// is kept out for long. What was released before that data set was saved
    /// cannot come back.
    fn came_back_released(&self, term: &Term<'_>, surroundings: Surroundings<'_>) -> bool {
        let asked_by_ns = term.operation.completed_ns();
        let brings_back = |fault: &Injected| {
            fault.brings_back()
                && fault.over_ns >= self.invoked_ns()
                && fault.from_ns <= asked_by_ns
        };
        surroundings.faults.iter().filter(|fault| brings_back(fault)).any(|fault| {
            self.unlocks.iter().any(|unlock| {
                !unlock.did_nothing()
                    && unlock.invoked_ns() < term.operation.invoked_ns().min(fault.over_ns)
                    && unlock.completed_ns().saturating_add(SAVED_LATE_NS) >= fault.from_ns
            })
        })
    }
}

impl Injected {
    /// Whether it may have ended the live grant of a resource.
    pub(crate) fn voids_grant_of(&self, resource: &str) -> bool {
        match &self.voids {
            Voids::Nothing => false,
            Voids::GrantOf(of) => of == resource,
            Voids::Grants | Voids::GrantsAndTokens => true,
        }
    }

    /// Whether grants that had ended may be back after it: only an older data
    /// set has them. What is flushed, or lost with its process, stays gone.
    pub(crate) fn brings_back(&self) -> bool {
        self.name.starts_with("etcd-restored")
    }

    /// Whether the backend answers during it, and takes no more data.
    pub(crate) fn refuses_writes(&self) -> bool {
        ["redis-out-of-memory", "etcd-out-of-space"].contains(&&*self.name)
    }

    /// Whether a follower was lost, and nothing else happened: no election.
    pub(crate) fn is_follower_loss(&self) -> bool {
        self.name.starts_with("etcd-used-follower-")
    }

    /// Whether it puts something of its own in a grant's place for a while.
    pub(crate) fn puts_its_own(&self) -> bool {
        self.name.ends_with("-holder-replaced") || self.name.ends_with("-of-wrong-type")
    }

    /// Whether a reply of the backend to leasehold may be lost by it, or come too
    /// late: something between them, or either process, stood still or ended.
    pub(crate) fn loses_replies(&self) -> bool {
        [
            "network-",
            "leasehold-",
            "crowd-killed-with-leasehold",
            "etcd-leader-",
            "etcd-member-",
            "etcd-used-follower-",
            "etcd-restored",
            "etcd-restarted-in-turn",
            "etcd-all-",
            "etcd-out-of-space",
            "redis-restarted",
            "redis-suspended",
            "redis-failed-over",
            "redis-client",
        ]
        .iter()
        .any(|begin| self.name.starts_with(begin))
    }

    /// Whether a grant may live on beyond its TTL by it: a clock that is set back
    /// makes Redis keep all of them longer, and of one somebody took the expiry
    /// away.
    pub(crate) fn prolongs(&self, resource: &str) -> bool {
        let of = || self.detail.rsplit_once(", taken back").map(|(of, _)| of);
        self.name == "redis-clock-back"
            || (self.name == "redis-holder-without-expiry" && of() == Some(resource))
    }
}

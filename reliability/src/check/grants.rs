//! The grants in a history, each with all of its calls.

use std::collections::{HashMap, HashSet};

use crate::history::{Call, Mode, Operation, Outcome};

/// One grant with all of its calls.
#[derive(Debug)]
pub(crate) struct Grant<'a> {
    pub(crate) lock_id: &'a str,
    pub(crate) token: i64,
    /// The calls that were answered with it, sorted by their completion. There are several
    /// if it was found again by its request ID.
    pub(crate) acquisitions: Vec<&'a Operation>,
    /// The calls that renewed it, may have, or failed to.
    pub(crate) renewals: Vec<&'a Operation>,
    pub(crate) unlocks: Vec<&'a Operation>,
    /// Whether no other grant has its lock ID, or may have it because its call was not
    /// answered. A client that chooses a lock ID may have several grants with it, and its
    /// calls may concern any of them.
    pub(crate) is_named_alone: bool,
    /// The certain and possible starts of its TTL, sorted by the earliest start.
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

    /// Whether a client of Redis took it without leasehold. Then it has no token.
    pub(crate) fn is_foreign(&self) -> bool {
        self.token == 0 && self.was_taken_by(|call| matches!(call, Call::ForeignTry(_)))
    }

    /// Whether its token is unknown, because a client of Redis took it, directly or through a
    /// front.
    pub(crate) fn has_no_token(&self) -> bool {
        let is_of_redis = |call: &_| matches!(call, Call::ForeignTry(_) | Call::FrontTry(_));
        self.token == 0 && self.was_taken_by(is_of_redis)
    }

    fn was_taken_by(&self, is_so: impl Fn(&Call) -> bool) -> bool {
        self.acquisitions.iter().any(|it| is_so(&it.invocation.call))
    }

    /// Its mode.
    pub(crate) fn mode(&self) -> Mode {
        self.acquisitions.first().map_or_else(Mode::default, |op| op.mode())
    }

    /// Whether it and another grant must not be held at the same time.
    pub(crate) fn excludes(&self, other: &Self) -> bool {
        self.mode().excludes(other.mode())
    }

    /// Whether a call may have ended it, whoever holds it.
    pub(crate) fn may_be_ended_by(&self, call: &Operation) -> bool {
        let granted = self.acquisitions.first().and_then(|op| op.granted());
        // A client of Redis does not learn the public ID.
        let known = granted.map(|granted| &granted.grant_id).filter(|id| !id.is_empty());
        match &call.invocation.call {
            Call::Force => true,
            Call::End { grant_id } => known == Some(grant_id),
            Call::EndAll => match call.known() {
                Some(Outcome::Ended { grant_ids, more }) => {
                    *more || grant_ids.iter().any(|id| known.is_none_or(|known| known == id))
                }
                _ => true,
            },
            _ => false,
        }
    }

    /// The first invocation of the calls that were answered with it.
    pub(crate) fn invoked_ns(&self) -> u64 {
        self.acquisitions.iter().map(|op| op.invoked_ns()).min().unwrap_or(0)
    }

    /// The earliest moment at which it can have been asked for. A call that was not answered
    /// may have made it, and another call with its request ID found it later, when further
    /// shared grants had been made.
    pub(crate) fn asked_ns(&self) -> u64 {
        let unanswered = self
            .renewals
            .iter()
            .filter(|op| {
                self.mode() == Mode::Shared && op.invocation.call.acquisition().is_some()
            })
            .map(|op| op.invoked_ns());
        unanswered.chain([self.invoked_ns()]).min().unwrap_or(0)
    }

    /// By when it was made.
    pub(crate) fn completed_ns(&self) -> u64 {
        self.acquisitions.first().map_or(u64::MAX, |op| op.completed_ns())
    }

    /// The call that was first answered with it.
    pub(crate) fn call(&self) -> u64 {
        self.acquisitions.first().map_or(0, |op| op.invocation.id)
    }
}

/// Collects every grant from the calls that made, found, renewed or ended it.
pub(super) fn collect<'a>(operations: &[&'a Operation]) -> Vec<Grant<'a>> {
    let mut grants: Vec<Grant<'a>> = Vec::new();
    let mut places: HashMap<(i64, &str), usize> = HashMap::new();
    for operation in operations {
        let Some(granted) = operation.granted() else { continue };
        let place =
            *places.entry((granted.token, granted.lock_id.as_str())).or_insert_with(|| {
                grants.push(Grant::new(&granted.lock_id, granted.token));
                grants.len() - 1
            });
        grants[place].acquisitions.push(operation);
    }
    let mut of_id: HashMap<&str, Vec<usize>> = HashMap::new();
    let mut of_request: HashMap<&str, Vec<usize>> = HashMap::new();
    for (place, grant) in grants.iter_mut().enumerate() {
        grant.acquisitions.sort_by_key(|operation| operation.completed_ns());
        of_id.entry(grant.lock_id).or_default().push(place);
        for acquisition in &grant.acquisitions {
            if let Some(id) = request_id(acquisition) {
                of_request.entry(id).or_default().push(place);
            }
        }
    }
    for operation in operations {
        match &operation.invocation.call {
            Call::Renew { lock_id, .. } => {
                for &place in of_id.get(lock_id.as_str()).into_iter().flatten() {
                    grants[place].renewals.push(operation);
                }
            }
            Call::Unlock { lock_id } => {
                for &place in of_id.get(lock_id.as_str()).into_iter().flatten() {
                    grants[place].unlocks.push(operation);
                }
            }
            Call::Try(_) | Call::Lock { .. } if operation.known().is_none() => {
                // It may have found the grant, and started its TTL again.
                for &place in request_id(operation)
                    .and_then(|id| of_request.get(id))
                    .into_iter()
                    .flatten()
                {
                    grants[place].renewals.push(operation);
                }
            }
            _ => {}
        }
    }
    let unanswered: HashSet<_> = operations
        .iter()
        .filter(|operation| operation.known().is_none())
        .filter_map(|operation| operation.invocation.call.acquisition()?.lock_id.as_deref())
        .collect();
    for grant in &mut grants {
        let places = of_id.get(grant.lock_id).map_or(1, Vec::len);
        grant.is_named_alone = places == 1 && !unanswered.contains(grant.lock_id);
        grant.terms = terms(grant);
    }
    grants
}

fn request_id(operation: &Operation) -> Option<&str> {
    operation.invocation.call.acquisition()?.request_id.as_deref()
}

fn terms<'a>(grant: &Grant<'a>) -> Vec<Term<'a>> {
    let mut terms: Vec<_> = grant
        .acquisitions
        .iter()
        .chain(&grant.renewals)
        .filter(|operation| !operation.did_nothing())
        .map(|operation| term(operation))
        .collect();
    terms.sort_by_key(|term| (term.counted_from_ns, term.operation.invocation.id));
    terms
}

/// The TTL that a call started; if its outcome is unknown, the TTL that it asked for.
fn term(operation: &Operation) -> Term<'_> {
    let asked_ms = match &operation.invocation.call {
        Call::Try(acquisition)
        | Call::Lock { acquisition, .. }
        | Call::ForeignTry(acquisition)
        | Call::FrontTry(acquisition) => acquisition.ttl_ms,
        Call::Renew { ttl_ms, .. } => *ttl_ms,
        _ => 0,
    };
    let asked_ns = asked_ms.max(100) * 1_000_000;
    let (waited_ns, ttl_ns) = match operation.known() {
        Some(Outcome::Granted(granted)) => (granted.waited_ns, granted.ttl_ns),
        Some(Outcome::Renewed { ttl_ns }) => (0, *ttl_ns),
        _ => (0, asked_ns),
    };
    Term {
        operation,
        counted_from_ns: operation.invoked_ns().saturating_add(waited_ns),
        ttl_ns,
    }
}

//! One resource's calls, and the grants among them.

use std::collections::HashMap;

use super::grants::{Grant, Term};
use crate::history::{Call, Operation, Outcome};

/// Everything that was asked of one resource.
#[derive(Debug)]
pub(crate) struct ResourceHistory<'a> {
    pub(crate) name: &'a str,
    /// By the time of their invocation.
    pub(crate) operations: Vec<&'a Operation>,
    pub(crate) grants: Vec<Grant<'a>>,
}

impl<'a> ResourceHistory<'a> {
    pub(crate) fn new(name: &'a str, mut operations: Vec<&'a Operation>) -> Self {
        operations.sort_by_key(|operation| operation.invoked_ns());
        let grants = collect(&operations);
        Self { name, operations, grants }
    }

    pub(crate) fn began_ns(&self) -> u64 {
        self.operations.first().map_or(0, |operation| operation.invoked_ns())
    }

    /// The calls that force an unlock, unless they certainly did nothing.
    pub(crate) fn forces(&self) -> impl Iterator<Item = &'a Operation> {
        self.operations
            .iter()
            .copied()
            .filter(|op| matches!(op.invocation.call, Call::Force) && !op.did_nothing())
    }

    /// The waits.
    pub(crate) fn waits(&self) -> impl Iterator<Item = &'a Operation> {
        self.operations
            .iter()
            .copied()
            .filter(|op| matches!(op.invocation.call, Call::Lock { .. }))
    }

    /// Acquisitions that may have happened and told nobody.
    pub(crate) fn unknown_acquisitions(&self) -> impl Iterator<Item = &'a Operation> {
        self.operations
            .iter()
            .copied()
            .filter(|op| op.invocation.call.acquisition().is_some() && op.known().is_none())
    }
}

/// Puts every grant together from the calls that made it, found it again,
/// renewed or ended it.
fn collect<'a>(operations: &[&'a Operation]) -> Vec<Grant<'a>> {
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
    for grant in &mut grants {
        grant.is_named_alone = of_id.get(grant.lock_id).is_none_or(|places| places.len() == 1);
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

/// What a call that started a TTL says of it; of an unknown one, what was asked
/// for.
fn term(operation: &Operation) -> Term<'_> {
    let asked_ms = match &operation.invocation.call {
        Call::Try(acquisition)
        | Call::Lock { acquisition, .. }
        | Call::ForeignTry(acquisition) => acquisition.ttl_ms,
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

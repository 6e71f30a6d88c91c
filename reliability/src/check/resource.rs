//! The calls and the grants of one resource.

use super::grants::{Grant, collect};
use crate::history::{Call, Operation};

/// Every call for one resource.
#[derive(Debug)]
pub(crate) struct ResourceHistory<'a> {
    pub(crate) name: &'a str,
    /// Sorted by the time of their invocation.
    pub(crate) operations: Vec<&'a Operation>,
    pub(crate) grants: Vec<Grant<'a>>,
}

impl<'a> ResourceHistory<'a> {
    pub(crate) fn new(name: &'a str, mut operations: Vec<&'a Operation>) -> Self {
        operations.sort_by_key(|operation| operation.invoked_ns());
        let grants = collect(&operations);
        Self { name, operations, grants }
    }

    fn began_ns(&self) -> u64 {
        self.operations.first().map_or(0, |operation| operation.invoked_ns())
    }

    /// A moment as text: milliseconds since the history began.
    pub(crate) fn at(&self, at_ns: u64) -> String {
        #[allow(clippy::cast_precision_loss, reason = "for people")]
        let ms = at_ns.saturating_sub(self.began_ns()) as f64 / 1e6;
        if at_ns == u64::MAX { "never".into() } else { format!("{ms:.3} ms") }
    }

    /// The calls that end a grant whoever holds it, except those that certainly did nothing.
    pub(crate) fn forces(&self) -> impl Iterator<Item = &'a Operation> {
        self.operations.iter().copied().filter(|op| op.forces() && !op.did_nothing())
    }

    /// The calls that may have ended a grant, whoever holds it.
    pub(crate) fn ends(&self, grant: &Grant<'_>) -> impl Iterator<Item = &'a Operation> {
        self.forces().filter(|op| grant.may_be_ended_by(op))
    }

    /// The calls that wait.
    pub(crate) fn waits(&self) -> impl Iterator<Item = &'a Operation> {
        self.operations
            .iter()
            .copied()
            .filter(|op| matches!(op.invocation.call, Call::Lock { .. }))
    }

    /// The acquisitions of unknown outcome.
    pub(crate) fn unknown_acquisitions(&self) -> impl Iterator<Item = &'a Operation> {
        self.operations
            .iter()
            .copied()
            .filter(|op| op.invocation.call.acquisition().is_some() && op.known().is_none())
    }
}

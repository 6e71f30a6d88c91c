//! The promises that are checked, and violations of them.

use std::fmt;

use serde::Serialize;

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// The promise.
    pub rule: Rule,
    /// The resource; empty for leftovers at the end.
    pub resource: String,
    /// What happened.
    pub what: String,
    /// The calls that prove it.
    pub calls: Vec<u64>,
}

/// The promises that are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// At most one exclusive holder at any instant, or any number of shared ones.
    OneHolder,
    /// Tokens rise in real-time order, strictly unless both grants are shared, and stay
    /// below 2^53.
    TokensRise,
    /// No grant ends before its TTL, and no TTL is shorter than asked for.
    WholeTtl,
    /// A renewal never brings a grant back.
    NoRevival,
    /// Nobody unlocks the grant of another, or a grant twice.
    OwnUnlock,
    /// Waiters are served in order.
    InOrder,
    /// A waiter of a free resource is served.
    Served,
    /// A try on a free resource is granted, once dead waiters are skipped.
    TriesGranted,
    /// A lock that is renewed in time survives an outage of half its TTL.
    RenewedSurvives,
    /// A wait survives an outage that is shorter than `operationTimeout`.
    WaitsSurvive,
    /// A call that failed had no effect.
    NoEffect,
    /// A call that does not wait is answered in time.
    Prompt,
    /// Every answer is one that the contract allows.
    Answers,
    /// Nothing is left behind at the end.
    NothingLeft,
    /// The events of a watch add up to a list.
    WatchMatchesList,
    /// No event contains a lock ID, a request ID or a token.
    NoSecret,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}: {}", self.rule, self.resource, self.what)?;
        if self.calls.is_empty() { Ok(()) } else { write!(f, " (calls {:?})", self.calls) }
    }
}

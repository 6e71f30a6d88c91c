//! Linearizability of the lock object, one resource at a time.
//!
//! The algorithm is Wing and Gong's with Lowe's cache of visited states, as in porcupine.
//! Existing checkers do not fit, because a lock can end by itself: expiry, clean-up and
//! lost data are optional steps, possible from some moment on and in some states only.
//! stateright's tester assumes that a call in flight can always take effect, and has no
//! cache, so it does not finish on hundreds of calls. The ports of porcupine have no
//! optional steps; calls that may do nothing would have to stand for them, and each grant
//! would double the search. A test compares this search with trying every order of small
//! random histories.

mod calls;
mod lock;
mod numbers;
mod search;
mod steps;

use super::{
    environment::Environment,
    resource::ResourceHistory,
    rule::{Rule, Violation},
};

/// The result of the search.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// There is an order that explains every answer.
    Linearizable,
    /// The search reached its limit.
    Undecided,
    /// There is no such order.
    Violated(Violation),
}

/// Looks for an order of the calls that explains every answer.
pub(crate) fn check(history: &ResourceHistory<'_>, environment: Environment<'_>) -> Finding {
    let steps = steps::steps(history, environment);
    match search::search(&lock::State::default(), &steps) {
        search::Result::Found => Finding::Linearizable,
        search::Result::LimitReached => Finding::Undecided,
        search::Result::None { stuck_at } => {
            let step = &steps[stuck_at];
            Finding::Violated(Violation {
                rule: Rule::Linearizable,
                resource: history.name.into(),
                what: format!(
                    "no order explains every answer; the longest one found ends before {:?}, \
                     invoked at {} and answered at {}",
                    step.kind,
                    history.at(step.from_ns),
                    history.at(step.until_ns),
                ),
                calls: step.call.into_iter().collect(),
            })
        }
    }
}

//! Linearizability of the lock object, a resource at a time.
//!
//! The search is Wing and Gong's with Lowe's memory of what was seen, as in
//! porcupine. It is our own because a lock ends by itself: expiry, undoing and
//! lost data are steps that may or may not happen, from some moment on, and only
//! in some states. stateright's tester takes a call in flight as one that can
//! always be carried out, keeps no memory of what it has tried, and so neither
//! says this nor ends on hundreds of calls; porcupine's ports have no optional
//! steps, and one would have to be made of calls that do nothing, which doubles
//! the search with every grant. A test compares this one with trying every order
//! on small random histories.

mod lock;
mod search;
mod steps;

use super::{Rule, Surroundings, Violation, resource::ResourceHistory};

/// What came of the search.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// There is an order that explains every answer.
    Linearizable,
    /// The limit was reached.
    Undecided,
    /// There is none.
    Violated(Violation),
}

/// Looks for an order of the calls that explains every answer.
pub(crate) fn check(history: &ResourceHistory<'_>, surroundings: Surroundings<'_>) -> Finding {
    let steps = steps::steps(history, surroundings);
    match search::search(&lock::State::default(), &steps) {
        search::Result::Found => Finding::Linearizable,
        search::Result::LimitReached => Finding::Undecided,
        search::Result::None { stuck_at } => {
            let step = &steps[stuck_at];
            Finding::Violated(Violation {
                rule: Rule::Linearizable,
                resource: history.name.into(),
                what: format!(
                    "no order explains every answer; the farthest reached before {:?}, \
                     invoked at {} and answered at {}",
                    step.kind,
                    super::at(history, step.from_ns),
                    super::at(history, step.until_ns),
                ),
                calls: step.call.into_iter().collect(),
            })
        }
    }
}

//! A checker of linearizability for the operations on one resource.
//!
//! It looks for an order of the operations that respects real time (what
//! ended before another began comes first) and that a single lock would have
//! answered in the same way: the search of Wing and Gong, with Lowe's memory
//! of the states already tried.

use std::collections::HashSet;

use tokio::time::Instant;

/// The most operations that a history may have: one bit each.
pub(crate) const OPERATIONS_MAX: usize = 128;

/// What was asked, and what was answered. Grants go by numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// A try made this grant.
    Granted(usize),
    /// A try was refused.
    Refused,
    /// This grant was renewed.
    Renewed(usize),
    /// This grant was unlocked.
    Unlocked(usize),
    /// A renewal or an unlock of this grant was LOCK_NOT_FOUND, with this
    /// `held`.
    NotFound(usize, bool),
}

/// An operation with the moments between which it took effect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) operation: Operation,
    pub(crate) began_at: Instant,
    pub(crate) ended_at: Instant,
}

/// Whether one lock could have answered so.
pub(crate) fn is_linearizable(events: &[Event]) -> bool {
    assert!(events.len() <= OPERATIONS_MAX, "a history of {} operations", events.len());
    let mut tried = HashSet::new();
    let mut open = vec![(0_u128, None)];
    while let Some((done, holder)) = open.pop() {
        if done.count_ones() as usize == events.len() {
            return true;
        }
        if !tried.insert((done, holder)) {
            continue;
        }
        let left = || (0..events.len()).filter(|index| done & (1 << index) == 0);
        let first_end = left().map(|index| events[index].ended_at).min();
        for index in left().filter(|index| Some(events[*index].began_at) <= first_end) {
            if let Some(next) = apply(holder, events[index].operation) {
                open.push((done | 1 << index, next));
            }
        }
    }
    false
}

/// The holder after the operation; `None` if the operation would have been
/// answered in another way.
fn apply(holder: Option<usize>, operation: Operation) -> Option<Option<usize>> {
    match operation {
        Operation::Granted(grant) => holder.is_none().then_some(Some(grant)),
        Operation::Refused => holder.is_some().then_some(holder),
        Operation::Renewed(grant) => (holder == Some(grant)).then_some(holder),
        Operation::Unlocked(grant) => (holder == Some(grant)).then_some(None),
        Operation::NotFound(grant, held) => {
            (holder != Some(grant) && holder.is_some() == held).then_some(holder)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Operation::*, *};

    fn history(events: &[(Operation, u64, u64)]) -> bool {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let event = |&(operation, began, ended): &(Operation, u64, u64)| Event {
            operation,
            began_at: at(began),
            ended_at: at(ended),
        };
        is_linearizable(&events.iter().map(event).collect::<Vec<_>>())
    }

    #[test]
    fn overlapping_operations_may_take_effect_in_any_order() {
        assert!(history(&[(Granted(1), 0, 9), (Unlocked(1), 10, 20), (Granted(2), 11, 19)]));
        assert!(history(&[(Refused, 0, 9), (Granted(1), 5, 12)]));
    }

    #[test]
    fn two_grants_at_once_are_found() {
        assert!(!history(&[(Granted(1), 0, 2), (Granted(2), 3, 4), (Unlocked(1), 5, 6)]));
    }

    #[test]
    fn a_refusal_after_the_release_is_found() {
        assert!(!history(&[(Granted(1), 0, 1), (Unlocked(1), 2, 3), (Refused, 4, 5)]));
    }

    #[test]
    fn a_stale_held_is_found() {
        let taken = [(Granted(1), 0, 1), (Unlocked(1), 2, 3), (Granted(2), 4, 5)];
        assert!(history(&[taken.as_slice(), &[(NotFound(1, true), 6, 7)]].concat()));
        assert!(!history(&[taken.as_slice(), &[(NotFound(1, false), 6, 7)]].concat()));
    }

    #[test]
    fn a_renewal_after_the_end_is_found() {
        assert!(!history(&[(Granted(1), 0, 1), (Unlocked(1), 2, 3), (Renewed(1), 4, 5)]));
    }
}

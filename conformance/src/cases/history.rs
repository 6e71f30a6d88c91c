//! A checker of linearizability for the operations on one resource.
//!
//! It searches for an order of the operations in which a single lock would have given the same
//! answers, and in which an operation that ended before another began comes first. The
//! algorithm is Wing and Gong's, with Lowe's cache of visited states.

use std::{collections::HashSet, fmt, fmt::Write as _};

use tokio::time::Instant;

/// The most operations that a history may have: one bit each.
pub(crate) const OPERATIONS_MAX: usize = 128;

/// How many operations before the first inconsistent one are listed.
const SHOWN_BEFORE: usize = 12;

/// A call and its answer. Grants are numbered.
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
    /// A renewal of this grant was LOCK_NOT_FOUND, with this `held` if the
    /// store reports it.
    NotRenewed(usize, Option<bool>),
    /// An unlock of this grant was LOCK_NOT_FOUND, with this `held` if the
    /// store reports it.
    NotUnlocked(usize, Option<bool>),
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut not_found = |call: &str, grant: &usize, held: &Option<bool>| {
            write!(f, "{call} of grant {grant}: LOCK_NOT_FOUND")?;
            held.map_or(Ok(()), |held| write!(f, ", held {held}"))
        };
        match self {
            Self::NotRenewed(grant, held) => not_found("RenewLock", grant, held),
            Self::NotUnlocked(grant, held) => not_found("Unlock", grant, held),
            Self::Granted(grant) => write!(f, "TryLock: granted as grant {grant}"),
            Self::Refused => write!(f, "TryLock: RESOURCE_LOCKED"),
            Self::Renewed(grant) => write!(f, "RenewLock of grant {grant}: OK"),
            Self::Unlocked(grant) => write!(f, "Unlock of grant {grant}: OK"),
        }
    }
}

/// An operation, and the moments between which it took effect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) caller: usize,
    pub(crate) operation: Operation,
    pub(crate) began_at: Instant,
    pub(crate) ended_at: Instant,
}

/// Describes the first answer that a single lock could not have given after the earlier ones,
/// with the operations around it; `None` if a single lock could have given all answers.
pub(crate) fn contradiction(mut events: Vec<Event>) -> Option<String> {
    events.sort_by_key(|event| event.ended_at);
    if is_consistent(&events, events.len()) {
        return None;
    }
    // Once the answers are inconsistent, they remain so with every further answer.
    let (mut consistent, mut inconsistent) = (0, events.len());
    while inconsistent - consistent > 1 {
        let middle = usize::midpoint(consistent, inconsistent);
        if is_consistent(&events, middle) {
            consistent = middle;
        } else {
            inconsistent = middle;
        }
    }
    Some(report(&events, consistent))
}

/// Whether a single lock could have given the first `answers` of these, which are sorted by
/// their ends. The calls that were in flight then may or may not have taken effect.
fn is_consistent(events: &[Event], answers: usize) -> bool {
    assert!(events.len() <= OPERATIONS_MAX, "a history of {} operations", events.len());
    let mut tried = HashSet::new();
    let mut open = vec![(0_u128, None)];
    while let Some((done, holder)) = open.pop() {
        let is_left = |index: &usize| done & (1 << index) == 0;
        // They are sorted by their ends, so the first remaining one ends first.
        let Some(first) = (0..answers).find(is_left) else { return true };
        if !tried.insert((done, holder)) {
            continue;
        }
        let first_end = events[first].ended_at;
        let may_be_next =
            |index: &usize| is_left(index) && events[*index].began_at <= first_end;
        for index in (0..events.len()).filter(may_be_next) {
            if let Some(next) = apply(holder, events[index].operation) {
                open.push((done | 1 << index, next));
            }
        }
    }
    false
}

/// The holder after the operation; `None` if a lock would not have given this answer.
fn apply(holder: Option<usize>, operation: Operation) -> Option<Option<usize>> {
    match operation {
        Operation::Granted(grant) => holder.is_none().then_some(Some(grant)),
        Operation::Refused => holder.is_some().then_some(holder),
        Operation::Renewed(grant) => (holder == Some(grant)).then_some(holder),
        Operation::Unlocked(grant) => (holder == Some(grant)).then_some(None),
        Operation::NotRenewed(grant, held) | Operation::NotUnlocked(grant, held) => {
            let is_right = held.is_none_or(|held| holder.is_some() == held);
            (holder != Some(grant) && is_right).then_some(holder)
        }
    }
}

/// One line for the first inconsistent operation, for each operation that ended before it, and
/// for each that was in flight when it ended.
fn report(events: &[Event], first: usize) -> String {
    let start = events.iter().map(|event| event.began_at).min();
    let since = |moment: Instant| {
        let since = start.map_or(0.0, |start| moment.duration_since(start).as_secs_f64());
        format!("{:>9.3}", since * 1000.0)
    };
    let line = |event: &Event| {
        let Event { caller, operation, began_at, ended_at } = event;
        format!("{} to {} ms  caller {caller}  {operation}", since(*began_at), since(*ended_at))
    };
    let inconsistent = &events[first];
    let mut text = format!(
        "no order of the calls explains this answer after those before it:\n> {}\nThe calls \
         before it, by the time of their answers:",
        line(inconsistent)
    );
    // Writing to a String does not fail.
    let before = &events[..first];
    let left_out = before.len().saturating_sub(SHOWN_BEFORE);
    if left_out > 0 {
        let _ = write!(text, "\n  ({left_out} earlier calls, all consistent)");
    }
    for event in &before[left_out..] {
        let _ = write!(text, "\n  {}", line(event));
    }
    let open: Vec<_> = events[first + 1..]
        .iter()
        .filter(|event| event.began_at <= inconsistent.ended_at)
        .collect();
    if !open.is_empty() {
        text.push_str(
            "\nThe calls that had no answer yet, which may have taken effect or not:",
        );
    }
    for event in open {
        let _ = write!(text, "\n  {}", line(event));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Operation::*, *};

    fn found(events: &[(Operation, u64, u64)]) -> Option<String> {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let event = |&(operation, began, ended): &(Operation, u64, u64)| Event {
            caller: 0,
            operation,
            began_at: at(began),
            ended_at: at(ended),
        };
        contradiction(events.iter().map(event).collect())
    }

    fn history(events: &[(Operation, u64, u64)]) -> bool {
        found(events).is_none()
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
        assert!(history(&[taken.as_slice(), &[(NotUnlocked(1, Some(true)), 6, 7)]].concat()));
        assert!(!history(&[taken.as_slice(), &[(NotUnlocked(1, Some(false)), 6, 7)]].concat()));
    }

    #[test]
    fn a_renewal_after_the_end_is_found() {
        assert!(!history(&[(Granted(1), 0, 1), (Unlocked(1), 2, 3), (Renewed(1), 4, 5)]));
    }

    #[test]
    fn an_absent_held_contradicts_nothing() {
        let taken = [(Granted(1), 0, 1), (Unlocked(1), 2, 3)];
        assert!(history(&[taken.as_slice(), &[(NotRenewed(1, None), 4, 5)]].concat()));
    }

    #[test]
    fn the_first_inconsistent_answer_is_reported_with_those_before_it() {
        let report = found(&[
            (Granted(1), 0, 1),
            (Granted(2), 3, 4),
            (Unlocked(1), 5, 6),
            (Renewed(1), 7, 8),
            (Refused, 2, 9),
        ])
        .unwrap();
        let (first, rest) = report.split_once("The calls before it").unwrap();
        assert!(
            first.contains(">     3.000 to     4.000 ms  caller 0  TryLock: granted"),
            "{report}"
        );
        assert!(rest.contains("granted as grant 1"), "{report}");
        assert!(rest.contains("no answer yet") && rest.contains("RESOURCE_LOCKED"), "{report}");
        assert!(!report.contains("RenewLock"), "{report}");
    }

    #[test]
    fn a_long_history_is_cut() {
        let mut events: Vec<_> = (0..30)
            .flat_map(|n| {
                [
                    (Granted(n), 4 * n as u64, 4 * n as u64 + 1),
                    (Unlocked(n), 4 * n as u64 + 2, 4 * n as u64 + 3),
                ]
            })
            .collect();
        events.push((Renewed(29), 200, 201));
        let report = found(&events).unwrap();
        assert!(report.contains("(48 earlier calls, all consistent)"), "{report}");
        assert!(report.lines().count() < 20, "{report}");
    }
}

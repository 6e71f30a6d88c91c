//! The positions in lists. Callers can read and invent them, so they contain no secret:
//! neither a lock ID nor a token.

use std::collections::BTreeSet;

use leasehold_lock::{BackendError, GrantId, ResourceId, inspect::Cursor};

use super::walk::Walk;

/// A position in the walk through all keys.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) begin: Walk,
    /// If a page ended within the step: where the step ended, and the last name that was
    /// read.
    within: Option<(Option<Walk>, Box<str>)>,
}

impl From<Walk> for Step {
    fn from(begin: Walk) -> Self {
        Self { begin, within: None }
    }
}

impl Step {
    /// The position after this resource, in the step from here to `end`.
    pub(super) fn within(&self, end: Option<Walk>, last: &ResourceId) -> Self {
        Self { begin: self.begin.clone(), within: Some((end, last.as_str().into())) }
    }

    /// The resources of the step from here that are still to be read. If the step ends
    /// elsewhere than before, it has other keys, and none is left out.
    pub(super) fn rest(
        &self,
        end: Option<&Walk>,
        found: BTreeSet<ResourceId>,
    ) -> Vec<ResourceId> {
        let within = self.within.as_ref().filter(|(step_end, _)| step_end.as_ref() == end);
        let is_new = |name: &str| within.is_none_or(|(_, last)| *name > **last);
        found.into_iter().filter(|resource| is_new(resource.as_str())).collect()
    }

    pub(super) fn cursor(&self) -> Cursor {
        match &self.within {
            None => self.begin.text().into(),
            Some((end, last)) => {
                let end = end.as_ref().map_or_else(|| "0".to_owned(), Walk::text);
                format!("{}:{end}:{last}", self.begin.text()).into()
            }
        }
    }

    pub(super) fn read(cursor: &str) -> Result<Self, BackendError> {
        Self::parse(cursor).ok_or_else(BackendError::bad_cursor)
    }

    fn parse(cursor: &str) -> Option<Self> {
        let Some((begin, within)) = cursor.split_once(':') else {
            return Some(Self::from(Walk::parse(cursor)?));
        };
        let (end, last) = within.split_once(':')?;
        let end = Walk::parse(end)?;
        let within = Some(((end != Walk::default()).then_some(end), last.into()));
        Some(Self { begin: Walk::parse(begin)?, within })
    }
}

/// A position in the grants of a resource: after this grant, or if that has ended, at the
/// millisecond in which it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct After {
    pub(super) since_ms: u64,
    pub(super) id: Option<GrantId>,
}

impl After {
    pub(super) fn cursor(self) -> Cursor {
        let id = self.id.map(|id| id.to_string()).unwrap_or_default();
        format!("{}:{id}", self.since_ms).into()
    }

    pub(super) fn read(cursor: &str) -> Result<Self, BackendError> {
        Self::parse(cursor).ok_or_else(BackendError::bad_cursor)
    }

    fn parse(cursor: &str) -> Option<Self> {
        let (since_ms, id) = cursor.split_once(':')?;
        let id = if id.is_empty() { None } else { Some(id.parse().ok()?) };
        Some(Self { since_ms: since_ms.parse().ok()?, id })
    }
}

/// A position in a queue: after the place with this ticket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ticket(pub(super) f64);

impl Ticket {
    pub(super) fn cursor(self) -> Cursor {
        self.0.to_string().into()
    }

    pub(super) fn read(cursor: &str) -> Result<Self, BackendError> {
        let ticket = cursor.parse().ok().filter(|ticket: &f64| ticket.is_finite());
        ticket.map(Self).ok_or_else(BackendError::bad_cursor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> BTreeSet<ResourceId> {
        names.iter().map(|name| ResourceId::new(name).unwrap()).collect()
    }

    #[test]
    fn every_position_can_be_read_back() {
        let [last] = <[_; 1]>::try_from(Vec::from_iter(names(&["a:b:"]))).unwrap();
        let at = |text| Walk::parse(text).unwrap();
        let end = Some(at("9.ab.1.2.3.4"));
        for step in [
            Step::from(at("7")),
            Step::from(at("7")).within(end, &last),
            Step::from(at("7.ab.0.2.3.4")).within(None, &last),
        ] {
            assert_eq!(Step::read(&step.cursor()), Ok(step));
        }
        for id in [None, Some(GrantId::from_u128(9))] {
            let after = After { since_ms: 1_763_854_204_123, id };
            assert_eq!(After::read(&after.cursor()), Ok(after));
        }
        let ticket = Ticket(12.345_678_901_234_567);
        assert_eq!(Ticket::read(&ticket.cursor()), Ok(ticket));
    }

    #[test]
    fn what_is_no_position_is_refused() {
        for forged in ["", "x", "-1", "1:2", "1:x:r", "x:1:r", ":", "18446744073709551616"] {
            assert!(Step::read(forged).is_err(), "{forged}");
        }
        for forged in ["", "7", ":", "x:", "7:x", "7:1"] {
            assert!(After::read(forged).is_err(), "{forged}");
        }
        for forged in ["", "x", "inf", "NaN", "1e999"] {
            assert!(Ticket::read(forged).is_err(), "{forged}");
        }
    }

    #[test]
    fn a_step_goes_on_behind_the_last_name_only_if_it_is_the_same() {
        let [last] = <[_; 1]>::try_from(Vec::from_iter(names(&["b"]))).unwrap();
        let [begin, end, other] = ["7", "9", "11"].map(|text| Walk::parse(text).unwrap());
        let step = Step::from(begin).within(Some(end.clone()), &last);
        let rest = |end| Vec::from_iter(step.rest(end, names(&["a", "b", "c"])));
        assert_eq!(rest(Some(&end)), Vec::from_iter(names(&["c"])));
        assert_eq!(rest(Some(&other)), Vec::from_iter(names(&["a", "b", "c"])));
        assert_eq!(rest(None), Vec::from_iter(names(&["a", "b", "c"])));
    }
}

//! Numbers in place of names.

use std::collections::HashMap;

use super::super::resource::ResourceHistory;

/// Replaces names by numbers, which are cheaper to compare and to store.
#[derive(Default)]
pub(super) struct Numbers<'a> {
    strings: HashMap<&'a str, usize>,
    /// The grant that a call was answered with.
    pub(super) grants: HashMap<u64, usize>,
    /// The grant with a public ID.
    pub(super) public: HashMap<&'a str, usize>,
}

impl<'a> Numbers<'a> {
    /// With the grants of a resource, whose numbers are their places.
    pub(super) fn new(history: &ResourceHistory<'a>) -> Self {
        let mut numbers = Self::default();
        for (number, grant) in history.grants.iter().enumerate() {
            for acquisition in &grant.acquisitions {
                numbers.grants.insert(acquisition.invocation.id, number);
                if let Some(granted) = acquisition.granted() {
                    numbers.public.insert(&granted.grant_id, number);
                }
            }
        }
        numbers
    }

    pub(super) fn of(&mut self, name: &'a str) -> usize {
        let next = self.strings.len();
        *self.strings.entry(name).or_insert(next)
    }
}

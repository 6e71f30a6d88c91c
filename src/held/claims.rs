//! The attempts of this process that may have got a grant last.

use leasehold_lock::AttemptId;

/// How many are kept. The oldest is dropped first.
const CLAIMS_MAX: usize = 32;

/// The attempts of this process that may have got a grant last: those that were answered with it,
/// and those that ended without an answer.
#[derive(Clone, Debug, Default)]
pub(super) struct Claims(Vec<AttemptId>);

impl Claims {
    pub(super) fn of(attempt: AttemptId) -> Self {
        Self(vec![attempt])
    }

    pub(super) fn add(&mut self, attempt: AttemptId) {
        self.0.retain(|earlier| *earlier != attempt);
        if self.0.len() == CLAIMS_MAX {
            self.0.remove(0);
        }
        self.0.push(attempt);
    }

    /// Adds claims that were made later.
    pub(super) fn extend(&mut self, later: &Self) {
        later.iter().for_each(|attempt| self.add(attempt));
    }

    /// The earliest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = AttemptId> {
        self.0.iter().copied()
    }
}

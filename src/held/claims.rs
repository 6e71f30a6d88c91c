//! The attempts of this process that may have got a grant last.

use leasehold_lock::AttemptId;

/// How many are kept. The oldest is dropped first.
const CLAIMS_MAX: usize = 32;

/// The attempts of this process that may have got a grant last: those whose answer arrived, and
/// repeated requests without an answer. A call under way keeps its own attempt, so that no
/// release ends the grant of its answer.
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

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The earliest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = AttemptId> {
        self.0.iter().copied()
    }
}

//! How often clients ask for a shared grant.

use crate::history::Mode;

/// How many of 100 acquisitions are shared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Readers(pub(super) u32);

impl Readers {
    /// Whether there are none, as in a run of exclusive locks only.
    pub(super) fn are_none(self) -> bool {
        self.0 == 0
    }

    /// The mode of the next acquisition.
    pub(super) fn draw(self, rng: &mut fastrand::Rng) -> Mode {
        // Without a draw, so that runs without readers make the same choices as before
        // there were readers.
        if !self.are_none() && rng.u32(..100) < self.0 { Mode::Shared } else { Mode::Exclusive }
    }
}

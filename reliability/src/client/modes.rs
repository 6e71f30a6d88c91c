//! How often clients ask for a shared grant.

use crate::history::Mode;

/// Of how many of 100 acquisitions the mode is shared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Readers(pub(super) u32);

impl Readers {
    /// Whether there are none, as in a run of exclusive locks only.
    pub(super) fn are_none(self) -> bool {
        self.0 == 0
    }

    /// The mode of the next acquisition.
    pub(super) fn draw(self, rng: &mut fastrand::Rng) -> Mode {
        // Without a draw, so that runs without readers choose as they did before.
        if !self.are_none() && rng.u32(..100) < self.0 { Mode::Shared } else { Mode::Exclusive }
    }
}

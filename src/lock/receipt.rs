//! Whether a grant was received.

use std::sync::Arc;

use parking_lot::Mutex;

use super::settle::Pending;

/// Proof that somebody received a grant, to be given by [`Receipt::accept`]
/// when the transport has taken the answer.
///
/// When the last clone is dropped without that, the grant is released at once
/// instead of being left to its TTL (trap 10).
#[derive(Clone)]
pub struct Receipt(Arc<Mutex<Option<Pending>>>);

impl Receipt {
    pub(super) fn new(pending: Option<Pending>) -> Self {
        Self(Arc::new(Mutex::new(pending)))
    }

    /// Whether dropping it would release the grant: not that of a replay, nor
    /// one that was received.
    pub(crate) fn undoes(&self) -> bool {
        self.0.lock().is_some()
    }

    /// The caller has the grant; from now on its TTL ends it.
    pub fn accept(&self) {
        let pending = self.0.lock().take();
        if let Some(pending) = pending {
            pending.disarm();
        }
    }
}

impl std::fmt::Debug for Receipt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Receipt")
    }
}

//! Notes whether a grant was received.

use std::sync::Arc;

use parking_lot::Mutex;

use super::settle::Pending;

/// Releases its grant when the last clone is dropped, unless it was accepted.
///
/// The edge calls [`Receipt::accept`] when the transport has taken the answer. So a grant
/// that nobody received is released at once, not at the end of its TTL (trap 10).
#[derive(Clone)]
pub struct Receipt(Arc<Mutex<Option<Pending>>>);

impl Receipt {
    pub(super) fn new(pending: Option<Pending>) -> Self {
        Self(Arc::new(Mutex::new(pending)))
    }

    /// Whether dropping it would release the grant. The grant of a replay is never
    /// released, nor one that was received.
    pub(crate) fn undoes(&self) -> bool {
        self.0.lock().is_some()
    }

    /// Notes that the caller has the grant: from now on it is left to its TTL.
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

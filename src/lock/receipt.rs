//! Tracks whether a grant was received.

use std::sync::Arc;

use parking_lot::Mutex;

use super::{Instant, LockError, settle::Pending};

/// Releases its grant when the last clone is dropped, unless it was accepted.
///
/// The edge calls [`Receipt::accept`] when the transport takes the answer. So a grant
/// that nobody received is released at once, not at the end of its TTL (trap 10).
#[derive(Clone)]
pub struct Receipt {
    pending: Arc<Mutex<Option<Pending>>>,
    safe_deadline: Instant,
}

impl Receipt {
    pub(super) fn new(pending: Option<Pending>, safe_deadline: Instant) -> Self {
        Self { pending: Arc::new(Mutex::new(pending)), safe_deadline }
    }

    /// Whether the call made the grant, instead of finding it, so that dropping the receipt ends it.
    pub(super) fn is_of_new_grant(&self) -> bool {
        self.pending.lock().is_some()
    }

    /// Fails if the safe deadline has passed, so that nobody may rely on the grant any more.
    pub fn check(&self) -> Result<(), LockError> {
        check(self.safe_deadline)
    }

    /// Marks the grant as received: from now on it is left to its TTL. Returns false, and
    /// does nothing, if the safe deadline has passed.
    pub fn accept(&self) -> bool {
        self.try_accept().is_ok()
    }

    /// Like [`Receipt::accept`], with the error for the caller.
    pub fn try_accept(&self) -> Result<(), LockError> {
        self.check()?;
        let pending = self.pending.lock().take();
        if let Some(pending) = pending {
            pending.disarm();
        }
        Ok(())
    }
}

/// Fails if the safe deadline of a grant has passed.
pub(super) fn check(safe_deadline: Instant) -> Result<(), LockError> {
    if Instant::now() < safe_deadline {
        return Ok(());
    }
    let why = "the answer of the backend came after the safe deadline of the grant";
    Err(LockError::OutcomeUnknown(why.into()))
}

impl std::fmt::Debug for Receipt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Receipt")
    }
}

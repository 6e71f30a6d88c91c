//! The grants whose answers a connection has not written yet.
//!
//! A grant is received when the connection is about to write the first bytes of its answer.
//! This process may have stood still since the grant was made. So immediately before that
//! write the connection asks the system whether its peer takes bytes, and then looks at the
//! clock. If an answer is much too late for its caller, or its grant may be over, it is not
//! written and its grant is released. Otherwise the caller might still read it, and rely on that
//! grant. As encoded bytes cannot be taken back, the connection ends.
//!
//! An answer that is slightly late is written, and its grant counts as received: on a busy
//! machine, the other calls of the connection must not suffer.
//!
//! While an answer waits, every read asks the system, too, so that HTTP/2 sees all cancellations
//! that have arrived, and drops their answers.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use leasehold_lock::{LockError, Receipt};
use parking_lot::Mutex;
use tokio::time::Instant;

/// How much later than its deadline an encoded answer is still written.
pub(super) const LATE_MAX: Duration = Duration::from_millis(250);

/// Called when the grant is received.
type Accept = Box<dyn FnOnce() + Send>;

/// A grant on its way to the caller. Clones share one grant; dropping the last
/// without having accepted it releases the grant.
#[derive(Clone)]
pub struct Delivery {
    receipt: Receipt,
    accepted: Arc<Mutex<Option<Accept>>>,
}

impl Delivery {
    /// `accepted` is called when the grant is received, otherwise dropped.
    pub fn new(receipt: Receipt, accepted: impl FnOnce() + Send + 'static) -> Self {
        Self { receipt, accepted: Arc::new(Mutex::new(Some(Box::new(accepted)))) }
    }

    /// A grant that needs nothing but its receipt to be accepted.
    pub fn of(receipt: Receipt) -> Self {
        Self::new(receipt, || {})
    }

    /// Whether the grant may still be received.
    pub(super) fn check(&self) -> Result<(), LockError> {
        self.receipt.check()
    }

    /// Accepts the grant: its answer is written.
    pub fn accept(&self) {
        let accepted = self.accepted.lock().take();
        if let Some(accepted) = accepted
            && self.receipt.accept()
        {
            accepted();
        }
    }
}

impl std::fmt::Debug for Delivery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Delivery")
    }
}

/// The grants whose answers one connection has not written yet. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Answers(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// How many answers the transport has not encoded yet.
    unencoded: AtomicUsize,
    /// The answers that it has encoded.
    encoded: Mutex<Vec<Encoded>>,
}

#[derive(Debug)]
struct Encoded {
    delivery: Delivery,
    deadline: Option<Instant>,
}

impl Encoded {
    /// Whether the caller has left, or may not rely on the grant any more.
    fn is_void(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|at| at + LATE_MAX <= now) || self.delivery.check().is_err()
    }
}

impl Answers {
    /// A grant whose answer must be written before `deadline`, when its caller gives up.
    pub(super) fn add(&self, delivery: Delivery, deadline: Option<Instant>) -> Unencoded {
        self.0.unencoded.fetch_add(1, Ordering::Relaxed);
        Unencoded { delivery, deadline, counted: Counted(self.clone()) }
    }

    /// Whether an answer waits to be written.
    pub(super) fn are_waiting(&self) -> bool {
        self.0.unencoded.load(Ordering::Relaxed) > 0 || !self.0.encoded.lock().is_empty()
    }

    /// To be called immediately before a write: the encoded answers count as received.
    ///
    /// # Errors
    ///
    /// `takes_bytes` failed, an answer is more than [`LATE_MAX`] late, or a grant may be over.
    /// Then nothing may be written, and the answers stay; [`Answers::close`] releases their grants.
    pub(super) fn receive(
        &self,
        takes_bytes: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let mut encoded = self.0.encoded.lock();
        if encoded.is_empty() {
            return Ok(());
        }
        takes_bytes()?;
        let now = Instant::now();
        if encoded.iter().any(|answer| answer.is_void(now)) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let written = std::mem::take(&mut *encoded);
        drop(encoded);
        for answer in written {
            answer.delivery.accept();
        }
        Ok(())
    }

    /// Releases the grants of encoded answers, which will not be written.
    pub(super) fn close(&self) {
        let encoded = std::mem::take(&mut *self.0.encoded.lock());
        drop(encoded);
    }
}

/// A grant whose answer is not encoded yet. Dropping it releases the grant.
#[derive(Debug)]
pub(super) struct Unencoded {
    delivery: Delivery,
    deadline: Option<Instant>,
    counted: Counted,
}

impl Unencoded {
    /// The transport encodes the answer, and will write it or end.
    pub(super) fn encode(self) {
        let Self { delivery, deadline, counted } = self;
        counted.0.0.encoded.lock().push(Encoded { delivery, deadline });
    }
}

#[derive(Debug)]
struct Counted(Answers);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.unencoded.fetch_sub(1, Ordering::Relaxed);
    }
}
